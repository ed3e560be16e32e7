"""Inception-v3: its modules and the auxiliary head."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from models import inception
from tests.models import sizes

v1 = tf.compat.v1


class InceptionTest(absltest.TestCase):
    def test_shapes(self):
        shapes = sizes.block_shapes(inception.inception3(), num_classes=1000)
        # Table 1 of the paper, but for the padding of its stem.
        self.assertEqual(shapes["stem5"], (35, 35, 192))
        self.assertEqual(shapes["mixed_5b"], (35, 35, 256))
        self.assertEqual(shapes["mixed_5d"], (35, 35, 288))
        for name in ("mixed_6a", "mixed_6e", "auxiliary"):
            self.assertEqual(shapes[name], (17, 17, 768))
        self.assertEqual(shapes["mixed_7a"], (8, 8, 1280))
        self.assertEqual(shapes["mixed_7c"], (8, 8, 2048))


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
