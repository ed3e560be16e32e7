"""LeNet has the size published for MNIST, and takes the digits."""

import tensorflow as tf
from absl.testing import parameterized

from models import layers, lenet

v1 = tf.compat.v1


class LenetTest(parameterized.TestCase):
    @parameterized.parameters(
        # "1,663,370 total parameters" on MNIST (McMahan et al. 2017, section 3, of the
        # same layers).
        ((28, 28, 1), 10, 1_663_370),
        # On tf_cnn_benchmarks' synthetic ImageNet: 3 colours, 1001 classes.
        ((28, 28, 3), 1001, 1_663_370 + 2 * 25 * 32 + 991 * 513),
        # On the digits: 2 x 2 instead of 7 x 7 pixels reach the dense layer.
        ((8, 8, 1), 10, 1_663_370 - (49 - 4) * 64 * 512),
    )
    def test_parameters(self, shape, num_classes, count):
        with tf.Graph().as_default():
            nn = layers.Layers(training=True, num_classes=num_classes)
            lenet.lenet().run(tf.zeros([2, *shape]), nn)
            sizes = [v.shape.num_elements() for v in v1.trainable_variables()]
        self.assertEqual(sum(sizes), count)
