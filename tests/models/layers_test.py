"""The layers against numpy, and what they must not depend on."""

import types

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from models import layers
from tests import arrays, graph_test_case

v1 = tf.compat.v1


def _layers(**options):
    return layers.Layers(**{"training": True, "num_classes": 10, **options})


def _random(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


class LayersTestCase(graph_test_case.GraphTestCase):
    def variables(self):
        return {v.op.name: v.shape.as_list() for v in v1.global_variables()}


class DenseTest(LayersTestCase):
    @parameterized.parameters("NHWC", "NCHW")
    def test_product_and_bias(self, data_format):
        x = _random(4, 6)
        nn = _layers(data_format=data_format)
        y = nn.dense(tf.constant(x), 3, bias_initializer=v1.constant_initializer(0.5))
        actual, weights = self.evaluate([y, v1.trainable_variables()[0]])
        np.testing.assert_allclose(actual, x @ weights + 0.5, rtol=1e-5, atol=1e-5)

    @parameterized.parameters((None, 1.0), (tf.nn.relu, 2.0))
    def test_variance_of_the_kernel(self, activation, gain):
        _layers().dense(tf.zeros([1, 400]), 500, activation=activation)
        kernel = self.evaluate(v1.trainable_variables()[0])
        self.assertAlmostEqual(kernel.var() * 400, gain, delta=0.05)

    def test_on_the_last_axis_of_a_sequence(self):
        x = _random(2, 3, 4)
        y = _layers().dense(tf.constant(x), 5)
        self.assertEqual(y.shape.as_list(), [2, 3, 5])
        actual, kernel = self.evaluate([y, v1.trainable_variables()[0]])
        np.testing.assert_allclose(actual, x @ kernel, rtol=1e-5, atol=1e-5)

    def test_names_are_numbered_within_a_scope(self):
        nn = _layers()
        for scope in ("first", "second"):
            with v1.variable_scope(scope):
                x = nn.dense(tf.zeros([1, 2]), 2, use_bias=False)
                nn.dense(x, 2, use_bias=False)
        self.assertSequenceEqual(
            list(self.variables()),
            [
                "first/dense/kernel",
                "first/dense_1/kernel",
                "second/dense/kernel",
                "second/dense_1/kernel",
            ],
        )


class BatchNormTest(LayersTestCase):
    def test_training(self):
        x = 3.0 + 2.0 * _random(4, 3, 3, 2)
        nn = _layers()
        y = nn.batch_norm(tf.constant(x), momentum=0.75)
        mean, variance = nn.statistics
        actual, got_mean, got_variance = self.evaluate([y, mean.value, variance.value])
        pixels = x.reshape(-1, 2)
        want = (x - pixels.mean(0)) / np.sqrt(pixels.var(0) + 1e-5)
        np.testing.assert_allclose(actual, want, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(got_mean, pixels.mean(0), rtol=1e-5)
        # The moving average follows the unbiased estimate.
        np.testing.assert_allclose(got_variance, pixels.var(0, ddof=1), rtol=1e-5)
        self.assertEqual([mean.momentum, variance.momentum], [0.75, 0.75])
        self.assertEqual(mean.variable.op.name, "batch_norm/moving_mean")
        self.assertEqual(variance.variable.op.name, "batch_norm/moving_variance")

    def test_evaluation_reads_the_moving_averages(self):
        x = _random(4, 3, 3, 2)
        nn = _layers(training=False)
        y = nn.batch_norm(tf.constant(x), epsilon=0.25, activation=tf.nn.relu)
        names = {v.op.name: v for v in v1.global_variables()}
        settings = [
            names["batch_norm/moving_mean"].assign([1.0, -1.0]),
            names["batch_norm/moving_variance"].assign([3.75, 0.0]),
            names["batch_norm/gamma"].assign([1.0, 2.0]),
            names["batch_norm/beta"].assign([0.0, 0.5]),
        ]
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(settings)
            actual = session.run(y)
        want = (x - [1.0, -1.0]) / np.sqrt([4.0, 0.25]) * [1.0, 2.0] + [0.0, 0.5]
        np.testing.assert_allclose(actual, np.maximum(want, 0), rtol=1e-4, atol=1e-4)
        self.assertEmpty(nn.statistics)

    @parameterized.parameters("beta", "gamma", "moving_mean", None)
    def test_a_frozen_one_is_as_in_evaluation(self, trained):
        x, outputs = tf.constant(_random(4, 3, 3, 2)), []
        for training in (True, False):
            nn = _layers(training=training)
            nn.trains = lambda name: name == f"batch_norm/{trained}"
            with v1.variable_scope("", reuse=v1.AUTO_REUSE):
                outputs.append(nn.batch_norm(x))
            self.assertLen(nn.statistics, 2 if training and trained else 0)
        frozen, evaluated = self.evaluate(outputs)
        self.assertEqual(trained is None, np.array_equal(frozen, evaluated))

    @parameterized.parameters(True, False)
    def test_variables(self, training):
        nn = _layers(training=training)
        nn.batch_norm(tf.zeros([1, 2, 2, 3]), scale=False)
        nn.batch_norm(tf.zeros([1, 2, 2, 3]))
        self.assertEqual(
            [v.op.name for v in v1.trainable_variables()],
            ["batch_norm/beta", "batch_norm_1/beta", "batch_norm_1/gamma"],
        )
        self.assertLen(v1.global_variables(), 7)

    def test_bfloat16_keeps_float32_variables(self):
        nn = _layers(dtype=tf.bfloat16)
        y = nn.batch_norm(tf.zeros([2, 2, 2, 3], tf.bfloat16))
        self.assertEqual(y.dtype, tf.bfloat16)
        self.assertEqual({v.dtype for v in v1.global_variables()}, {tf.float32})
        self.assertEqual({s.value.dtype for s in nn.statistics}, {tf.float32})

    def test_channels_first(self):
        nn = _layers(data_format="NCHW")
        y = nn.batch_norm(v1.placeholder(tf.float32, [2, 3, 5, 5]))
        self.assertEqual(y.shape, [2, 3, 5, 5])
        self.assertEqual({s.value.shape.as_list()[0] for s in nn.statistics}, {3})

    @parameterized.product(
        shape=([12, 3], [4, 5, 3]), data_format=("NHWC", "NCHW"), joined=(False, True)
    )
    def test_on_the_last_axis_of_what_is_no_image(self, shape, data_format, joined):
        x = 3.0 + 2.0 * _random(*shape)
        nn = _layers(data_format=data_format)
        if joined:  # a single batch
            nn.joined = types.SimpleNamespace(
                count=1, moments=lambda moments_of_group: moments_of_group
            )
        y = nn.batch_norm(tf.constant(x))
        self.assertEqual(y.shape, shape)
        actual, *moments = self.evaluate([y, *(s.value for s in nn.statistics)])
        rows = x.reshape(-1, 3)
        want = (x - rows.mean(0)) / np.sqrt(rows.var(0) + 1e-5)
        np.testing.assert_allclose(actual, want, rtol=1e-4, atol=1e-4)
        want_moments = [rows.mean(0), rows.var(0, ddof=1)]
        np.testing.assert_allclose(moments, want_moments, rtol=1e-4)

    def test_dense_without_features(self):
        with self.assertRaisesRegex(ValueError, r"no features"):
            _layers().dense(tf.zeros([3]), 2)

    def test_without_channels(self):
        with self.assertRaisesRegex(ValueError, r"no channels"):
            _layers().batch_norm(tf.zeros([4]))


class ShapeTest(LayersTestCase):
    def test_flatten_is_the_same_in_either_format(self):
        x = tf.constant(_random(2, 3, 5, 4))
        last = _layers().flatten(x)
        first = _layers(data_format="NCHW").flatten(tf.transpose(x, [0, 3, 1, 2]))
        self.assertEqual(last.shape, [2, 3 * 5 * 4])
        arrays.assert_close(*self.evaluate([last, first]), rtol=1e-6)

    def test_flatten_of_what_is_flat(self):
        x = tf.constant(_random(2, 3))
        np.testing.assert_array_equal(
            *self.evaluate([x, _layers(data_format="NCHW").flatten(x)])
        )

    def test_embedding_has_a_sparse_gradient(self):
        nn = _layers()
        table = v1.get_variable("table", [5, 3])
        read = tf.identity(table)
        rows = nn.embedding(tf.constant([[1, 4], [1, 0]]), read)
        self.assertEqual(rows.shape.as_list(), [2, 2, 3])
        [gradient] = tf.gradients(rows, [read])
        self.assertIsInstance(gradient, tf.IndexedSlices)
        rows, table = self.evaluate([rows, table])
        np.testing.assert_array_equal(rows, table[[[1, 4], [1, 0]]])


class RandomNumbersTest(LayersTestCase):
    @parameterized.parameters("uniform", "normal")
    def test_belong_to_examples_layers_and_seeds(self, kind):
        def draw(batch, first, seed=7, scope="block", training=True):
            nn = _layers(seed=seed, first_example=first, training=training)
            with v1.variable_scope(scope):
                x = getattr(nn, kind)(tf.ones([batch, 3], tf.bfloat16))
            self.assertEqual((x.dtype, x.shape), (tf.float32, [batch, 3]))
            return x

        whole, *halves = self.evaluate([draw(8, 5), draw(4, 5), draw(4, 9)])
        np.testing.assert_allclose(whole, np.concatenate(halves), 1e-6, 1e-6)
        evaluation = self.evaluate(draw(8, 5, training=False))
        np.testing.assert_array_equal(evaluation, whole)
        for other in (draw(8, 6), draw(8, 5, seed=8), draw(8, 5, scope="other")):
            self.assertGreater(np.abs(self.evaluate(other) - whole).max(), 0.1)


class DropoutTest(LayersTestCase):
    def _drop(self, batch, first, *, seed=7, scope="block", rate=0.5):
        nn = _layers(seed=seed, first_example=first)
        with v1.variable_scope(scope):
            return nn.dropout(tf.ones([batch, 3, 5]), rate)

    def test_belongs_to_examples_not_to_batches(self):
        whole = self._drop(8, 0)
        first = v1.placeholder_with_default(np.int64(4), [])
        halves = tf.concat([self._drop(4, 0), self._drop(4, first)], 0)
        whole, halves = self.evaluate([whole, halves])
        arrays.assert_same_bits(whole, halves)

    def test_draws_anew_for_every_example_layer_and_seed(self):
        draws = [
            self._drop(1, 0),
            self._drop(1, 1),
            self._drop(1, 0, seed=8),
            self._drop(1, 0, scope="other"),
        ]
        with v1.variable_scope("block"):
            nn = _layers(seed=7)
            nn.dropout(tf.ones([1, 3, 5]), 0.5)
            draws.append(nn.dropout(tf.ones([1, 3, 5]), 0.5))
        draws = {value.tobytes() for value in self.evaluate(draws)}
        self.assertLen(draws, 5)

    def test_keeps_the_mean(self):
        nn = _layers()
        y = self.evaluate(nn.dropout(tf.ones([100, 1000]), 0.2))
        np.testing.assert_allclose(np.unique(y), [0.0, 1.25])
        self.assertAlmostEqual(y.mean(), 1.0, delta=0.01)

    def test_keeps_the_dtype(self):
        y = _layers().dropout(tf.ones([2, 8], tf.bfloat16), 0.5)
        self.assertEqual(y.dtype, tf.bfloat16)

    def test_does_nothing_in_evaluation_or_at_rate_0(self):
        x = tf.ones([2, 3])
        self.assertIs(_layers(training=False).dropout(x, 0.5), x)
        self.assertIs(_layers().dropout(x, 0.0), x)
