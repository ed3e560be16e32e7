"""Whole runs in this process, from settings to checkpoints, on the digits."""

import atexit
import functools
import io
import os
import re
import shutil
import tempfile
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from flags import config
from tests.processes.digits_model import small_model
from towers import planning, run
from towers.checkpoints import checkpoint
from towers.cluster.sessions import settle_process
from towers.evaluation import watch
from towers.session import progress

v1 = tf.compat.v1


@functools.cache
def data_dir() -> str:
    """The folder in which this process prepares the digits; removed at its end."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    return folder


class Runs(parameterized.TestCase):
    """A test case with a `--train_dir`, `directory`."""

    def setUp(self):
        super().setUp()
        self.directory = os.path.join(self.create_tempdir(), "train")

    def run_flags(
        self, *, status=0, stream=None, get_model=None, callbacks=(), **settings
    ):
        """Trains, or evaluates with `eval`, in this process.

        Args:
          status: that the run must end with.
          stream: for what it prints.
          get_model: name -> model; `small_model` when None.
          callbacks: the user's.
          **settings: as `config.make` takes them.

        Returns:
          The lines that it printed.
        """
        stream = stream or io.StringIO()
        settings = {"device": "cpu", "data_name": "digits", **settings}
        get_model = get_model or (lambda name: small_model())
        with mock.patch.dict(os.environ, {"TFDS_DATA_DIR": data_dir()}):
            run_config = config.make(**settings)
            where = planning.placement_of(run_config)
            settle_process(where, run_config.devices)
            plan = planning.make(run_config, get_model, callbacks=callbacks)
            act = (
                watch.evaluate_checkpoints if plan.config.evaluation.eval else run.train
            )
            result = act(plan, progress.Console(stream))
        self.assertEqual(result, status)
        return stream.getvalue().splitlines()

    def token(self, name: str = "token") -> str:
        """The path of a file with a cluster token that begins as it is named."""
        file = self.create_tempfile(name, f"the {name} of this cluster")
        os.chmod(file, 0o600)
        return file.full_path

    def steps(self) -> list[int]:
        """The global steps of the checkpoints, oldest first."""
        paths = checkpoint.all_paths(self.directory)
        return [int(path.rsplit("-", 1)[1]) for path in paths]

    def values(self, step: int | None = None, name: str = "") -> dict[str, np.ndarray]:
        """Variables in the checkpoint of a step, or in the newest.

        Args:
          step: of the checkpoint.
          name: of a folder of the directory, which has the checkpoint.
        """
        folder = os.path.join(self.directory, name)
        path = checkpoint.latest(folder)
        if step is not None:
            path = os.path.join(folder, f"model.ckpt-{step}")
        reader = tf.train.load_checkpoint(path)
        return {n: reader.get_tensor(n) for n in reader.get_variable_to_shape_map()}


class ForwardRuns(Runs):
    """A test case of runs of the forward pass alone."""

    def forward(self, **flags) -> list[str]:
        """Runs 20 steps of two towers in this process; returns the printed lines."""
        flags = {"num_gpus": 2, "batch_size": 8, "num_batches": 20, **flags}
        return self.run_flags(forward_only=True, **flags)


def shown(lines: list[str]) -> list[tuple[str, ...]]:
    """(step, loss, accuracies) of each step line."""
    fields = [line.split("\t") for line in lines if "images/sec: " in line]
    # not the line of the total
    return [(row[0], *row[2:]) for row in fields if len(row) > 1]


def accuracies(lines: list[str]) -> list[tuple[float, int]]:
    """(top-1 accuracy, number of examples) of each evaluation, as the lines say."""
    pattern = r"Accuracy @ 1 = (.*) Accuracy @ 5 = .* \[(\d+) examples\]"
    matches = [re.fullmatch(pattern, line) for line in lines]
    return [(float(m.group(1)), int(m.group(2))) for m in matches if m]


def events(directory: str) -> list[tuple[int, str, float]]:
    """(step, tag, value) of the scalar summaries in a folder, sorted."""
    return sorted(
        (event.step, value.tag, value.simple_value)
        for path in tf.io.gfile.glob(f"{directory}/events*")
        for event in v1.train.summary_iterator(path)
        for value in event.summary.value
    )
