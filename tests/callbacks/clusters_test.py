"""Callbacks on a cluster act as in one process."""

import csv
import os

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import digit_runs, in_process_cluster
from towers.callbacks import CsvLog, GradientNorms, KeepBest, ReduceRate
from towers.checkpoints import checkpoint

_SETTINGS = {
    "num_batches": 8,
    "num_warmup_batches": 0,
    "batch_size": 16,
    "eval_during_training_every_n_steps": 2,
    "data_name": "digits",
}


def made(train):
    """The callbacks; the rate is halved after each evaluation but the first."""
    assert train.placement.client == 0
    return [
        CsvLog(every=2),
        GradientNorms(every=2),
        KeepBest("top_1_accuracy", best="max"),
        ReduceRate("loss", best="min", patience=1, factor=0.5, min_change=99.0),
        tf.compat.v1.train.StopAtStepHook(last_step=7),
    ]


def _rows(folder, name):
    with open(os.path.join(folder, name), newline="") as file:
        return [
            {column: float(value or "nan") for column, value in row.items()}
            for row in csv.DictReader(file)
        ]


class ClustersTest(digit_runs.Runs):
    @parameterized.parameters("in_graph", "between_graph")
    def test_as_in_one_process(self, replication):
        flags = [f"--{name}={value}" for name, value in _SETTINGS.items()]
        in_process_cluster.ended(
            *flags,
            "--num_gpus=1",
            "--model=tests.digit_runs:small_model",
            f"--callbacks={__file__}:made",
            f"--train_dir={self.directory}",
            data_dir=digit_runs.data_dir(),
            between=replication == "between_graph",
        )
        there, folder = self.directory, self.create_tempdir().full_path
        values = self.values()
        self.directory = folder
        self.run_flags(num_gpus=2, callbacks=made, train_dir=folder, **_SETTINGS)
        self.assertEqual(values["callbacks/rate"].tolist(), [0.25, 0.0])
        for name, value in self.values().items():
            np.testing.assert_allclose(values[name], value, 1e-4, 1e-5, name)
        best = [checkpoint.latest(f"{path}/best") for path in (there, folder)]
        self.assertEqual(*map(os.path.basename, best))
        for name in ("log.csv", "gradient_norms.csv"):
            pairs = zip(_rows(there, name), _rows(folder, name), strict=True)
            for row, wanted in pairs:
                self.assertEqual([*row], [*wanted])
                np.testing.assert_allclose(
                    [*row.values()], [*wanted.values()], 1e-3, 1e-4, name
                )
