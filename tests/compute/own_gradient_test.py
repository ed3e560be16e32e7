"""Gradients of one's own, and that a train graph which nobody uses is freed."""

import gc
import weakref

import tensorflow as tf
from absl.testing import parameterized

from tests import embedding_models, trainer
from towers.compute.own_gradient import with_gradient
from towers.layout.shards import Shards
from towers.layout.stages import Pipeline
from towers.variable_update.modes import VARIABLE_UPDATES

v1 = tf.compat.v1

_OF_TOKENS = dict(model=embedding_models.untied(), source=embedding_models.tokens())


def one_norm(x, nn):
    return nn.batch_norm(nn.conv(x, 4, 3, use_bias=False), activation=tf.nn.relu)


def another(x, nn):
    return nn.dense(nn.flatten(nn.batch_norm(x)), nn.num_classes)


_TWO_NORMS = trainer.model_of(one_norm, another)

# What graphs are built of: every update, with synchronized batch norm if it can be.
_SETTINGS = {
    **{
        mode: dict(
            model=_TWO_NORMS,
            variable_update=mode,
            batch_norm="sync" if update.joined else "micro_batch",
        )
        for mode, update in VARIABLE_UPDATES.items()
    },
    "rounds": dict(model=_TWO_NORMS, accumulate_steps=2, batch_norm="sync_micro_batch"),
    "stages": dict(
        model=_TWO_NORMS,
        pipeline=Pipeline(2, 2, "gpipe"),
        batch_norm="sync",
    ),
    "recomputed": dict(
        model=_TWO_NORMS,
        pipeline=Pipeline(2, 2, "gpipe", recompute="block"),
        batch_norm="sync",
    ),
    "compiled": dict(model=_TWO_NORMS, xla_compile=True),
    "classifier": dict(_OF_TOKENS, shards=Shards(classifier=2)),
    "embeddings": dict(_OF_TOKENS, shards=Shards(embeddings=2)),
}


class OwnGradientTest(tf.test.TestCase, parameterized.TestCase):
    def test_takes_the_place_of_the_real_one(self):
        """Of some outputs and inputs, and of what is computed after them."""
        with tf.Graph().as_default(), v1.Session() as session:
            x, y = tf.constant(2.0), tf.constant(5.0)
            total, product = with_gradient(
                [x + y, x * y], [x, y], lambda a, b: [10.0 * a, 100.0 * b * x]
            )
            both = tf.gradients(3.0 * total + product**2, [x, y])
            values = session.run([total, product, *both])
            second = session.run(tf.gradients(both[1], [x, y]))
        self.assertEqual(values, [7.0, 10.0, 30.0, 100.0 * 20.0 * 2.0])
        # The gradient by y is 200 x (x y); that of its last factor goes to y alone.
        self.assertEqual(second, [200.0 * 10.0, 200.0 * 2.0 * 200.0])

    def test_in_a_branch(self):
        with tf.Graph().as_default(), v1.Session() as session:
            x = tf.constant(2.0)

            def branch():
                [y] = with_gradient([x * x], [x], lambda dy: [7.0 * dy])
                return y

            y = tf.cond(x > 0, branch, lambda: x)
            self.assertEqual(session.run([y, *tf.gradients(y, x)]), [4.0, 7.0])

    @parameterized.parameters(*_SETTINGS)
    def test_a_graph_that_nobody_uses_is_freed(self, name):
        """An elastic run builds one after each change of its members."""
        gc.collect()
        before = {id(graph) for graph in _graphs()}
        training = trainer.Trainer(towers=2, batch_size=4, **_SETTINGS[name]).start()
        training.steps(2)
        graph = weakref.ref(training.train.graph)
        training.session.close()
        del training
        gc.collect()
        self.assertIsNone(graph())
        self.assertEmpty([left for left in _graphs() if id(left) not in before])


def _graphs() -> list[tf.Graph]:
    """All that this process has, those of a trace among them."""
    return [thing for thing in gc.get_objects() if isinstance(thing, tf.Graph)]
