"""DenseNets: published sizes, and what a layer reads."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from models import densenet, layers
from towers.compute import flops

v1 = tf.compat.v1


class DensenetTest(parameterized.TestCase):
    @parameterized.parameters(
        # Table 2 of the paper: millions of parameters.  It has no multiply-adds; these
        # are those of its layers, see below.
        (40, 12, 1.0, 0.26),
        (100, 12, 7.0, 1.77),
        (100, 24, 27.2, 6.89),
    )
    def test_published_size(self, depth, growth, millions, billions):
        model = densenet.densenet(depth, growth)
        self.assertEqual(round(model.num_parameters / 1e6, 1), millions)
        with tf.Graph().as_default() as graph:
            nn = layers.Layers(training=True, num_classes=10)
            model.run(tf.zeros([1, 32, 32, 3]), nn)
        convolutions = [op for op in graph.get_operations() if op.type == "Conv2D"]
        self.assertLen(convolutions, depth - 1)  # the classifier is the last layer
        multiply_adds = flops.of_graph(graph) // 2
        self.assertEqual(multiply_adds, _multiply_adds(depth, growth))
        self.assertEqual(round(multiply_adds / 1e9, 2), billions)

    def test_a_layer_adds_channels_to_all_before(self):
        x = np.random.default_rng(0).normal(size=(2, 4, 4, 5)).astype(np.float32)
        for data_format in ("NHWC", "NCHW"):
            nn = layers.Layers(training=True, num_classes=10, data_format=data_format)
            with tf.Graph().as_default():
                images = tf.constant(x if data_format == "NHWC" else x.swapaxes(1, 3))
                y = densenet.layer(images, nn, growth=3)
                self.assertEqual(nn.channels(y), 8)
                old, new = tf.split(y, [5, 3], nn.channel_axis)
                if data_format == "NHWC":  # CPUs have no convolution in NCHW
                    with v1.Session() as session:
                        session.run(v1.global_variables_initializer())
                        old, new = session.run([old, new])
                    np.testing.assert_array_equal(old, x)
                    self.assertGreater(np.abs(new).max(), 0.1)


def _multiply_adds(depth: int, growth: int) -> int:
    """Those of the layers, one after another."""
    count, size, channels = (depth - 4) // 3, 32, 16
    total = size**2 * 27 * channels
    for stage in range(3):
        for _ in range(count):
            total += size**2 * 9 * channels * growth
            channels += growth
        if stage < 2:
            total += size**2 * channels**2
            size //= 2
    return total + channels * 10
