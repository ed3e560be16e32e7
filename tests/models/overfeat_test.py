"""OverFeat: published size, and dropout."""

import tensorflow as tf
from absl.testing import absltest

from models import layers, overfeat
from tests.models import sizes


class OverfeatTest(absltest.TestCase):
    def test_published_size(self):
        measured = sizes.measure(overfeat.overfeat(), num_classes=1000)
        # Section 3.2 of the paper: 145 million parameters, 2810 million connections.
        self.assertEqual(measured.parameters // 10**6, 145)
        self.assertAlmostEqual(measured.multiply_adds, 2.81, delta=0.01)
        self.assertEqual(measured.products, 8)

    def test_drops_half_of_either_dense_layer_in_training(self):
        for training, drops in ((True, 2), (False, 0)):
            with tf.Graph().as_default() as graph:
                nn = layers.Layers(training=training, num_classes=10)
                overfeat.overfeat().run(tf.zeros([2, 79, 79, 3]), nn)
            types = [op.type for op in graph.get_operations()]
            self.assertEqual(types.count("StatelessRandomUniformFullIntV2"), drops)
