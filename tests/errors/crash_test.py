"""What a crash of native code writes."""

import os
import signal
import subprocess
import sys

from absl.testing import absltest

from tests.processes.programs import ROOT
from towers.errors import crash

_CRASHES = """
import os, signal
from towers.errors import crash

def kernel():
    os.kill(os.getpid(), signal.SIGSEGV)

crash.show_stacks()
crash.during("training; if memory ran out, lower the batch size")(kernel)
"""


def _ended(program: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
        stderr=subprocess.PIPE,
        check=False,
    )


class CrashTest(absltest.TestCase):
    def test_the_stack_says_what_was_going_on(self):
        ended = _ended(_CRASHES)
        self.assertEqual(ended.returncode, -signal.SIGSEGV)
        self.assertIn("Fatal Python error: Segmentation fault", ended.stderr)
        self.assertRegex(
            ended.stderr,
            r'line \d+ in kernel\n  File "towers", line \d+ in training; if memory ran '
            r"out, lower the batch size\n",
        )

    def test_results_and_errors_pass(self):
        self.assertEqual(crash.during("counting")(lambda: 7), 7)
        with self.assertRaisesRegex(ValueError, "^as it was$"):
            crash.during("failing")(self._fail)

    def test_the_same_words_are_the_same_code(self):
        """TensorFlow keeps the stacks of all operations for ever."""
        first, second = (crash.during("counting") for _ in range(2))
        self.assertIs(first.__code__, second.__code__)

    def _fail(self):
        raise ValueError("as it was")
