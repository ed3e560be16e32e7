"""The programs in examples/ run as they stand there."""

import contextlib
import glob
import importlib.util
import io
import os
import sys
from unittest import mock

from absl.testing import parameterized

from tests import digit_runs
from tests.processes.programs import ROOT
from towers.gradients.reduction import REDUCTIONS

# Example -> a pattern that its output must match.
_SHOWN = {
    "autoencoder": r"bound -2\d\.\d nats",
    "ctc": r"[789]\d\.\d% of 355 lines",
    "indexed_data": r"accuracy 0\.[89]",
    "regression": r"differ by \d\.\de-0[5-9] at most",
    "segmentation": r"union 0\.[789]",
    "two_heads": r"accuracy 0\.9",
    "cifar10_multi_gpu": "tower_1: 10 gradients",
    "own_arrays": "step 60: loss",
    "own_callbacks": "step 113: biggest loss",
    "own_model": "Accuracy @ 1",
    "own_reduction": "total images/sec",
    "own_variable_update": "step 60: loss of the first tower",
    "parameter_server": "^$",  # its tasks write to the process's own output
    "pipeline_gantt": "total images/sec",
    "plot_metrics": "metrics.svg",
}


class ExamplesTest(parameterized.TestCase):
    @parameterized.parameters(*_SHOWN)
    def test_runs(self, name):
        if name == "regression" and importlib.util.find_spec("sklearn") is None:
            self.skipTest("scikit-learn, which has its data, is not installed")
        folder = self.create_tempdir().full_path
        before = os.getcwd()
        os.chdir(folder)
        self.addCleanup(os.chdir, before)
        environment = {
            "TFDS_DATA_DIR": digit_runs.data_dir(),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        with (
            mock.patch.object(sys, "argv", [name]),
            mock.patch.dict(os.environ, environment),
            mock.patch.dict(REDUCTIONS),
            # Processes that an example starts look for its classes there.
            mock.patch.object(sys, "path", [*sys.path, str(ROOT / "examples")]),
            contextlib.redirect_stdout(io.StringIO()) as printed,
        ):
            self.assertIn(importlib.import_module(name).main(), (None, 0))
        self.assertRegex(printed.getvalue(), _SHOWN[name])
        if name == "autoencoder":
            self.assertLen(glob.glob("autoencoder_run/eval/digits-*.png"), 4)
        if name == "pipeline_gantt":
            self.assertTrue(os.path.exists("pipeline_report/gantt.svg"))

    def test_every_example_has_a_row(self):
        names = {path.stem for path in (ROOT / "examples").glob("[a-z]*.py")}
        self.assertEqual(names, {*_SHOWN})
