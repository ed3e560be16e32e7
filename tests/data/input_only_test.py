"""The input alone: every batch is read, nothing is computed."""

import json
import os

from absl.testing import parameterized

import models
from tests import digit_runs, trainer
from towers.variable_update.modes import VARIABLE_UPDATES

_TOGETHER = [name for name, mode in VARIABLE_UPDATES.items() if mode.together]


class InputOnlyTest(digit_runs.Runs):
    def read(self, **flags):
        """Reads 20 timed steps of two towers after 10; returns the printed lines."""
        flags = {"num_gpus": 2, "batch_size": 8, "num_batches": 20, **flags}
        return self.run_flags(input_only=True, **flags)

    def test_lines(self):
        log = self.create_tempdir().full_path
        lines = self.read(benchmark_log_dir=log)
        self.assertIn("Mode:        input only", lines)
        self.assertIn("Step\tImg/sec\ttotal_loss", lines)
        self.assertEqual(
            digit_runs.shown(lines), [(step, "0.000") for step in ("1", "10", "20")]
        )
        text = "\n".join(lines)
        self.assertRegex(text, r"\ntotal images/sec: [\d.]+\n")
        for word in ("Parameters: ", "Optimizer: ", "Update: ", "MFU", "evaluation"):
            self.assertNotIn(word, text)
        with open(os.path.join(log, "metric.log")) as file:
            metrics = {(line := json.loads(text))["name"]: line for text in file}
        self.assertGreater(metrics["average_examples_per_sec"]["value"], 0)
        self.assertGreater(metrics["average_input_wait"]["value"], 0.1)

    @parameterized.parameters(
        *(dict(variable_update=mode) for mode in _TOGETHER),
        dict(steps_per_loop=4),
        dict(use_fp16=True),
        dict(data_format="NCHW"),
        dict(num_batches=None, num_epochs=1.0),
    )
    def test_reads_in_any_mode(self, **flags):
        lines = self.read(**flags)
        self.assertIn(digit_runs.shown(lines)[-1][0], ("20", "80"))

    def test_no_network_is_built(self):
        def block(x, nn):
            raise AssertionError

        model = trainer.model_of(block, shape=(8, 8, 1), num_classes=10)
        lines = self.read(get_model=lambda name: model)
        self.assertIn("Model:       chain", lines)

    def test_synthetic_data_are_not_read(self):
        with self.assertRaisesRegex(ValueError, "synthetic data are not read"):
            self.read(get_model=models.get, model="alexnet", data_name=None)
