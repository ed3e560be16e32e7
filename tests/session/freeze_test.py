"""Constants in place of variables."""

import shutil
import tempfile
from unittest import mock

import numpy as np
from absl.testing import parameterized

from tests import digit_runs, trainer
from towers.checkpoints import checkpoint
from towers.compute.nodes import ancestors
from towers.session import freeze


class FreezeTest(digit_runs.ForwardRuns):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.trained = tempfile.mkdtemp()  # of a run that tests start from
        cls.addClassCleanup(shutil.rmtree, cls.trained)
        cls.fresh: list[str] = []  # the lines of a run that starts from nothing

    def _trained(self) -> str:
        if not checkpoint.latest(self.trained):
            self.run_flags(num_epochs=3.0, train_dir=self.trained, num_gpus=2)
        return self.trained

    @parameterized.parameters(
        {},
        dict(variable_update="replicated"),
        dict(variable_update="distributed_replicated"),
        dict(variable_update="staged"),
        dict(num_stages=2, num_micro_batches=2),
        dict(shard_classifier=2),
    )
    def test_constants_have_the_values_of_a_checkpoint(self, **flags):
        flags |= dict(init_checkpoint=self._trained(), num_gpus=2)
        plain = self.forward(**flags)
        lines = self.forward(freeze_when_forward_only=True, **flags)
        self.assertIn("Frozen:      the variables are constants of the graph", lines)
        self.assertEqual(digit_runs.shown(lines), digit_runs.shown(plain))
        if not self.fresh:
            self.fresh[:] = self.forward(**{**flags, "init_checkpoint": None})
        self.assertGreater(  # the loss is lower after training
            np.mean([float(row[2]) for row in digit_runs.shown(lines)]),
            np.mean([float(row[2]) for row in digit_runs.shown(self.fresh)]) + 0.2,
        )
        [line] = [line for line in lines if line.startswith("Starting from ")]
        self.assertRegex(line, r"model\.ckpt-\d+: 7 of 7 variables are in it$")

    def test_a_frozen_step_reads_no_variable(self):
        plain = trainer.Trainer(forward_only=True, towers=2).train
        constants = {
            name: np.zeros(variable.shape, np.float32)
            for name, variable in plain.mode.variables.items()
        }
        arguments = dict(
            model=trainer.dense_model(),
            source=trainer.random_source(),
            update=trainer.MOMENTUM,
            placement=plain.placement,
            options=plain.options,
        )
        built = freeze.with_constants(arguments, constants)
        for train, count in ((plain, 2), (built, 0)):
            kernels = [n for n in ancestors([train.train_op]) if n.endswith("kernel")]
            self.assertLen(kernels, count)

    def test_constants_that_no_graph_can_hold(self):
        words = (
            r"^freeze_when_forward_only=True: the constants take 0\.0 GB, and a graph"
        )
        for mode, limit in (("parameter_server", 1), ("replicated", 2)):
            size = 4 * limit * (2978 + 2 * 8)
            flags = dict(freeze_when_forward_only=True, variable_update=mode)
            with mock.patch.object(freeze, "_MOST_BYTES", size - 1):
                with self.assertRaisesRegex(ValueError, words):
                    self.forward(**flags)
            with mock.patch.object(freeze, "_MOST_BYTES", size):
                self.forward(**flags)
