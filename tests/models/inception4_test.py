"""Inception-v4: published size, and its modules."""

import tensorflow as tf
from absl.testing import absltest

from models import inception4, model
from tests.models import sizes

v1 = tf.compat.v1


class Inception4Test(absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        """Runs one image through the model, block by block."""
        super().setUpClass()
        cls.shapes = {}
        net = inception4.inception4()
        with tf.Graph().as_default():
            nn = sizes.layers_of(net, num_classes=1000)
            x = tf.zeros([1, *net.inputs.shape])
            for block in net.blocks:
                x = model.run_blocks([block], x, nn)
                cls.shapes[block[0]] = tuple(x.shape[1:])
            cls.variables = v1.trainable_variables()

    def test_parameters(self):
        # The table of osmr/imgclsmob, whose network has a scale per channel.
        offsets = [v for v in self.variables if v.op.name.endswith("/beta")]
        scales = sum(v.shape.num_elements() for v in offsets)
        count = sum(v.shape.num_elements() for v in self.variables)
        self.assertEqual(count + scales, 42_679_816)

    def test_shapes(self):
        # Figure 9 of the paper, and the filters of figure 3.
        self.assertEqual(self.shapes["mixed_3a"], (73, 73, 160))
        self.assertEqual(self.shapes["mixed_4a"], (71, 71, 192))
        for name in ("mixed_5a", "mixed_5b", "mixed_5e"):
            self.assertEqual(self.shapes[name], (35, 35, 384))
        for name in ("mixed_6a", "mixed_6b", "mixed_6h"):
            self.assertEqual(self.shapes[name], (17, 17, 1024))
        for name in ("mixed_7a", "mixed_7b", "mixed_7d"):
            self.assertEqual(self.shapes[name], (8, 8, 1536))
        self.assertLen(self.shapes, 3 + 3 + 4 + 1 + 7 + 1 + 3 + 1)
