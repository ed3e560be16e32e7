"""Layers of images against a loop over the windows, in both data formats."""

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


def _convolve(x, kernel, strides, pads):
    """NHWC convolution, window by window; `pads` are zeros (before, behind)."""
    size = kernel.shape[0]
    x = np.pad(x, [(0, 0), pads, pads, (0, 0)])
    places = range(0, x.shape[1] - size + 1, strides)
    rows = [
        [np.tensordot(x[:, i : i + size, j : j + size], kernel, 3) for j in places]
        for i in places
    ]
    return np.transpose(rows, [2, 0, 1, 3])


class _ImagesTestCase(graph_test_case.GraphTestCase):
    def variables(self):
        return {v.op.name: v.shape.as_list() for v in v1.global_variables()}


class ConvTest(_ImagesTestCase):
    @parameterized.parameters(
        (8, 3, 1, (1, 1)),
        (8, 3, 2, (1, 1)),
        (9, 3, 2, (1, 1)),
        (9, 7, 2, (3, 3)),
        (8, 1, 2, (0, 0)),
        (8, 2, 2, (0, 1)),
        (8, 4, 1, (1, 2)),
    )
    def test_fixed_padding(self, size, kernel, strides, pads):
        x = _random(2, size, size, 3)
        y = _layers().conv(tf.constant(x), 5, kernel, strides, padding="FIXED")
        weights, bias = v1.trainable_variables()
        actual, weights, bias = self.evaluate([y, weights, bias])
        np.testing.assert_array_equal(bias, np.zeros(5))
        want = _convolve(x, weights, strides, pads)
        np.testing.assert_allclose(actual, want, rtol=1e-4, atol=1e-4)

    def test_fixed_padding_of_channels_first(self):
        x = v1.placeholder(tf.float32, [2, 3, 9, 8])
        y = _layers(data_format="NCHW").conv(x, 5, 3, 2, padding="FIXED")
        self.assertEqual(y.shape, [2, 5, 5, 4])
        self.assertEqual(
            self.variables(), {"conv/kernel": [3, 3, 3, 5], "conv/bias": [5]}
        )

    def test_kernel_of_two_sizes(self):
        x = v1.placeholder(tf.float32, [2, 8, 8, 3])
        y = _layers().conv(x, 5, (1, 7), padding="VALID", use_bias=False)
        self.assertEqual(y.shape, [2, 8, 2, 5])
        self.assertEqual(self.variables(), {"conv/kernel": [1, 7, 3, 5]})

    def test_activation_comes_after_the_bias(self):
        y = _layers().conv(
            tf.zeros([1, 2, 2, 1]),
            1,
            1,
            bias_initializer=v1.constant_initializer(-3.0),
            activation=tf.nn.relu,
        )
        np.testing.assert_array_equal(self.evaluate(y), np.zeros([1, 2, 2, 1]))

    def test_variance_of_the_kernel(self):
        _layers().conv(tf.zeros([1, 4, 4, 64]), 256, 3)
        kernel = self.evaluate(v1.trainable_variables()[0])
        self.assertAlmostEqual(kernel.var() * 9 * 64, 2.0, delta=0.05)


class DepthwiseConvTest(_ImagesTestCase):
    @parameterized.parameters(
        (8, 3, 1, "SAME", (1, 1)),
        (8, 3, 2, "SAME", (0, 1)),
        (9, 5, 2, "VALID", (0, 0)),
        (8, 3, 2, "FIXED", (1, 1)),
    )
    def test_each_channel_has_a_filter(self, size, kernel, strides, padding, pads):
        x = _random(2, size, size, 3)
        y = _layers().depthwise_conv(tf.constant(x), kernel, strides, padding=padding)
        [weights] = v1.trainable_variables()
        self.assertEqual(weights.op.name, "depthwise_conv/kernel")
        actual, weights = self.evaluate([y, weights])
        want = [
            _convolve(x[..., c : c + 1], weights[:, :, c : c + 1], strides, pads)
            for c in range(3)
        ]
        np.testing.assert_allclose(actual, np.concatenate(want, 3), 1e-4, 1e-4)

    def test_channels_first(self):
        x = v1.placeholder(tf.float32, [2, 3, 9, 8])
        y = _layers(data_format="NCHW").depthwise_conv(x, (5, 3), 2, padding="FIXED")
        self.assertEqual(y.shape, [2, 3, 5, 4])
        self.assertEqual(self.variables(), {"depthwise_conv/kernel": [5, 3, 3, 1]})

    def test_variance_of_the_kernel(self):
        _layers().depthwise_conv(tf.zeros([1, 4, 4, 4096]), 3)
        kernel = self.evaluate(v1.trainable_variables()[0])
        self.assertAlmostEqual(kernel.var() * 9, 2.0, delta=0.05)


class PoolTest(_ImagesTestCase):
    def test_max_pool(self):
        x = np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)
        y = self.evaluate(_layers().max_pool(tf.constant(x), 3, 2, "VALID"))
        np.testing.assert_array_equal(y.ravel(), [10])
        y = self.evaluate(_layers().max_pool(tf.constant(x), 2, 2))
        np.testing.assert_array_equal(y.ravel(), [5, 7, 13, 15])

    def test_avg_pool_does_not_count_the_padding(self):
        y = self.evaluate(_layers().avg_pool(tf.ones([1, 3, 3, 1]), 3, 1))
        np.testing.assert_allclose(y, np.ones([1, 3, 3, 1]))

    def test_global_avg_pool_is_the_same_in_either_format(self):
        x = tf.constant(_random(2, 3, 5, 4))
        last = _layers().global_avg_pool(x)
        first = _layers(data_format="NCHW").global_avg_pool(
            tf.transpose(x, [0, 3, 1, 2])
        )
        self.assertEqual(last.shape, [2, 4])
        arrays.assert_close(*self.evaluate([last, first]), rtol=1e-6)

    def test_local_response_norm_in_either_format(self):
        options = {"depth_radius": 1, "bias": 1.0, "alpha": 0.5, "beta": 0.75}
        x = _random(2, 3, 3, 6)
        last = _layers().local_response_norm(tf.constant(x), **options)
        first = _layers(data_format="NCHW").local_response_norm(
            tf.constant(x.transpose(0, 3, 1, 2)), **options
        )
        last, first = self.evaluate([last, first])
        padded = np.pad(x, [(0, 0)] * 3 + [(1, 1)]) ** 2
        near = padded[..., :-2] + padded[..., 1:-1] + padded[..., 2:]
        np.testing.assert_allclose(last, x / (1 + 0.5 * near) ** 0.75, rtol=1e-4)
        arrays.assert_close(first, last.transpose(0, 3, 1, 2), rtol=1e-6)

    def test_local_response_norm_of_bfloat16(self):
        # TensorFlow has no such kernel; 1 must become 1 / (1 + 1).
        y = _layers().local_response_norm(
            tf.ones([1, 1, 1, 1], tf.bfloat16), alpha=1.0, beta=1.0
        )
        self.assertEqual(y.dtype, tf.bfloat16)
        np.testing.assert_array_equal(
            self.evaluate(tf.cast(y, tf.float32)), [[[[0.5]]]]
        )

    @parameterized.parameters("NHWC", "NCHW")
    def test_concat_joins_channels(self, data_format):
        nn = _layers(data_format=data_format)
        x = tf.zeros([2, 5, 3, 4])
        y = nn.concat([x, x, x])
        self.assertEqual(nn.channels(y), 3 * nn.channels(x))
        self.assertEqual(y.shape.num_elements(), 3 * x.shape.num_elements())
