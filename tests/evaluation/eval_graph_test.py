"""Evaluation counts every example once, and finds what numpy finds."""

import dataclasses
import functools
import queue
import threading
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import trainer
from towers.compute.tower import TowerSpec
from towers.data import inputs
from towers.evaluation import eval_graph
from towers.layout import placement
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.optimizer import Update
from towers.variable_update.modes import VARIABLE_UPDATES

v1 = tf.compat.v1

NUM_EXAMPLES = 53
NUM_CLASSES = 7


def _data():
    rng = np.random.default_rng(4)
    images = rng.normal(size=(NUM_EXAMPLES, 3, 3, 2)).astype(np.float32)
    return images, rng.integers(0, NUM_CLASSES, NUM_EXAMPLES)


def _source(training=False):
    return inputs.from_arrays(*_data(), num_classes=NUM_CLASSES, training=training)


def _model():
    def logits(x, nn):
        return nn.dense(nn.dropout(nn.flatten(x), 0.5), nn.num_classes)

    return trainer.model_of(
        logits, name="linear", shape=(3, 3, 2), num_classes=NUM_CLASSES
    )


def _task():
    return TowerSpec(model=_model(), num_classes=NUM_CLASSES, training=False)


def _by_numpy(values, count):
    """Loss and accuracies of the first `count` examples of the stream."""
    numbers = np.arange(count) % NUM_EXAMPLES
    images, labels = _data()
    images, labels = images[numbers].reshape(count, -1), labels[numbers]
    logits = images @ values["logits/dense/kernel"] + values["logits/dense/bias"]
    of_label = np.take_along_axis(logits, labels[:, None], 1)
    better = np.sum(logits > of_label, axis=1)
    entropies = np.log(np.sum(np.exp(logits - of_label), axis=1))
    return {
        "loss": np.mean(entropies),
        "top_1_accuracy": np.mean(better < 1),
        "top_5_accuracy": np.mean(better < 5),
    }


