"""The CSV file has the numbers of the steps and of the evaluations."""

import csv

import numpy as np
from absl.testing import parameterized

from tests import digit_runs
from tests.callbacks import metric_runs
from towers.callbacks import CsvLog
from towers.callbacks.base import Callback


class _Losses(Callback):
    """The loss of each step."""

    def set_up(self, run):
        self._loss, self.losses = run.train.loss, []

    def before_run(self, run_context):
        return metric_runs.digit_runs.v1.train.SessionRunArgs(self._loss)

    def after_run(self, run_context, run_values):
        self.losses.append(run_values.results)


class CsvLogTest(metric_runs.MetricRuns):
    def _rows(self):
        with open(f"{self.directory}/log.csv", newline="") as file:
            return list(csv.DictReader(file))

    @parameterized.parameters(1, 3)
    def test_the_rows_are_those_of_their_steps(self, steps_per_loop):
        losses = _Losses()
        self.train(losses, train_dir=None, benchmark_log_dir=self.directory)
        lines = self.train(CsvLog(every=3), steps_per_loop=steps_per_loop)
        rows = self._rows()
        self.assertEqual([int(row["step"]) for row in rows], [3, 4, 6, 8, 9, 12, 12])
        steps = [row for row in rows if row["loss"]]
        evaluations = [row for row in rows if row["eval_loss"]]
        self.assertLen(steps + evaluations, len(rows))
        for row in steps:
            self.assertAlmostEqual(
                float(row["loss"]), losses.losses[int(row["step"]) - 1], places=5
            )
            self.assertAlmostEqual(float(row["learning_rate"]), 0.05, places=7)
            self.assertBetween(float(row["top_5_accuracy"]), 0.0, 1.0)
        shown = [accuracy for accuracy, _ in digit_runs.accuracies(lines)]
        written = [float(row["eval_top_1_accuracy"]) for row in evaluations]
        np.testing.assert_allclose(written, shown, atol=1e-4)
        self.assertEqual({row["eval_own"] for row in evaluations}, {"1"})

    def test_no_row_that_is_never_due(self):
        with self.assertRaisesRegex(ValueError, "every is 0, and must be at least 1"):
            CsvLog(every=0)
