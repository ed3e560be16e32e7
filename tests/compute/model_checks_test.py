"""Models that towers cannot copy are refused."""

import tensorflow as tf
from absl.testing import parameterized

from towers.compute import model_checks

v1 = tf.compat.v1


@tf.function
def _noise():
    return tf.random.uniform([2])


@tf.function
def _double(x):
    return 2 * x


def _words():
    return tf.lookup.KeyValueTensorInitializer(["a"], tf.constant([0], tf.int64))


class ModelChecksTest(parameterized.TestCase):
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
        *(
            (make, "variable 'mine:0' was made without get_variable, or not in a block")
            for make in (
                lambda: v1.Variable(1.0, name="mine", collections=[]),
                lambda: v1.Variable(
                    1.0, name="mine", use_resource=True, collections=[]
                ),
                lambda: v1.get_variable(
                    "mine", initializer=1.0, collections=["local_variables"]
                ),
            )
        ),
        *(
            (make, "variable '.*/.*:0' is one of tf.compat.v1.metrics, .* one number")
            for make in (
                lambda: v1.metrics.accuracy([1, 2], [1, 1]),
                lambda: v1.metrics.mean([1.0]),
            )
        ),
        *(
            (make, "operation '.*able.*' is a lookup table, which .* in the data set")
            for make in (
                lambda: tf.lookup.StaticHashTable(_words(), 0).lookup(tf.constant("a")),
                lambda: tf.lookup.StaticVocabularyTable(_words(), 1),
                lambda: tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, 0),
                lambda: tf.lookup.experimental.DenseHashTable(
                    tf.int64, tf.int64, 0, empty_key=-1, deleted_key=-2
                ),
            )
        ),
        (
            lambda: tf.py_function(lambda: 1.0, [], tf.float32, name="call"),
            "'call' is a tf.py_function, which a copy of the graph cannot call",
        ),
    )
    def test_refuses(self, make, sentence):
        with tf.Graph().as_default() as graph:
            make()
            with self.assertRaisesRegex(ValueError, sentence):
                model_checks.check(graph)

    @parameterized.parameters(
        v1.losses.add_loss,
        lambda penalty: v1.add_to_collection("regularization_losses", penalty),
    )
    def test_a_loss_that_is_collected_for_nobody(self, collect):
        with tf.Graph().as_default() as graph:
            penalty = tf.constant(1.0, name="penalty")
            collect(penalty)
            with self.assertRaisesRegex(
                ValueError, "'penalty:0' is in the collection '.*losses', which the .*"
            ):
                model_checks.check_losses(graph)
            model_checks.check_losses(graph, [penalty])
            tf.identity(penalty)
            model_checks.check_losses(graph)

    def test_what_is_the_same_in_every_tower(self):
        with tf.Graph().as_default() as graph:
            _double(tf.random.stateless_normal([2], seed=[1, 2]))
            tf.random.experimental.index_shuffle(1, [1, 2], 5)
            tf.debugging.assert_equal(tf.constant(1), 1)
            v1.placeholder(tf.float32)
            tf.numpy_function(lambda: 1.0, [], tf.float32)
            model_checks.check(graph)
