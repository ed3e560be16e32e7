"""A step's losses, statistics, averages and counters, by numpy."""

import dataclasses
import functools
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from models.model import Model
from tests import trainer
from towers.compute import nodes
from towers.data import inputs
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.optimizer import Update


def _normed_model() -> Model:
    def normed(x, nn):
        return nn.batch_norm(nn.flatten(x)[:, None, None, :], momentum=0.75)

    def logits(x, nn):
        return nn.dense(nn.flatten(x), nn.num_classes)

    return trainer.model_of(normed, logits, name="normed", shape=(2, 2, 1))


def _needed_by(tensor: tf.Tensor) -> set[str]:
    """The types of all operations that run for a tensor."""
    waiting, seen = [tensor.op], set()
    while waiting:
        op = waiting.pop()
        if op not in seen:
            seen.add(op)
            waiting += [
                *op.control_inputs,
                *(input_tensor.op for input_tensor in op.inputs),
            ]
    return {op.type for op in seen}


class StepsTest(parameterized.TestCase):
    @parameterized.parameters("parameter_server", "replicated", "relaxed")
    def test_who_fetches_the_loss_alone_fetches_a_batch(self, mode):
        """On GPUs, where the next one would wait for it forever."""
        source = trainer.random_source()
        with mock.patch.object(
            source, "feed", functools.partial(source.feed, stage=True)
        ):
            training = trainer.Trainer(
                trainer.dense_model(), source, towers=1, variable_update=mode
            )
        for fetched in (training.train.loss, *training.train.metrics.values()):
            self.assertContainsSubset({"Unstage", "Stage"}, _needed_by(fetched))

    @parameterized.parameters(
        ("parameter_server", 2),
        ("replicated", 2),
        ("independent", 1),  # the model that is saved is the first tower's
        ("parameter_server", 1, "first_tower"),
        ("replicated", 1, "first_tower"),
    )
    def test_moving_averages_follow_the_mean_of_the_towers_statistics(
        self, mode, count, averages="all_towers"
    ):
        images = np.arange(32, dtype=np.float32).reshape(8, 2, 2, 1)
        labels = np.zeros(8, int)
        source = inputs.from_arrays(images, labels, num_classes=5, training=False)
        training = trainer.Trainer(
            _normed_model(),
            source,
            towers=2,
            batch_size=4,
            variable_update=mode,
            batch_norm_averages=averages,
        ).start()
        values = training.steps(1)
        halves = images.reshape(2, 4, 4)[:count]
        mean = halves.mean(axis=(0, 1))
        variance = halves.var(axis=1, ddof=1).mean(axis=0)
        np.testing.assert_allclose(
            values["normed/batch_norm/moving_mean"], 0.25 * mean, rtol=1e-6
        )
        np.testing.assert_allclose(
            values["normed/batch_norm/moving_variance"],
            0.75 + 0.25 * variance,
            rtol=1e-5,
        )

    def test_loss_and_metrics_are_means_over_the_examples_that_count(self):
        training = trainer.Trainer(
            trainer.dense_model(),
            trainer.random_source(num_examples=10),
            towers=2,
            batch_size=4,
            update=dataclasses.replace(
                trainer.MOMENTUM, learning_rate=Piecewise((0.0,))
            ),
            limit=11,
        ).start()
        losses = []
        for _ in range(2):
            fetched = [
                training.train.loss,
                training.train.total_loss,
                training.train.step,
            ]
            fetched += [tower.loss for tower in training.train.towers]
            loss, total, step, *shares = training.session.run(fetched)
            self.assertAlmostEqual(sum(shares), loss, places=5)
            self.assertGreater(total, loss)
            losses.append((step, *shares))
        self.assertEqual([step for step, *_ in losses], [1, 2])
        self.assertEqual(losses[1][2], 0)  # three examples: the second tower has none
        self.assertEqual(training.values()["position"], 11)

    def test_a_step_beyond_the_last_example_changes_nothing(self):
        training = trainer.Trainer(
            towers=2, batch_size=4, update=Update("sgd", Piecewise((0.5,))), limit=8
        ).start()
        first, second = training.steps(1), training.steps(2)
        self.assertEqual((first["position"], second["position"]), (8, 8))
        for name in set(first) - {"global_step"}:
            np.testing.assert_array_equal(second[name], first[name])

    def test_a_tower_that_learns_alone_has_the_mean_of_its_own_examples(self):
        options = dict(limit=6, update=Update("sgd", Piecewise((0.0,))))
        model, source = trainer.dense_model(), trainer.random_source()
        apart = trainer.Trainer(
            model,
            source,
            towers=2,
            batch_size=4,
            variable_update="independent",
            **options,
        ).start()
        joined = trainer.Trainer(model, source, batch_size=8, **options).start()
        losses = apart.session.run([tower.loss for tower in apart.train.towers])
        loss = joined.session.run(joined.train.loss)
        self.assertAlmostEqual((4 * losses[0] + 2 * losses[1]) / 6, loss, places=5)

    def test_the_penalty_is_that_of_the_values_that_the_step_begins_with(self):
        update = Update("sgd", Piecewise((0.5,)), weight_decay=0.5)
        training = trainer.Trainer(update=update).start()
        for _ in range(20):
            values = training.values().values()
            squares = sum(np.sum(v**2) for v in values if v.dtype == np.float32)
            penalty, _ = training.session.run(
                [training.train.penalty, training.train.step]
            )
            np.testing.assert_allclose(penalty, 0.25 * squares, rtol=1e-5)

    def test_the_learning_rate_goes_by_the_position_in_the_stream(self):
        rate = Piecewise((0.5, 0.25, 0.125), (0.5, 1.0))
        training = trainer.Trainer(
            trainer.dense_model(),
            trainer.random_source(num_examples=64),
            towers=2,
            batch_size=4,
            update=Update("sgd", rate),
        ).start()
        for steps, wanted in ((0, 0.5), (3, 0.5), (4, 0.25), (9, 0.125)):
            training.steps(steps)
            self.assertEqual(training.session.run(training.train.learning_rate), wanted)

    def test_the_position_is_read_before_it_moves_on(self):
        training = trainer.Trainer()
        handle = training.train.saved["position"].handle
        moves, reads = (
            [op for op in handle.consumers() if op.type == kind]
            for kind in ("AssignAddVariableOp", "ReadVariableOp")
        )
        [move] = moves
        known = {node.name: node for node in training.train.graph.as_graph_def().node}
        needed = nodes.needed_by(known, [move.name])
        rates = nodes.needed_by(known, [training.train.learning_rate.op.name])
        self.assertNotEmpty({read.name for read in reads} & needed & rates)

    def test_the_position_of_a_longer_run_stays(self):
        training = trainer.Trainer(limit=11).start()
        position = training.train.saved["position"]
        start = position.initializer
        training.session.run(start, {start.inputs[1]: 20})
        training.steps(1)
        self.assertEqual(training.session.run(position), 20)

    @parameterized.parameters((0.5, 0.1), (0.05, 0.05))
    def test_moving_averages_of_variables(self, decay, used):
        """At step 0 TensorFlow's decay is at most (1 + 0) / (10 + 0)."""
        training = trainer.Trainer(
            update=dataclasses.replace(trainer.MOMENTUM, ema_decay=decay)
        ).start()
        before = training.values()
        after = training.steps(1)
        name = "logits/dense/kernel"
        np.testing.assert_allclose(
            after[f"{name}/ExponentialMovingAverage"],
            used * before[name] + (1 - used) * after[name],
            rtol=1e-5,
            atol=1e-6,
        )
