"""The multilayer perceptron has its paper's size, and takes the digits'."""

import tensorflow as tf
from absl.testing import parameterized

from models import layers, mlp

v1 = tf.compat.v1


class MlpTest(parameterized.TestCase):
    # 28 x 28: "2NN ... 199,210 total parameters" (McMahan et al. 2017, section 3).
    @parameterized.parameters((28, 199_210), (8, 55_210))
    def test_parameters(self, size, count):
        with tf.Graph().as_default():
            nn = layers.Layers(training=True, num_classes=10)
            mlp.mlp().run(tf.zeros([2, size, size, 1]), nn)
            sizes = [v.shape.num_elements() for v in v1.trainable_variables()]
        self.assertEqual(sum(sizes), count)
