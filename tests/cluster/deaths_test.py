"""The sentence about a task that a signal ended."""

import os
import signal
import subprocess
import sys
from unittest import mock

from absl.testing import parameterized

from tests.processes.programs import ROOT
from towers.cluster import deaths

# Crashes in a function of C, as native code does, with the stacks shown.
_CRASHES = """
import ctypes, faulthandler
faulthandler.enable()
def read_nothing():
    ctypes.string_at(0)
read_nothing()
"""
_STACKS = [
    "Fatal Python error: Segmentation fault",
    "",
    "Thread 0x00007f (most recent call first):",
    '  File "/lib/threading.py", line 9 in wait',
    "",
    "Current thread 0x00007e (most recent call first):",
    '  File "/lib/session.py", line 7 in run',
]


class DeathsTest(parameterized.TestCase):
    @parameterized.parameters(
        (signal.SIGKILL, [], False, "was killed by SIGKILL"),
        (
            *(signal.SIGKILL, [], True),
            "was killed by SIGKILL, as memory ran out; lower --batch_size",
        ),
        (signal.SIGTERM, _STACKS, True, "was killed by SIGTERM"),
        (signal.SIGRTMIN + 1, [], False, f"was killed by signal {signal.SIGRTMIN + 1}"),
        (signal.SIGSEGV, [], False, "crashed in native code (SIGSEGV, signal 11)"),
        (
            *(signal.SIGABRT, _STACKS, False),
            "crashed in native code (SIGABRT, signal 6), at /lib/session.py:7, in run",
        ),
        (
            *(signal.SIGBUS, [*_STACKS, '  File "towers", line 0 in step 7'], False),
            "crashed in native code (SIGBUS, signal 7), in step 7",
        ),
    )
    def test_words(self, number, printed, ran_out, wanted):
        words = deaths.words(number, printed, memory_ran_out=ran_out)
        self.assertEqual(words, wanted)

    def test_a_real_crash(self):
        done = subprocess.run(
            [sys.executable, "-c", _CRASHES], cwd=ROOT, capture_output=True, text=True
        )
        printed = done.stderr.splitlines()
        words = deaths.words(-done.returncode, printed, memory_ran_out=False)
        said = (
            r"^crashed in native code \(SIGSEGV, signal 11\), at .*:\d+, in string_at"
        )
        self.assertRegex(words, said)

    def test_memory_kills(self):
        read = mock.mock_open(read_data="nr_dirty 5\noom_kill 12\nnuma_hit 3\n")
        with mock.patch("builtins.open", read):
            self.assertEqual(deaths.memory_kills(), 12)
        with mock.patch("builtins.open", side_effect=FileNotFoundError):
            self.assertEqual(deaths.memory_kills(), 0)
        if os.path.exists("/proc/vmstat"):
            self.assertGreaterEqual(deaths.memory_kills(), 0)