class EvaluateTest(parameterized.TestCase):
    @parameterized.parameters(
        # (towers, batch size, examples): the last step has 1 example, then none of
        # one to three towers; a batch larger than the split; more than the split.
        (1, 4, None),
        (2, 13, None),
        (4, 3, None),
        (3, 9, None),
        (4, 64, None),
        (2, 4, 20),
        (3, 4, 1),
        (2, 8, 106),
    )
    def test_each_example_once(self, towers, batch_size, num_examples):
        self._check(_source(), towers, batch_size, num_examples)

    @parameterized.parameters(1, 2)
    def test_batches_that_wait_on_their_device(self, towers):
        """As on GPUs, where a step that puts none there would stop the next."""
        source = _source()
        with mock.patch.object(
            source, "feed", functools.partial(source.feed, stage=True)
        ):
            # A thread that waits for a batch that never comes cannot be cancelled.
            ends: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

            def check():
                try:
                    self._check(source, towers, 4, None)
                    ends.put(None)
                except BaseException as error:
                    ends.put(error)

            threading.Thread(target=check, daemon=True).start()
            if error := ends.get(timeout=60):
                raise error

    def test_one_of_several_clients_evaluates_alone(self):
        """As the chief does with between-graph replication."""
        self._check(_source(), 2, 4, None, clients=2)

    def _check(self, source, towers, batch_size, num_examples, clients=1):
        where = placement.local(towers, kind="cpu")
        where = dataclasses.replace(where, clients=clients)
        with tf.Graph().as_default():
            mode = VARIABLE_UPDATES["parameter_server"](where, seed=towers)
            built = eval_graph.attach(
                _task(),
                source,
                placement=where,
                mode=mode,
                batch_size=batch_size,
                num_examples=num_examples,
            )
            with v1.Session(config=placement.session_config(where)) as session:
                session.run(v1.global_variables_initializer())
                values = session.run(mode.variables)
                calls = []
                first = eval_graph.run(
                    built, session, 5, progress=lambda *call: calls.append(call)
                )
                second = eval_graph.run(built, session, 6)
                # A variable without an initializer.
                begun = built._replace(feed=built.feed._replace(initializer=None))
                for _ in range(2):
                    third = eval_graph.run(begun, session, 7, follows=True)
                    self.assertEqual(third.means, first.means)
        count = num_examples or NUM_EXAMPLES
        self.assertEqual(first.num_examples, count)
        wanted = _by_numpy(values, count)
        self.assertEqual(set(first.means), set(wanted))
        for name, mean in wanted.items():
            self.assertAlmostEqual(first.means[name], mean, places=5, msg=name)
        self.assertEqual(second.means, first.means)
        self.assertEqual((first.step, second.step), (5, 6))
        steps = -(-count // (towers * batch_size))
        self.assertEqual([done for done, _ in calls], list(range(1, steps + 1)))
        self.assertGreater(first.examples_per_second, 0)

    @parameterized.product(
        variable_update=("parameter_server", "replicated", "staged"),
        ema_decay=(0.0, 0.75),
    )
    def test_in_a_train_graph(self, variable_update, ema_decay):
        """Reads the variables, or their averages; training does not notice."""
        update = Update("sgd", Piecewise((0.1,)), ema_decay=ema_decay)
        options = dict(towers=2, batch_size=4, update=update)
        options["variable_update"] = variable_update
        training = trainer.Trainer(_model(), _source(training=True), **options)
        with training.train.graph.as_default():
            built = eval_graph.attach(
                _task(),
                _source(),
                placement=training.placement,
                mode=eval_graph.AveragedVariables(
                    training.train.mode, training.train.averages
                ),
                batch_size=6,
            )
        training.start()
        read = {}
        for step in (3, 6):
            values = training.steps(step)
            for name in ("logits/dense/kernel", "logits/dense/bias"):
                average = f"{name}/ExponentialMovingAverage"
                self.assertEqual(average in values, bool(ema_decay))
                read[name] = values.get(average, values[name])
            result = eval_graph.run(built, training.session, step)
            for name, mean in _by_numpy(read, NUM_EXAMPLES).items():
                self.assertAlmostEqual(result.means[name], mean, places=5, msg=name)
        if ema_decay:
            gap = np.abs(read["logits/dense/kernel"] - values["logits/dense/kernel"])
            self.assertGreater(np.max(gap), 1e-3)
        other = trainer.Trainer(_model(), _source(training=True), **options).start()
        trainer.assert_same_bits(other.steps(6), values)

    def test_who_is_stopped_after_the_last_batch_has_all(self):
        where = placement.local(1, kind="cpu")
        with tf.Graph().as_default():
            mode = VARIABLE_UPDATES["parameter_server"](where)
            built = eval_graph.attach(
                _task(), _source(), placement=where, mode=mode, batch_size=20
            )
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                asked = []
                totals = eval_graph.run(
                    built, session, 1, stopped=lambda: asked.append(1)
                )
                stopped = eval_graph.run(built, session, 1, stopped=lambda: True)
        self.assertLen(asked, built.num_steps - 1)
        self.assertEqual(totals.num_examples, NUM_EXAMPLES)
        self.assertIsNone(stopped)

    def test_what_was_not_trained(self):
        """A name that is another one in every run of the model's Python."""
        runs = []

        def head(x, nn):
            runs.append(nn.training)
            return nn.flatten(x) * nn.variable(f"scale_{len(runs)}", [])

        model = dataclasses.replace(_model(), blocks=(("head", head),))
        training = trainer.Trainer(model, _source(), towers=1, batch_size=4)
        averaged = eval_graph.AveragedVariables(
            training.train.mode, training.train.averages
        )
        with training.train.graph.as_default():
            with self.assertRaisesRegex(
                ValueError, "'head/scale_2' is asked for in evaluation and not in tr"
            ):
                eval_graph.attach(
                    dataclasses.replace(_task(), model=model),
                    _source(),
                    placement=training.placement,
                    mode=averaged,
                    batch_size=4,
                )

    def test_the_eval_towers_lie_beside_the_training_towers(self):
        training = trainer.Trainer(_model(), _source(), towers=2, batch_size=4)
        with training.train.graph.as_default() as graph:
            eval_graph.attach(
                _task(),
                _source(),
                placement=training.placement,
                mode=training.train.mode,
                batch_size=6,
            )
            variables = len(v1.global_variables())
            for op in graph.get_operations():
                for index in (0, 1):
                    if op.name.startswith(f"evaluation/tower_{index}/"):
                        self.assertEndsWith(op.device, f"CPU:{index}", op.name)
                        self.assertNotIn("gradients", op.name)
            self.assertEqual(variables, len(training.train.saved))

    def assertEndsWith(self, text, end, message):  # noqa: N802 - as unittest has it
        self.assertTrue(text.endswith(end), f"{message}: {text}")
