"""What towers cannot repeat."""

import tensorflow as tf
from absl.testing import absltest, parameterized

from towers.compute import repeatable

v1 = tf.compat.v1


@tf.function
def _noise():
    return tf.random.uniform([2])


@tf.function
def _double(x):
    return 2 * x


class RepeatableTest(parameterized.TestCase):
    @parameterized.parameters(
        (
            lambda: tf.random.normal([2], name="draw"),
            "'draw/.*' draws with the stateful",
        ),
        (lambda: tf.random.shuffle([1, 2]), "draws with the stateful RandomShuffle"),
        (
            lambda: tf.map_fn(lambda x: x + tf.random.normal([]), tf.zeros([3])),
            "draws with the stateful RandomStandardNormal",
        ),
        (lambda: _noise(), "'.*noise.*/.*' draws with the stateful RandomUniform"),
        (lambda: tf.Variable(1.0, name="mine"), "variable 'mine:0' was made without"),
        (
            lambda: tf.py_function(lambda: 1.0, [], tf.float32, name="call"),
            "'call' is a tf.py_function, which a copy of the graph cannot call",
        ),
    )
    def test_refuses(self, make, sentence):
        with tf.Graph().as_default() as graph:
            make()
            with self.assertRaisesRegex(ValueError, sentence):
                repeatable.check(graph)

    @parameterized.parameters(
        v1.losses.add_loss,
        lambda one: v1.add_to_collection("regularization_losses", one),
    )
    def test_a_loss_that_is_collected_for_nobody(self, collect):
        with tf.Graph().as_default() as graph:
            one = tf.constant(1.0, name="penalty")
            collect(one)
            with self.assertRaisesRegex(
                ValueError, "'penalty:0' is in the collection '.*losses', which the .*"
            ):
                repeatable.check_losses(graph)
            repeatable.check_losses(graph, [one])
            tf.identity(one)
            repeatable.check_losses(graph)

    def test_what_is_the_same_in_every_tower(self):
        with tf.Graph().as_default() as graph:
            _double(tf.random.stateless_normal([2], seed=[1, 2]))
            tf.random.experimental.index_shuffle(1, [1, 2], 5)
            tf.debugging.assert_equal(tf.constant(1), 1)
            v1.placeholder(tf.float32)
            tf.numpy_function(lambda: 1.0, [], tf.float32)
            repeatable.check(graph)


if __name__ == "__main__":
    absltest.main()
