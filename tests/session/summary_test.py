"""Summaries hold what the step computed, under plain names."""

import contextlib
import dataclasses
import io
import os
import resource
import shutil
import time
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from models.model import softmax_cross_entropy
from tests import trainer
from towers.callbacks.stop_on_nan import NanLossError
from towers.compute import sufficient_factors
from towers.errors.side_outputs import SideOutputs
from towers.layout.stages import Pipeline
from towers.session import summary, traffic

v1 = tf.compat.v1

SCALARS = {"loss", "total_loss", "learning_rate", "top_1_accuracy", "top_5_accuracy"}
VARIABLES = {f"{b}/dense/{v}" for b in ("hidden", "logits") for v in ("kernel", "bias")}


def _summary(session, text):
    return {v.tag: v for v in v1.Summary.FromString(session.run(text)).value}


def _tensors(tower):
    return [tensor for summary in tower.summaries for tensor in summary.inputs]


class SummaryTest(parameterized.TestCase, tf.test.TestCase):
    def _build(self, verbosity, model=None, source=None, **options):
        training = trainer.Trainer(model, source, towers=2, batch_size=6, **options)
        with training.train.graph.as_default():
            text = summary.build(training.train, verbosity)
        return training.start(), text

    def test_nothing(self):
        self.assertIsNone(self._build(0)[1])

    def test_scalars(self):
        training, text = self._build(1)
        train = training.train
        numbers = {
            "loss": train.loss,
            "total_loss": train.total_loss,
            "learning_rate": train.learning_rate,
            **train.metrics,
        }
        wanted, serialized = training.session.run([numbers, text])
        values = v1.Summary.FromString(serialized).value
        self.assertEqual({v.tag: v.simple_value for v in values}, wanted)
        self.assertEqual(set(wanted), SCALARS)
        self.assertGreater(wanted["total_loss"], wanted["loss"])

    @parameterized.parameters(False, True)
    def test_a_histogram_of_all_gradients(self, as_factors):
        with mock.patch.object(sufficient_factors, "_are_less", lambda *_: as_factors):
            training, text = self._build(2)
        gradients = list(
            map(sufficient_factors.dense, training.train.towers[0].gradients)
        )
        wanted, serialized = training.session.run([gradients, text])
        histograms = {v.tag: v.histo for v in v1.Summary.FromString(serialized).value}
        self.assertEqual(set(histograms), SCALARS | {"gradients"})
        joined = np.concatenate([gradient.ravel() for gradient in wanted])
        self.assertEqual(histograms["gradients"].num, len(joined))
        self.assertAllClose(
            histograms["gradients"].sum, np.sum(joined, dtype=np.float64)
        )
        self.assertAllClose(histograms["gradients"].min, np.min(joined))

    def test_gradients_of_two_dtypes_that_are_not_all_finite(self):
        training, text = self._build(3, trainer.normed_model(), dtype=tf.bfloat16)
        summary, gradients = (
            _summary(training.session, text),
            training.train.towers[0].gradients,
        )
        self.assertEqual({g.dtype for g in gradients}, {tf.bfloat16, tf.float32})
        total = sum(gradient.shape.num_elements() for gradient in gradients)
        self.assertEqual(summary["gradients"].histo.num, total)
        bias = training.train.mode.held("block/dense/bias")
        with training.train.graph.as_default():
            training.session.run(
                bias.assign([float("nan"), 0.0, 0.0, 0.0, float("inf")])
            )
        summary = _summary(training.session, text)
        self.assertEqual(summary["variables/block/dense/bias"].histo.num, 3)
        self.assertEqual(summary["gradients/block/dense/bias"].histo.num, 0)

    def test_a_scalar_has_a_histogram(self):
        def scaled(x, nn):
            return nn.dense(nn.flatten(x) * nn.variable("scale", []), nn.num_classes)

        model = dataclasses.replace(trainer.dense_model(), blocks=(("head", scaled),))
        training, text = self._build(3, model)
        summary = _summary(training.session, text)
        for tag in ("variables/head/scale", "gradients/head/scale"):
            self.assertEqual(summary[tag].histo.num, 1)

    def test_images_and_a_histogram_of_each(self):
        training, text = self._build(3)
        values = training.values()
        summary = _summary(training.session, text)
        histograms = {f"{k}/{n}" for k in ("gradients", "variables") for n in VARIABLES}
        images = {f"images/image/{index}" for index in range(3)}
        self.assertEqual(set(summary), SCALARS | {"gradients"} | histograms | images)
        for name in VARIABLES:
            histogram = summary[f"variables/{name}"].histo
            self.assertAllClose(histogram.max, np.max(values[name]))
            self.assertEqual(histogram.num, values[name].size)
            self.assertEqual(summary[f"gradients/{name}"].histo.num, values[name].size)
        image = summary["images/image/0"].image
        self.assertEqual((image.height, image.width, image.colorspace), (4, 4, 1))

    def test_images_with_two_channels_and_sparse_or_missing_gradients(self):
        def gather(x, nn):
            nn.variable("unused", [2])
            table = nn.variable("table", [10, 3])
            return tf.gather(table, tf.cast(tf.abs(x[:, 0, 0, 0] * 9), tf.int32))

        model = trainer.model_of(gather, name="sparse", shape=(4, 4, 2), num_classes=3)
        source = trainer.random_source(shape=(4, 4, 2), num_classes=3)
        training, text = self._build(3, model, source)
        summary = _summary(training.session, text)
        names = {"gradients", "gradients/gather/table", "variables/gather/table"}
        self.assertEqual(set(summary), SCALARS | names)
        self.assertEqual(summary["gradients/gather/table"].histo.num, 30)

    @parameterized.parameters(dict(), dict(dtype=tf.bfloat16), dict(batch_norm="sync"))
    def test_what_the_model_makes(self, **options):
        """Of tower 0, by its own tags, which meet those of the run or each other."""

        def block(x, nn):
            v1.summary.image("pixels", tf.cast(x, tf.float32), max_outputs=2)
            x = nn.batch_norm(nn.dense(nn.flatten(x), 7))
            v1.summary.histogram("activations", x)
            v1.summary.scalar("level", tf.reduce_mean(x))
            table = nn.variable("table", [3, 7])
            v1.summary.histogram("table", table)
            return x + tf.gather(table, [0] * x.shape[0])

        def loss(outputs, labels):
            values = softmax_cross_entropy(outputs, labels)
            for _ in range(2):
                v1.summary.scalar("loss", tf.reduce_sum(values))
            return values

        def metrics(outputs, labels):
            v1.summary.scalar("largest", tf.reduce_max(outputs))
            return {"one": tf.ones([6])}

        model = trainer.model_of(block, loss=loss, metrics=metrics)
        training, text = self._build(1, model, **options)
        tower, step = training.train.towers[0], training.train.train_op
        summary_values, shown = training.session.run(
            [text, [training.inputs[0] for training in tower.summaries]]
        )
        shown = dict(zip([training.tag for training in tower.summaries], shown))
        summary_values = {v.tag: v for v in v1.Summary.FromString(summary_values).value}
        tags = {"block/level", "loss_1", "loss_1_1", "largest"}
        tags |= {"block/activations", "block/table"}
        tags |= {f"block/pixels/image/{k}" for k in (0, 1)}
        run = {"loss", "total_loss", "learning_rate", "one"}
        self.assertEqual(set(summary_values), tags | run)
        self.assertEqual(summary_values["block/activations"].histo.num, 42)
        self.assertEqual(summary_values["block/table"].histo.num, 21)
        self.assertAllClose(
            summary_values["block/level"].simple_value, shown["block/level"]
        )
        self.assertAllClose(summary_values["loss_1"].simple_value, shown["loss"])
        self.assertAllClose(summary_values["largest"].simple_value, shown["largest"])
        self.assertEqual(summary_values["block/pixels/image/1"].image.height, 4)
        # A step without summaries computes none of their tensors.
        names = {op.name for op in traffic.reached(step)}
        self.assertNoCommonElements(names, [t.op.name for t in _tensors(tower)])
        self.assertNotEmpty(_tensors(training.train.towers[1]))

    @parameterized.parameters(
        dict(accumulate_steps=2),
        dict(xla_compile=True),
        dict(pipeline=Pipeline(stages=2, micro_batches=2)),
    )
    def test_of_towers_that_have_none(self, **options):
        def first(x, nn):
            x = nn.flatten(x)
            v1.summary.scalar("level", tf.reduce_mean(x))
            return x

        def second(x, nn):
            v1.summary.scalar("level", tf.reduce_mean(x))
            return nn.dense(x, nn.num_classes)

        training, text = self._build(1, trainer.model_of(first, second), **options)
        self.assertEqual(set(_summary(training.session, text)), SCALARS)
        tags = [training.tag for training in training.train.template.summaries]
        self.assertEqual(tags, ["first_1/level", "second/level"])
        self.assertEmpty(training.train.towers[0].summaries)


