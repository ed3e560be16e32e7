"""`==` and `!=` of tensors are refused in a model's code, and only there."""

import threading

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from models import Images, Model, Recipe, Schedule, comparisons, layers, model

v1 = tf.compat.v1


class ComparisonsTest(parameterized.TestCase):
    def _made(self, make):
        with tf.Graph().as_default():
            x = v1.placeholder(tf.float32, [4])
            with comparisons.comparisons_refused():
                return make(x)

    @parameterized.parameters(
        (lambda x: tf.cast(x == 3, tf.float32), "==.* always False; write tf.equal$"),
        (lambda x: 3 != x, "!=.* always True; write tf.not_equal$"),
        (lambda x: tf.where(x + 1 == np.float32(3), x, 0.0), "=="),
        (lambda x: np.ones([4]) == x, "=="),
        (lambda x: x == x + 1, "=="),
    )
    def test_refuses(self, make, sentence):
        with self.assertRaisesRegex(ValueError, f"^a tensor is compared by {sentence}"):
            self._made(make)

    @parameterized.parameters(
        lambda x: tf.where(tf.equal(x, 3), x, 0.0),
        lambda x: x == "same",
        lambda x: x == (),
        lambda x: None if x != None else x,  # noqa: E711 - what users write
        lambda x: tf.gradients(tf.nn.softmax(x * x), [x]),
        lambda x: tf.cond(tf.reduce_any(x > 3), lambda: x, lambda: -x),
        lambda x: x in [x],
    )
    def test_takes(self, make):
        self._made(make)

    def test_other_threads_are_not_affected(self):
        results = []

        def compare(x):
            with x.graph.as_default():
                results.extend([x == 3, x != 3])

        def make(x):
            thread = threading.Thread(target=compare, args=[x])
            thread.start()
            thread.join()

        self._made(make)
        self.assertEqual(results, [False, True])

    def test_is_undone_after_an_error(self):
        before = tf.Tensor.__eq__, tf.Tensor.__ne__
        with self.assertRaises(ValueError):
            self._made(lambda x: x == 3)
        self.assertEqual((tf.Tensor.__eq__, tf.Tensor.__ne__), before)
        with tf.Graph().as_default():
            self.assertIs(v1.placeholder(tf.float32, []) == 3, False)


class ModelTest(parameterized.TestCase):
    @parameterized.parameters("block", "loss", "metrics", "pictures")
    def test_each_function_of_a_model(self, where):
        def spoilt(function):
            return lambda x, y: (x == 3, function(x, y))[1]

        def pick(name, function):
            return spoilt(function) if name == where else function

        built = Model(
            name="own",
            blocks=(("out", pick("block", lambda x, nn: nn.dense(nn.flatten(x), 5))),),
            inputs=Images((2, 2, 1), 5),
            recipe=Recipe(batch_size=4, schedule=Schedule((0.1,))),
            loss=pick("loss", model.softmax_cross_entropy),
            metrics=pick("metrics", model.top_k_accuracy),
            pictures=pick("pictures", model.no_pictures),
        )
        with (
            tf.Graph().as_default(),
            self.assertRaisesRegex(
                ValueError,
                rf"{where}.*: a tensor is compared by ==.* \({__file__}:\d+\)$",
            ),
        ):
            nn = layers.Layers(training=True, num_classes=5)
            outputs = built.run(v1.placeholder(tf.float32, [4, 2, 2, 1]), nn)
            labels = v1.placeholder(tf.int32, [4])
            built.measure(outputs, labels, num_classes=5, batch_size=4)
            built.show(outputs, labels, batch_size=4)
