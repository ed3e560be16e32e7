"""`import towers` imports no TensorFlow, and has the calls."""

import subprocess
import sys

from absl.testing import absltest

import towers
from tests.processes.programs import ROOT

_IMPORT = "import sys, towers; sys.exit('tensorflow' in sys.modules)"


class TowersTest(absltest.TestCase):
    def test_the_import_does_not_load_tensorflow(self):
        subprocess.run([sys.executable, "-c", _IMPORT], cwd=ROOT, check=True)

    def test_its_calls(self):
        for name in ("fit", "evaluate"):
            self.assertEqual(getattr(towers, name).__module__, "towers.api")
        for name in ("callbacks", "data"):
            self.assertEqual(getattr(towers, name).__name__, f"towers.{name}")
        with self.assertRaisesRegex(AttributeError, "no attribute 'fitt'"):
            _ = towers.fitt
