"""A terminal is closed, and the process that prints on it goes on."""

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
from unittest import mock

from absl.testing import parameterized

from tests.processes.programs import ROOT
from towers.errors import terminal

# Prints after the terminal hangs up.
_CHILD = """
import os, signal, sys, time
from towers.errors.terminal import Terminal
terminal, came = Terminal(), []
signal.signal(signal.SIGHUP, lambda number, frame: came.append(number))
os.write(int(sys.argv[2]), b"here")
while not came:
    time.sleep(0.01)
if sys.argv[1] == "forgets":
    terminal.forget()
try:
    print("on the way", flush=True)
    print("and beside", file=sys.stderr, flush=True)
except OSError:
    os._exit(7)
os._exit(3)
"""


class TerminalTest(parameterized.TestCase):
    @parameterized.parameters(("forgets", 3), ("remembers", 7))
    def test_lines_after_the_hangup_are_no_error(self, how, status):
        ours, theirs = pty.openpty()
        ready, here = os.pipe()
        self.addCleanup(os.close, ready)
        self.addCleanup(os.close, here)
        child = subprocess.Popen(
            [sys.executable, "-c", _CHILD, how, str(here)],
            cwd=ROOT,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            pass_fds=[here],
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self.addCleanup(child.kill)
        os.close(theirs)
        self.assertEqual(os.read(ready, 1000), b"here")
        os.close(ours)
        self.assertEqual(child.wait(60), status)

    def test_files_go_on(self):
        with mock.patch.object(os, "isatty", lambda descriptor: False):
            noted = terminal.Terminal()
        with mock.patch.object(os, "dup2") as replaced:
            noted.forget()
        replaced.assert_not_called()

    def test_what_is_ignored_is_not_heeded(self):
        for number in terminal.ENDING:
            before = signal.signal(number, signal.SIG_DFL)
            self.addCleanup(signal.signal, number, before)
        self.assertEqual(terminal.heeded(), list(terminal.ENDING))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self.assertEqual(terminal.heeded(), [signal.SIGTERM, signal.SIGINT])
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.assertEqual(terminal.heeded(), [signal.SIGTERM])

    def test_a_hangup(self):
        hangups = list(filter(terminal.is_hangup, terminal.ENDING))
        self.assertEqual(hangups, [signal.SIGHUP])
