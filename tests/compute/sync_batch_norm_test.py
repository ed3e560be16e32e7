"""Batch norm over several batches equals that over the joined batch."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from models.model import Model
from tests import trainer
from towers.compute import sync_batch_norm
from towers.compute.sync_batch_norm import SharedStatistics, StatisticsExchanges

v1 = tf.compat.v1


def _batches(count=3, channels=4, offset=1e3):
    """Batches of 8 rows, whose means are large beside their deviations."""
    rng = np.random.default_rng(0)
    return rng.normal(offset, 1.0, [count, 8, channels]).astype("f4")


class JoinsTest(parameterized.TestCase):
    def test_moments_are_those_of_all_rows(self):
        batches = _batches()
        rows = batches.astype("f8").reshape(-1, 4)
        parts = [
            np.stack([b.mean(0), b.astype("f8").var(0)]).astype("f4") for b in batches
        ]
        with tf.Graph().as_default(), v1.Session() as session:
            mean, variance = session.run(
                sync_batch_norm.JOINS["moments"]([tf.constant(part) for part in parts])
            )
        np.testing.assert_allclose(mean, rows.mean(0), rtol=1e-6)
        # With means of 1000, the difference of squares would have no digit of variances
        # of 1.
        np.testing.assert_allclose(variance, rows.var(0), rtol=1e-3)

    def test_a_mean(self):
        with tf.Graph().as_default(), v1.Session() as session:
            means = session.run(
                sync_batch_norm.JOINS["mean"](
                    [tf.constant([1.0, 2.0]), tf.constant([3.0, 6.0])]
                )
            )
        self.assertEqual(means.tolist(), [2.0, 4.0])

    @parameterized.parameters(
        ("micro_batch", False, False),
        ("tower", False, True),
        ("sync_micro_batch", True, False),
        ("sync", True, True),
    )
    def test_every_reach(self, name, towers, pieces):
        self.assertEqual(sync_batch_norm.BATCH_NORM[name], (towers, pieces))
        self.assertLen(sync_batch_norm.BATCH_NORM, 4)
        shared = sync_batch_norm.shared_statistics(
            name, towers=3, micro_batches=4, rounds=1
        )
        self.assertEqual(shared, (3 if towers else 1, 4 if pieces else 1, 1.0))


class ExchangesTest(parameterized.TestCase):
    def test_nothing_is_joined_with_nothing(self):
        self.assertIsNone(StatisticsExchanges().joined(SharedStatistics()))
        self.assertEqual(StatisticsExchanges().joined(SharedStatistics(2, 3)).count, 6)

    def test_the_gradient_of_moments_is_that_of_all_rows(self):
        """What each batch gets back adds up to the gradient on the whole batch."""
        batches = _batches(count=2, offset=1.0)
        with tf.Graph().as_default(), v1.Session() as session:
            whole = tf.constant(batches)
            mean, variance = tf.nn.moments(whole, [0, 1])
            loss = tf.reduce_sum(mean**2) + tf.reduce_sum(variance**3)
            (wanted,) = tf.gradients(loss, whole)
            exchanges, feeds, owns, gradients = StatisticsExchanges(), {}, [], []
            joined = exchanges.joined(SharedStatistics(2))
            for batch in batches:
                x = tf.constant(batch)
                moments = tf.stack(tf.nn.moments(x, [0]))
                mean, variance = tf.unstack(joined.moments(moments))
                # Each batch adds half of the loss.
                share = (tf.reduce_sum(mean**2) + tf.reduce_sum(variance**3)) / 2.0
                owns.append(moments)
                gradients.append(tf.gradients(share, x)[0])
            sent = list(exchanges.sent.items())
            names = [name for name, _ in sent]
            forward = [name for name, exchange in sent if exchange.join == "moments"]
            back = [name for name, exchange in sent if exchange.join == "mean"]
            self.assertLen(forward, 2)
            self.assertLen(back, 2)
            for group in (forward, back):
                values = [exchanges.sent[name].tensor for name in group]
                join = sync_batch_norm.JOINS[exchanges.sent[group[0]].join]
                actual = session.run(join(values), feeds)
                feeds |= {f"{name}:0": actual for name in group}
            self.assertEqual(sorted(names), sorted([*forward, *back]))
            wanted, *actual = session.run([wanted, *gradients], feeds)
        np.testing.assert_allclose(np.stack(actual), wanted, rtol=1e-4, atol=1e-6)


def _normed() -> Model:
    """Two batch norms, one of them after another's output."""

    def block(x, nn):
        x = nn.batch_norm(nn.conv(x, 4, 3, use_bias=False), activation=tf.nn.relu)
        x = nn.batch_norm(nn.conv(x, 3, 2, use_bias=False), scale=False)
        return nn.dense(nn.flatten(x), nn.num_classes)

    return trainer.model_of(block)


def _trained(towers: int, steps: int = 6, **options):
    training = trainer.Trainer(
        _normed(), towers=towers, batch_size=24 // towers, **options
    )
    return training.start().steps(steps)


class SyncBatchNormTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (1, "parameter_server"), (3, "parameter_server"), (4, "replicated")
    )
    def test_towers_are_one_on_the_joined_batch(self, towers, mode):
        """Gradients, moving averages and all; against TensorFlow's own batch norm."""
        one_tower = _trained(1)
        other = _trained(towers, batch_norm="sync", variable_update=mode)
        self.assertLess(trainer.difference(one_tower, other), 1e-5)

    def test_each_by_itself_is_not(self):
        self.assertGreater(trainer.difference(_trained(1), _trained(4)), 1e-3)

    @parameterized.parameters("independent", "asynchronous")
    def test_towers_that_do_not_step_together_cannot(self, mode):
        with self.assertRaisesRegex(ValueError, "batch_norm=sync: the towers must"):
            _trained(2, batch_norm="sync", variable_update=mode)
