"""PyTorch's DataLoader reads the JPEGs; needs torchvision, else it is skipped."""

import unittest

from absl.testing import parameterized

from tests.image_folders import ImageFoldersTestCase

try:
    from benchmarks.peers import torch_input
except ImportError:
    torch_input = None


@unittest.skipIf(torch_input is None, "needs torchvision, no dependency of ours")
class TorchInputTest(ImageFoldersTestCase):
    @parameterized.parameters("training", "evaluation")
    def test_batches_of_both_kinds_epoch_after_epoch(self, kind):
        batches = torch_input.input_batches(str(self.root / "folders/train"), kind, 8)
        for _ in range(5):  # 24 images
            images, labels = next(batches)
            self.assertEqual(tuple(images.shape), (8, 3, 224, 224))
            self.assertLessEqual(int(labels.max()), 3)
            self.assertLessEqual(float(images.abs().max()), 1.0)
