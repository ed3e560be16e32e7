"""Signals that end a process raise one exception, with its exit status."""

import signal
from unittest import mock

from absl.testing import parameterized

from towers.errors import interrupts
from towers.errors.terminal import ENDING


class InterruptsTest(parameterized.TestCase):
    @parameterized.parameters(*ENDING)
    def test_a_signal_is_raised_at_once(self, number):
        before = signal.getsignal(number)
        with self.assertRaises(interrupts.Interrupted) as caught, interrupts.raised():
            signal.raise_signal(number)
            self.fail("it goes on")
        self.assertEqual(caught.exception.status, 128 + number)
        self.assertEqual(caught.exception.name, number.name)
        self.assertIs(signal.getsignal(number), before)

    def test_what_it_makes_fail_is_it(self):
        """But what failed before it, or succeeds in spite of it, is not."""
        with self.assertRaises(interrupts.Interrupted), interrupts.raised():
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                raise RuntimeError("scopes are left in another order")
        with self.assertRaises(RuntimeError), interrupts.raised():
            raise RuntimeError("no signal came")

    def test_an_echo_is_none_but_another_one_is(self):
        for seconds, count in ((60.0, 1), (0.0, 2)):
            raised = 0
            with mock.patch.object(interrupts, "ECHO_SECONDS", seconds):
                with interrupts.raised():
                    for _ in range(2):
                        try:
                            signal.raise_signal(signal.SIGTERM)
                        except interrupts.Interrupted:
                            raised += 1
            self.assertEqual(raised, count)

    @parameterized.parameters(*ENDING)
    def test_what_is_ignored_stays_so(self, number):
        before = signal.signal(number, signal.SIG_IGN)
        self.addCleanup(signal.signal, number, before)
        with interrupts.raised():
            signal.raise_signal(number)

    def test_where_python_took_the_interrupt(self):
        self.assertEqual(interrupts.of(KeyboardInterrupt()).status, 130)
        terminated = interrupts.Interrupted(signal.SIGTERM)
        self.assertIs(interrupts.of(terminated), terminated)
