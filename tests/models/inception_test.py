"""Inception-v3: published size, modules, and the auxiliary head."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from models import inception, layers, model
from towers.compute import flops

v1 = tf.compat.v1


class InceptionTest(absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        """Runs one image through the model, block by block."""
        super().setUpClass()
        cls.shapes = {}
        nn = layers.Layers(training=True, num_classes=1000)
        with tf.Graph().as_default() as cls.graph:
            x = tf.zeros([1, 299, 299, 3])
            for block in inception.inception3().blocks:
                x = model.run_blocks([block], x, nn)
                main = x[0] if isinstance(x, tuple) else x
                cls.shapes[block[0]] = tuple(main.shape[1:])
            cls.variables = v1.trainable_variables()

    def _parameters(self, *, head):
        return sum(
            v.shape.num_elements()
            for v in self.variables
            if head or not v.op.name.startswith("auxiliary/")
        )

    def test_parameters(self):
        # "Trainable params: 23,817,352" of Keras's, which has no head.
        self.assertEqual(self._parameters(head=False), 23_817_352)
        # torchvision's num_params, 27,161,264, counts a scale per normalised channel.
        offsets = [v for v in self.variables if v.op.name.endswith("/beta")]
        scales = sum(v.shape.num_elements() for v in offsets)
        self.assertEqual(self._parameters(head=True) + scales, 27_161_264)

    def test_multiply_adds(self):
        # torchvision's _ops, 5.713 billion, count the main path.
        main = flops.of_graph(self.graph, "") - flops.of_graph(self.graph, "auxiliary")
        self.assertAlmostEqual(main / 2e9, 5.713, delta=0.005)

    def test_shapes(self):
        # Table 1 of the paper, but for the padding of its stem.
        self.assertEqual(self.shapes["stem5"], (35, 35, 192))
        self.assertEqual(self.shapes["mixed_5b"], (35, 35, 256))
        self.assertEqual(self.shapes["mixed_5d"], (35, 35, 288))
        for name in ("mixed_6a", "mixed_6e", "auxiliary"):
            self.assertEqual(self.shapes[name], (17, 17, 768))
        self.assertEqual(self.shapes["mixed_7a"], (8, 8, 1280))
        self.assertEqual(self.shapes["mixed_7c"], (8, 8, 2048))


class AuxiliaryHeadTest(absltest.TestCase):
    def test_loss_adds_the_head_metrics_leave_it_out(self):
        right, wrong = [[0.0, 9.0]], [[9.0, 0.0]]
        with tf.Graph().as_default(), v1.Session() as session:
            labels = tf.constant([1])
            losses = [
                inception.loss((tf.constant(main), tf.constant(head)), labels)
                for main, head in ((right, right), (right, wrong), (wrong, right))
            ]
            metrics = inception.metrics(
                (tf.constant(right), tf.constant(wrong)), labels
            )
            losses, metrics = session.run([losses, metrics])
        low, high = np.log1p(np.exp(-9.0)), np.log1p(np.exp(9.0))
        np.testing.assert_allclose(
            np.ravel(losses),
            [low + 0.4 * low, low + 0.4 * high, high + 0.4 * low],
            rtol=1e-3,
        )
        np.testing.assert_array_equal(metrics["top_1_accuracy"], [1.0])
