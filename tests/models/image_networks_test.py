"""What networks for images share: their last blocks."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from models import image_networks, layers

v1 = tf.compat.v1


class ImageNetworksTest(parameterized.TestCase):
    @parameterized.parameters("NHWC", "NCHW")
    def test_pooled_logits_are_of_the_means(self, data_format):
        x = np.random.default_rng(1).normal(size=[2, 4, 4, 4]).astype(np.float32)
        with tf.Graph().as_default(), v1.Session() as session:
            nn = layers.Layers(training=True, num_classes=3, data_format=data_format)
            y = image_networks.pooled_logits(tf.constant(x), nn)
            kernel, bias = v1.trainable_variables()
            session.run(v1.global_variables_initializer())
            logits, kernel, bias = session.run([y, kernel, bias])
        means = x.mean((1, 2) if data_format == "NHWC" else (2, 3))
        np.testing.assert_allclose(logits, means @ kernel + bias, rtol=1e-5, atol=1e-6)

    def test_half_of_the_units_are_dropped_in_training(self):
        for training, drops in ((True, 1), (False, 0)):
            with tf.Graph().as_default() as graph:
                nn = layers.Layers(training=training, num_classes=3)
                y = image_networks.dense(tf.zeros([2, 2, 2, 1]), nn)
            self.assertEqual(y.shape, [2, 4096])
            types = [op.type for op in graph.get_operations()]
            self.assertEqual(types.count("StatelessRandomUniformFullIntV2"), drops)
