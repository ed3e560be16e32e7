"""Inception-v4: published size, and its modules."""

from absl.testing import absltest

from models import inception4
from tests.models import sizes


class Inception4Test(absltest.TestCase):
    def test_scales_that_the_published_count_has(self):
        graph = sizes.graph(inception4.inception4(), num_classes=1000)
        variables = graph.get_collection("trainable_variables")
        offsets = [v for v in variables if v.op.name.endswith("/beta")]
        self.assertEqual(sum(v.shape.num_elements() for v in offsets), 31_584)

    def test_shapes(self):
        shapes = sizes.block_shapes(inception4.inception4(), num_classes=1000)
        # Figure 9 of the paper, and the filters of figure 3.
        self.assertEqual(shapes["mixed_3a"], (73, 73, 160))
        self.assertEqual(shapes["mixed_4a"], (71, 71, 192))
        for name in ("mixed_5a", "mixed_5b", "mixed_5e"):
            self.assertEqual(shapes[name], (35, 35, 384))
        for name in ("mixed_6a", "mixed_6b", "mixed_6h"):
            self.assertEqual(shapes[name], (17, 17, 1024))
        for name in ("mixed_7a", "mixed_7b", "mixed_7d"):
            self.assertEqual(shapes[name], (8, 8, 1536))
        self.assertLen(shapes, 3 + 3 + 4 + 1 + 7 + 1 + 3 + 1)
