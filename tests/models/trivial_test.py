"""The trivial model, layer by layer."""

import tensorflow as tf
from absl.testing import absltest

from models import layers, trivial

v1 = tf.compat.v1


class TrivialTest(absltest.TestCase):
    def test_is_that_of_tf_cnn_benchmarks(self):
        with tf.Graph().as_default():
            nn = layers.Layers(training=True, num_classes=1001)
            trivial.trivial().run(tf.zeros([2, 227, 227, 3]), nn)
            kernels = [v for v in v1.trainable_variables() if "kernel" in v.op.name]
        shapes = [kernel.shape.as_list() for kernel in kernels]
        self.assertEqual(shapes, [[227 * 227 * 3, 1], [1, 4096], [4096, 1001]])
