"""MobileNet v2: its convolutions and units."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from models import layers, mobilenet
from tests.models import sizes

v1 = tf.compat.v1


class MobilenetTest(absltest.TestCase):
    def test_number_of_convolutions(self):
        graph = sizes.graph(mobilenet.mobilenet(), num_classes=1000)
        convolutions = {
            kind: sum(op.type == kind for op in graph.get_operations())
            for kind in ("Conv2D", "DepthwiseConv2dNative")
        }
        self.assertEqual(
            convolutions, {"Conv2D": 1 + 16 * 2 + 1 + 1, "DepthwiseConv2dNative": 17}
        )

    def test_depthwise_filters_do_not_decay(self):
        decays = mobilenet.mobilenet().recipe.decays
        unit = "stage2_unit1/"
        self.assertTrue(decays(f"{unit}conv/kernel"))
        self.assertFalse(decays(f"{unit}depthwise_conv/kernel"))
        self.assertFalse(decays(f"{unit}batch_norm/beta"))


class UnitTest(parameterized.TestCase):
    @parameterized.parameters((1, 4, True), (2, 4, False), (1, 5, False))
    def test_adds_its_input_where_that_fits(self, strides, filters, adds):
        x = np.random.default_rng(0).normal(size=(2, 6, 6, 4)).astype(np.float32)
        with tf.Graph().as_default(), v1.Session() as session:
            nn = layers.Layers(training=True, num_classes=10)
            y = mobilenet.unit(
                *(tf.constant(x), nn), expansion=6, filters=filters, strides=strides
            )
            shapes = [v.shape.as_list() for v in v1.trainable_variables()]
            # Without its kernels a unit is its input, or nothing.
            session.run([v.assign(tf.zeros_like(v)) for v in v1.trainable_variables()])
            y = session.run(y)
        self.assertIn([3, 3, 24, 1], shapes)
        self.assertEqual(y.shape, (2, 6 // strides, 6 // strides, filters))
        np.testing.assert_allclose(y, x if adds else np.zeros_like(y))
