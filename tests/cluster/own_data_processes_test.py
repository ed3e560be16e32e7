"""Data of the user's on clusters of real processes: what each kind of cluster reads."""

import contextlib
import io
import os
import pathlib

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import digit_runs, in_process_cluster, trainer
from tests.processes import programs
from towers import train

_NET = "--model=tests.own_data:net"
_ARRAYS = "--data_name=tests.own_data:arrays"

# The examples of `own_data.arrays`, in records.
_MINE = """
import pathlib

import tensorflow as tf

from towers.data import from_files

def parse(record):
    numbers = tf.ensure_shape(tf.io.decode_raw(record, tf.int32), [3])
    n = tf.cast(numbers[2], tf.int16)
    return {"i": tf.cast(numbers[:2], tf.float32), "n": n}, numbers[0]

def files(split):
    return from_files([pathlib.Path(__file__).with_name(f"{split}.tfrecord")], parse)
"""


class OwnDataOnClusterTest(digit_runs.Runs):
    def setUp(self):
        super().setUp()
        if not programs.have_private_networks():
            self.skipTest("this system has no private networks")
        folder = pathlib.Path(self.create_tempdir())
        for split, count in (("train", 48), ("validation", 21)):
            with tf.io.TFRecordWriter(str(folder / f"{split}.tfrecord")) as records:
                for i in range(count):
                    record = np.array([i, i * i, -i], np.int32)
                    records.write(record.tobytes())
        mine = folder / "mine.py"
        mine.write_text(_MINE)
        self._files = f"--data_name={mine}:files"

    @parameterized.parameters(False, True)
    def test_files_and_arrays_train_as_one_tower(self, between):
        """An in-graph cluster reads files, and clients also what Python has."""
        flags = [_NET, "--num_warmup_batches=0", "--num_epochs=1.4"]  # a short batch
        values = []
        data = (self._files, _ARRAYS) if between else (self._files,)
        for name in data:
            self.directory = os.path.join(self.create_tempdir(), "run")
            here = [*flags, name, "--batch_size=2", f"--train_dir={self.directory}"]
            in_process_cluster.ended(
                *here, data_dir=digit_runs.data_dir(), between=between
            )
            values.append(self.values())
        self.directory = os.path.join(self.create_tempdir(), "alone")
        here = [*flags, _ARRAYS, "--batch_size=8", f"--train_dir={self.directory}"]
        with contextlib.redirect_stdout(io.StringIO()):
            status = train.main(["train", *here, "--device=cpu"])
        self.assertEqual(status, 0)
        for there in values:
            self.assertLess(trainer.difference(self.values(), there), 1e-5)

    def test_an_in_graph_cluster_refuses_what_only_python_has(self):
        flags = ["--ps_hosts=localhost:1", "--worker_hosts=localhost:2,localhost:3"]
        flags += ["--controller_host=localhost:4", "--job_name=controller"]
        for data in ("arrays", "source", "python_in_files"):
            name = f"--data_name=tests.own_data:{data}"
            with contextlib.redirect_stderr(io.StringIO()) as errors:
                status = train.main(["train", _NET, name, "--device=cpu", *flags])
            self.assertEqual(status, 2, errors.getvalue())
            self.assertRegex(errors.getvalue(), "write --replication=between_graph")
