"""A signal ends a run after the current step."""

import contextlib
import os
import signal
import time
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from tests import trainer
from towers.errors.interrupts import Interrupted
from towers.layout import placement
from towers.session import stop as stop_lib
from towers.session.stop import StopOnSignal


def _run(around, last_step, steps_per_loop=1):
    """The global step reached."""
    training = trainer.Trainer(towers=2)
    return training.add_loop().start().run(around, last_step, steps_per_loop)


def _kill(number, at=None):
    """Sends this process a signal."""
    return trainer.Do(lambda: os.kill(os.getpid(), number), at)


class StopOnSignalTest(parameterized.TestCase):
    def test_an_interrupt_before_the_first_step_is_not_lost(self):
        with StopOnSignal() as stop:
            with self.assertRaises(KeyboardInterrupt), stop.at_once():
                signal.raise_signal(signal.SIGINT)
                placement.cores()
                self.fail("it goes on")
            with self.assertRaises(KeyboardInterrupt), stop.at_once():
                signal.raise_signal(signal.SIGINT)
                with contextlib.suppress(KeyboardInterrupt):
                    placement.cores()
            with self.assertRaises(KeyboardInterrupt), stop.at_once():
                signal.raise_signal(signal.SIGINT)
                tf.Graph()  # not a function of this project
            with self.assertRaises(KeyboardInterrupt), stop.at_once():
                raise RuntimeError("scopes are left in another order")
            signal.raise_signal(signal.SIGINT)  # now a step is finished first
        with StopOnSignal() as stop:
            with self.assertRaises(RuntimeError), stop.at_once():
                raise RuntimeError("nobody interrupted")
            with self.assertRaises(Interrupted) as caught, stop.at_once():
                signal.raise_signal(signal.SIGTERM)
                placement.cores()
                self.fail("it goes on")
        self.assertEqual(stop.received, signal.SIGTERM)
        self.assertEqual((caught.exception.name, stop.status), ("SIGTERM", 143))

    @parameterized.product(
        how=((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)),
        steps_per_loop=(1, 50),
    )
    def test_the_loop_ends_after_the_step(self, how, steps_per_loop):
        number, status = how
        before = signal.getsignal(number)
        with StopOnSignal() as stop:
            kill = _kill(number, at=5)
            self.assertEqual(_run([kill, stop], 9, steps_per_loop), 5)
            self.assertEqual((stop.received, stop.status), (number, status))
        self.assertIs(signal.getsignal(number), before)

    def test_steps_inside_the_graph_are_finished(self):
        with StopOnSignal() as stop:
            kill = _kill(signal.SIGTERM)
            self.assertEqual(_run([stop, kill], 50, 8), 9)
        self.assertEqual(stop.received, signal.SIGTERM)

    def test_a_second_signal_is_no_echo_of_the_first(self):
        for seconds, insisted in ((60.0, False), (0.0, True)):
            with mock.patch.object(stop_lib, "ECHO_SECONDS", seconds):
                with StopOnSignal() as stopped:
                    signal.raise_signal(signal.SIGTERM)
                    self.assertFalse(stopped.insisted)
                    time.sleep(0.01)
                    signal.raise_signal(signal.SIGTERM)
            self.assertEqual(stopped.insisted, insisted)

    def test_no_signal(self):
        with StopOnSignal() as stop:
            self.assertEqual(_run([stop], 3), 3)
        self.assertIsNone(stop.received)
        self.assertEqual(stop.status, 0)

    @parameterized.parameters(signal.SIGHUP, signal.SIGINT)
    def test_what_is_ignored_stays_so(self, number):
        """As under `nohup`, and in the background of a shell."""
        before = signal.signal(number, signal.SIG_IGN)
        self.addCleanup(signal.signal, number, before)
        with StopOnSignal() as stop:
            signal.raise_signal(number)
        self.assertIsNone(stop.received)
