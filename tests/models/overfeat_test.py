"""OverFeat: published size, and dropout."""

import tensorflow as tf
from absl.testing import absltest

from models import layers, overfeat


class OverfeatTest(absltest.TestCase):
    def test_published_size(self):
        # 145 million parameters (section 3.2 of the paper), with 1000 classes.
        self.assertEqual((overfeat.overfeat().num_parameters - 4097) // 10**6, 145)

    def test_drops_half_of_either_dense_layer_in_training(self):
        for training, drops in ((True, 2), (False, 0)):
            with tf.Graph().as_default() as graph:
                nn = layers.Layers(training=training, num_classes=10)
                overfeat.overfeat().run(tf.zeros([2, 79, 79, 3]), nn)
            types = [op.type for op in graph.get_operations()]
            self.assertEqual(types.count("StatelessRandomUniformFullIntV2"), drops)
