"""Cases that processes share: the same outcomes, whatever becomes of a helper."""

import functools
import os
import pathlib
import pickle
import sys
import time
from unittest import mock

from absl.testing import parameterized

from tests import trainer
from towers.verification import agreement, workers
from towers.verification.verdict import Case

_CASES = [
    Case(mode, count)
    for mode in ("parameter_server", "independent", "staged")
    for count in (1, 2)
]

# Writes down what it has found first.
_HELPS = """
import pathlib, sys
from tests import trainer
from towers.verification import workers
work = workers.asked()
print("what a model prints is in nobody's way", flush=True)
send, mark = workers._send, pathlib.Path(sys.argv[1])
def told(message, pipe):
    send(message, pipe)
    if message is not None and not mark.exists():
        mark.write_text(repr(message.case))
workers._send = told
sys.exit(workers.help_with(work, trainer.subject))
"""

# Asks for a case, and so is known to have one, and ends.
_LEAVES = """
import pathlib, pickle, sys
pathlib.Path(sys.argv[1]).write_text("began")
pickle.dump(None, sys.stdout.buffer)
sys.stdout.buffer.flush()
pickle.load(sys.stdin.buffer)
"""

_SAYS_NONSENSE = """
import pathlib, sys
pathlib.Path(sys.argv[1]).write_text("began")
print("hello", flush=True)
"""

_FAILS = """
import pathlib, sys
pathlib.Path(sys.argv[1]).write_text("began")
sys.exit(1)
"""

_HANGS = """
import os, pathlib, sys, time
pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
time.sleep(600)
"""


@functools.cache
def _alone():
    """The outcomes of one process."""
    return list(agreement.compare(trainer.subject(), _CASES))


class HelpingTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        path = os.pathsep.join(filter(None, sys.path))
        self.enter_context(mock.patch.dict(os.environ, PYTHONPATH=path))
        self.mark = pathlib.Path(self.create_tempdir().full_path, "mark")

    def _compare(self, program):
        command = [sys.executable, "-c", program, str(self.mark)]
        helpers = workers.Workers(command, 1)
        return workers.compare(trainer.subject(), _CASES, helpers)

    def _marked(self):
        return self.mark.read_text() if self.mark.exists() else ""

    def _wait_for(self, happened):
        for _ in range(600):
            if happened():
                return
            time.sleep(0.1)
        self.fail("waited in vain for a minute")

    def test_a_helper_takes_from_the_end(self):
        outcomes = self._compare(_HELPS)
        results = [next(outcomes)]
        self._wait_for(self._marked)
        self.assertEqual(self._marked(), repr(_CASES[-1]))
        self.assertEqual([*results, *outcomes], _alone())

    @parameterized.parameters(_LEAVES, _SAYS_NONSENSE, _FAILS)
    def test_what_a_helper_leaves_is_done(self, program):
        self.assertEqual(list(self._compare(program)), _alone())
        self.assertEqual(self._marked(), "began")

    def test_a_helper_ends_with_who_asked(self):
        outcomes = self._compare(_HANGS)
        next(outcomes)
        self._wait_for(self._marked)
        process = int(self._marked())
        os.kill(process, 0)
        outcomes.close()
        with self.assertRaises(ProcessLookupError):
            os.kill(process, 0)

    def test_a_helper_that_nobody_waits_for_ends(self):
        reader, writer = os.pipe()
        os.close(reader)
        answers, cases = os.pipe()
        with open(cases, "wb") as given:
            pickle.dump(_CASES[0], given)
        with open(answers, "rb") as known:
            work = workers.WorkQueue(os.fdopen(writer, "wb"), known)
            self.assertEqual(workers.help_with(work, trainer.subject), 1)

    def test_only_a_helper_is_asked(self):
        self.assertIsNone(workers.asked())
