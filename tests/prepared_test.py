"""A run before its session: what its graph has, and what is refused."""

import dataclasses
import io
import os
import shutil
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

import models
from flags import config
from tests import digit_runs
from towers import planning, prepared
from towers.session import progress
from towers.session.progress import Console


def _prepare(get_model=models.get, **flags):
    settings = {"model": "mlp", "data_name": "synthetic", "batch_size": 2, **flags}
    stream = io.StringIO()
    with mock.patch.dict(os.environ, {"TFDS_DATA_DIR": digit_runs.data_dir()}):
        plan = planning.make(config.make(device="cpu", **settings), get_model)
    return prepared.prepare(plan, Console(stream)), stream.getvalue()


class PrepareTest(parameterized.TestCase):
    def test_nothing_that_was_not_asked_for(self):
        ready, text = _prepare(num_gpus=2)
        for part in (
            ready.checkpoints,
            ready.evaluator,
            ready.summary,
            ready.replicas,
        ):
            self.assertIsNone(part)
        self.assertIsNone(ready.built.loop)
        self.assertTrue(ready.built.graph.finalized)
        self.assertStartsWith(text, "Generating training model\nModel: ")
        self.assertEndsWith(text, "=" * 10 + "\n")

    @parameterized.parameters(
        ("evaluator", dict(data_name="digits", eval_at_end=True)),
        ("checkpoints", dict(train_dir="x")),
        ("summary", dict(train_dir="x", summary_verbosity=1)),
        ("replicas", dict(variable_update="replicated", check_replicas_every=2)),
    )
    def test_what_a_flag_asks_for(self, name, flags):
        if "train_dir" in flags:
            flags = {**flags, "train_dir": self.create_tempdir().full_path}
        ready, _ = _prepare(num_gpus=2, **flags)
        self.assertIsNotNone(getattr(ready, name))
        with self.assertRaises(RuntimeError):  # preparing finalizes the graph
            with ready.built.graph.as_default():
                tf.constant(1)

    def test_says_that_summaries_of_a_model_are_not_written(self):
        def get(name):
            def noted(x, nn):
                tf.compat.v1.summary.scalar("mean", tf.reduce_mean(x))
                return x

            model = models.get(name)
            return dataclasses.replace(model, blocks=(("noted", noted), *model.blocks))

        line = "tf.compat.v1.summary is not written with stages, micro-batches, "
        folder = dict(train_dir=self.create_tempdir().full_path, summary_verbosity=1)
        for flags, said in (
            (folder, False),
            (dict(num_micro_batches=2), False),
            (dict(num_micro_batches=2, **folder), True),
            (dict(accumulate_steps=2, **folder), True),
        ):
            _, text = _prepare(get, **flags)
            self.assertEqual(line in text, said)

    def test_a_disk_without_room_for_checkpoints(self):
        size = 4 * 2 * 199_210  # mlp's variables and momenta, without counters
        usage = mock.Mock()
        for count, flags in (
            (1, {}),  # one checkpoint, at the end
            (4, dict(save_model_steps=1, max_ckpts_to_keep=3)),
            (6, dict(save_model_secs=1)),
            (2, dict(save_model_secs=1, max_ckpts_to_keep=0)),
        ):
            directory = self.create_tempdir().full_path
            with (
                self.subTest(**flags),
                mock.patch.object(shutil, "disk_usage", return_value=usage),
            ):
                usage.free = count * size
                with self.assertRaisesRegex(ValueError, "^train_dir=.*MB are needed"):
                    _prepare(train_dir=directory, **flags)
                usage.free += count * 100
                _prepare(train_dir=directory, **flags)

    def test_steps_inside_the_graph(self):
        ready, _ = _prepare(steps_per_loop=4)
        self.assertIsNotNone(ready.built.loop)

    def test_speeds_count_what_the_model_reads(self):
        for model, unit in (("mlp", ("images", 1)), ("lstm_lm", ("tokens", 20))):
            ready, _ = _prepare(model=model)
            shown = progress.Progress.of(
                ready.plan, ready.built, ready.console, ready.log
            )
            self.assertEqual(shown.unit, unit)

    def test_a_goal_that_the_model_does_not_measure(self):
        flags = dict(model="lstm_lm", data_name="shakespeare")
        flags["eval_during_training_every_n_steps"] = 1
        log = os.path.join(self.create_tempdir(), "log")
        with self.assertRaisesRegex(ValueError, "has no accuracy, only"):
            _prepare(**flags, stop_at_top_1_accuracy=0.5, benchmark_log_dir=log)
        self.assertFalse(os.path.exists(log))

    @parameterized.parameters(
        ("graph.pbtxt", b"node {"), ("graph.svg", b"<svg "), ("graph.pb", b"")
    )
    def test_the_graph_in_a_file(self, name, begin):
        path = os.path.join(self.create_tempdir(), "folder", name)
        ready, _ = _prepare(num_gpus=2, graph_file=path)
        with open(path, "rb") as file:
            text = file.read()
        self.assertStartsWith(text, begin)
        if name.endswith("pb"):
            nodes = tf.compat.v1.GraphDef.FromString(text).node
            self.assertLen(nodes, len(ready.built.graph.as_graph_def().node))