def _scalars(directory):
    """(file, step, tag, value), in the order of the files' names."""
    return [
        (os.path.basename(path), event.step, value.tag, value.simple_value)
        for path in sorted(tf.io.gfile.glob(f"{directory}/events*"))
        for event in v1.train.summary_iterator(path)
        for value in event.summary.value
    ]


class EventFileTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = os.path.join(self.create_tempdir(), "new")
        self.side = SideOutputs()
        printed = contextlib.redirect_stderr(io.StringIO())
        self.printed = self.enter_context(printed)

    def _limit(self, num_bytes):
        """The most bytes that a file may have; less are written of what is more."""
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))

    def test_can_be_read_while_it_grows(self):
        with tf.Graph().as_default() as graph:
            tf.constant(1.0, name="mine")
        begun = time.time()
        file = summary.EventFile("summaries", self.directory, self.side, graph)
        file.open(3)
        [path] = tf.io.gfile.glob(f"{self.directory}/events.out.tfevents.*")
        for step in (4, 5):
            file.add_evaluation({"loss": step}, {}, step)
            first, second, *others = v1.train.summary_iterator(path)
            self.assertEqual(first.file_version, "brain.Event:2")
            nodes = v1.GraphDef.FromString(second.graph_def).node
            self.assertEqual([node.name for node in nodes], ["mine"])
            self.assertEqual([event.step for event in others], [*range(4, step + 1)])
            self.assertEqual(others[-1].summary.value[0].simple_value, step)
            self.assertBetween(others[-1].wall_time, begun, time.time())
        file.close()
        self.assertNotIn("warning:", self.printed.getvalue())

    def test_is_one_for_all_scalars(self):
        file = summary.EventFile("summaries", self.directory, self.side)
        self.assertFalse(os.path.exists(self.directory))
        file.add_evaluation({"loss": 2.5, "top_1_accuracy": 0.25}, {}, 7)
        file.add_evaluation({"loss": 1.5}, {}, 9)
        [name] = os.listdir(self.directory)
        self.assertEqual(
            _scalars(self.directory),
            [
                (name, 7, "loss", 2.5),
                (name, 7, "top_1_accuracy", 0.25),
                (name, 9, "loss", 1.5),
            ],
        )

    def test_a_folder_that_cannot_be_made(self):
        file = summary.EventFile("summaries", "/proc/nope", self.side)
        for step in (7, 8, 9):
            file.add_evaluation({"loss": 2.5}, {}, step)
        self.side.report()
        first, last = self.printed.getvalue().splitlines()
        self.assertRegex(first, "^warning: summaries cannot be written to /proc/nope ")
        self.assertRegex(last, "^warning: .* /proc/nope: 3 writes failed$")

    def test_a_folder_that_goes_away_is_made_again(self):
        file = summary.EventFile("summaries", self.directory, self.side)
        file.add_evaluation({"loss": 2.5}, {}, 7)
        shutil.rmtree(self.directory)
        file.add_evaluation({"loss": 1.5}, {}, 9)
        self.assertNotIn("warning:", self.printed.getvalue())
        self.assertEqual([step for _, step, *_ in _scalars(self.directory)], [9])

    def test_a_full_disk_leaves_whole_events_and_has_room_again(self):
        file = summary.EventFile("summaries", self.directory, self.side)
        file.add_evaluation({"loss": 1.0}, {}, 1)
        self.addCleanup(self._limit, resource.getrlimit(resource.RLIMIT_FSIZE)[0])
        self._limit(100)  # the file ends in the middle of the second event
        file.add_evaluation({"loss": 2.0}, {}, 2)
        self._limit(10)  # too little for the header of another file
        file.add_evaluation({"loss": 3.0}, {}, 3)
        self.assertLen(os.listdir(self.directory), 1)
        self._limit(resource.getrlimit(resource.RLIMIT_FSIZE)[1])
        for step in (4, 5):
            file.add_evaluation({"loss": step}, {}, step)
        self.assertLen(self.printed.getvalue().splitlines(), 1)
        self.assertEqual([step for _, step, *_ in _scalars(self.directory)], [1, 4, 5])
        self.assertLen(os.listdir(self.directory), 2)


