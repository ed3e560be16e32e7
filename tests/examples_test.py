"""The programs in examples/ run as they stand there."""

import contextlib
import importlib.util
import io
import os
import sys
from unittest import mock

from absl.testing import parameterized

from tests import digit_runs
from tests.processes.programs import ROOT
from towers.gradients.reduction import REDUCTIONS

# Example -> what its output must hold.
_SHOWN = {
    "cifar10_multi_gpu": "tower_1: 10 gradients",
    "own_arrays": "step 60: loss",
    "own_model": "Accuracy @ 1",
    "own_reduction": "total images/sec",
    "own_variable_update": "step 60: loss of the first tower",
    "parameter_server": "",  # its tasks write to the process's own output
    "pipeline_gantt": "total images/sec",
    "plot_metrics": "metrics.svg",
}


def _main(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"examples/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main


class ExamplesTest(parameterized.TestCase):
    @parameterized.parameters(*_SHOWN)
    def test_runs(self, name):
        main, folder = _main(name), self.create_tempdir().full_path
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
            contextlib.redirect_stdout(io.StringIO()) as printed,
        ):
            self.assertIn(main(), (None, 0))
        self.assertIn(_SHOWN[name], printed.getvalue())
        if name == "pipeline_gantt":
            self.assertTrue(os.path.exists("pipeline_report/gantt.svg"))

    def test_every_example_has_a_row(self):
        names = {path.stem for path in (ROOT / "examples").glob("[a-z]*.py")}
        self.assertEqual(names, {*_SHOWN})
