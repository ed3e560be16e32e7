"""The networks that are compared, their batches, and how."""

import numpy as np
from absl.testing import parameterized

import models
from benchmarks.lib import tf_cnn
from benchmarks.lib.shared_networks import NETS, TrainingCase, random_batches


class SharedNetworksTest(parameterized.TestCase):
    @parameterized.parameters(*NETS)
    def test_the_translation_knows_the_network(self, name):
        flags = TrainingCase(name, "replicated", 2, "sgd").flags(10)
        arguments = tf_cnn.translation_of(flags).arguments
        (model,) = [a.partition("=")[2] for a in arguments if a[:8] == "--model="]
        size = NETS[name].size
        self.assertEqual(models.get(model).inputs.shape[:2], (size, size))

    def test_batches(self):
        batches = random_batches(TrainingCase("lenet", "replicated", 2, "sgd"), 3)
        self.assertEqual(batches["images"].shape, (3, 2, 16, 28, 28, 3))
        self.assertEqual(batches["labels"].shape, (3, 2, 16))
        # No image comes twice.
        self.assertLen(np.unique(batches["images"][..., 0, 0, 0]), 96)
        self.assertBetween(batches["labels"].max(), 900, 999)  # 1000 and a background

    @parameterized.parameters(
        (False, False, ""),
        (True, False, "plain gradients"),
        (False, True, "each step"),
        (True, True, "each step, plain gradients"),
    )
    def test_how_the_two_are_compared(self, plain, each, words):
        case = TrainingCase("lenet", "replicated", 1, "sgd", plain, each)
        self.assertEqual(case.how, words)
