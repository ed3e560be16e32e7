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

# One of the everyday models, by its name.
_EVERYDAY = """
from tests.everyday_models import EVERYDAY

def net():
    return EVERYDAY["{0}"]()[0]

def data(split):
    return EVERYDAY["{0}"]()[1]
"""


class OwnDataOnClusterTest(digit_runs.Runs):
    def setUp(self):
        super().setUp()
        programs.need_private_networks()
        folder = pathlib.Path(self.create_tempdir())
        for split, count in (("train", 48), ("validation", 21), ("short", 48)):
            with tf.io.TFRecordWriter(str(folder / f"{split}.tfrecord")) as records:
                for i in range(count):
                    record = np.array([i, i * i, -i], np.int32)
                    if split == "short" and i == 33:
                        record = record[:2]
                    records.write(record.tobytes())
        mine = folder / "mine.py"
        mine.write_text(_MINE)
        self._files = f"--data_name={mine}:files"

    @parameterized.parameters(False, True)
    def test_files_and_arrays_train_as_one_tower(self, between):
        """An in-graph cluster reads files, and clients also what Python has."""
        # the last batch is short
        flags = [_NET, "--num_warmup_batches=0", "--num_epochs=1.4"]
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

    @parameterized.parameters(
        ("files", r"record 33 of .*short.tfrecord cannot be read"),
        ("damaged", r"source\[33\] failed: KeyError: 'nothing there' \(.*:\d+\)"),
        ("broken", r"worker process \d+ exited with status 7 while it read source"),
    )
    def test_bad_data_ends_every_task(self, data, sentence):
        """In-graph, and in the worker that reads the example of two clients."""
        between = data != "files"
        name = f"--data_name=tests.own_data:{data}"
        flags = [name] if between else [self._files, "--train_split=short"]
        flags += [_NET, "--num_warmup_batches=0", "--num_epochs=3", "--batch_size=2"]
        ends = in_process_cluster.all_ends(
            *flags, data_dir=digit_runs.data_dir(), between=between
        )
        self.assertEqual({status for status, _ in ends.values()}, {1}, ends)
        lines = [line for _, printed in ends.values() for line in printed]
        self.assertRegex("\n".join(lines), f"(?m)^error: from_\\w+: .*{sentence}")
        self.assertNotIn("Traceback (most recent call last):", lines)

    # `between_graph_cluster_test` has all of them, with the clients in one process.
    @parameterized.parameters("sample_weights", "padded_sequences", "generator")
    def test_two_clients_train_everyday_models_as_one_tower(self, model):
        mine = pathlib.Path(self.create_tempdir(), "everyday.py")
        mine.write_text(_EVERYDAY.format(model))
        flags = [f"--model={mine}:net", f"--data_name={mine}:data"]
        # Two steps, and one with 3 of 16 examples.
        flags += ["--num_warmup_batches=0", "--num_epochs=0.5", "--optimizer=sgd"]
        flags.append("--noeval_at_end")
        if model == "padded_sequences":
            flags.append("--class_weight=0.25,3,0,1.5")
        values = []
        for clients in (2, 1):
            self.directory = os.path.join(self.create_tempdir(), "run")
            here = [f"--batch_size={8 // clients}", f"--train_dir={self.directory}"]
            if clients == 2:
                data_dir = digit_runs.data_dir()
                in_process_cluster.ended(*flags, *here, data_dir=data_dir, between=True)
            else:
                here += ["--device=cpu", "--num_gpus=2"]
                with contextlib.redirect_stdout(io.StringIO()):
                    self.assertEqual(train.main(["train", *flags, *here]), 0)
            values.append(self.values())
        self.assertLess(trainer.difference(*values), 1e-5)

    def test_class_weights_in_one_graph(self):
        """The towers of two workers take the steps of as many in one process."""
        weights = ",".join(str(0.5 * number) for number in range(10))
        flags = [f"--model={digit_runs.__file__}:small_model", "--data_name=digits"]
        flags += ["--num_warmup_batches=0", "--num_batches=4", "--noeval_at_end"]
        flags.append(f"--class_weight={weights}")
        data_dir, values = digit_runs.data_dir(), []
        for folder in ("there", "here"):
            self.directory = os.path.join(self.create_tempdir(), folder)
            mine = [*flags, "--batch_size=4", f"--train_dir={self.directory}"]
            if folder == "there":
                in_process_cluster.ended(*mine, data_dir=data_dir, between=False)
            else:
                mine += ["--device=cpu", "--num_gpus=4", f"--data_dir={data_dir}"]
                with contextlib.redirect_stdout(io.StringIO()):
                    self.assertEqual(train.main(["train", *mine]), 0)
            values.append(self.values())
        self.assertLess(trainer.difference(*values), 1e-5)

    def test_an_in_graph_cluster_refuses_what_only_python_has(self):
        flags = ["--ps_hosts=localhost:1", "--worker_hosts=localhost:2,localhost:3"]
        flags += ["--controller_host=localhost:4", "--job_name=controller"]
        for data in ("arrays", "source", "python_in_files"):
            name = f"--data_name=tests.own_data:{data}"
            with contextlib.redirect_stderr(io.StringIO()) as errors:
                status = train.main(["train", _NET, name, "--device=cpu", *flags])
            self.assertEqual(status, 2, errors.getvalue())
            self.assertRegex(errors.getvalue(), "write --replication=between_graph")