def _looping():
    return trainer.Trainer(towers=2, batch_size=4).add_loop().start()


def _summaries(training, merged, directory, steps, side=None):
    """The hook that writes them."""
    file = summary.EventFile(
        "summaries", directory, side or SideOutputs(), training.train.graph
    )
    return summary.WriteSummaries(training.train, merged, file, steps=steps)


class WriteSummariesTest(tf.test.TestCase):
    def _events(self, directory):
        events = {}
        for path in tf.io.gfile.glob(f"{directory}/events*"):
            for event in v1.train.summary_iterator(path):
                for value in event.summary.value:
                    events.setdefault(event.step, {})[value.tag] = value.simple_value
                if event.HasField("graph_def"):
                    events["nodes"] = len(v1.GraphDef.FromString(event.graph_def).node)
        return events

    def test_losses_of_the_right_steps(self):
        other = _looping()
        losses = [None]
        for _ in range(11):
            losses.append(other.session.run([other.train.loss, other.train.step])[0])
        for begin, every, k, steps in (
            (0, 4, 1, [4, 8]),
            (0, 4, 50, [4, 8]),
            (3, 4, 1, [4, 8]),
            (4, 1, 50, [5, 6, 7, 8, 9, 10, 11]),
        ):
            with self.subTest(begin=begin, every=every, k=k):
                training = _looping()
                training.steps(begin)
                directory = self.create_tempdir().full_path
                with training.train.graph.as_default():
                    merged = summary.build(training.train, 1)
                training.train.graph.finalize()
                hook = _summaries(training, merged, directory, every)
                training.run([hook], 11, k)
                events = self._events(directory)
                nodes = len(training.train.graph.get_operations())
                self.assertEqual(events.pop("nodes"), nodes)
                self.assertEqual(list(events), steps)
                for step, values in events.items():
                    self.assertAlmostEqual(values["loss"], losses[step], places=6)
                    self.assertAlmostEqual(values["learning_rate"], 0.05)

    def test_what_was_written_before_a_run_breaks_off_can_be_read(self):
        training = _looping()
        directory = self.create_tempdir().full_path
        with training.train.graph.as_default():
            merged = summary.build(training.train, 1)

        def fail():
            raise NanLossError("the loss of step 5 is nan", 5, "do")

        around = [_summaries(training, merged, directory, 2), trainer.Do(fail, at=5)]
        with self.assertRaises(NanLossError):
            training.run(around, 9)
        self.assertEqual([*self._events(directory)], ["nodes", 2, 4])
