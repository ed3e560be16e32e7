"""PyTorch's models have this project's layers; needs PyTorch, else it is skipped."""

import contextlib
import io
import unittest

import tensorflow as tf
from absl.testing import parameterized

from benchmarks.lib.process import TOTAL
from benchmarks.peers import systems
from models.layers import Layers
from tests.benchmarks.peers import peer_models

try:
    from benchmarks.peers import torch_peer
except ImportError:
    torch_peer = None

v1 = tf.compat.v1


def _sizes_of_ours(name: str) -> tuple[list[int], list[int]]:
    """Elements of each trainable variable, in order; and the shape of the logits."""
    with tf.Graph().as_default():
        model = peer_models.ours(name)
        images = tf.zeros([2, *model.inputs.shape])
        nn = Layers(training=True, num_classes=model.inputs.num_classes)
        outputs = model.run(images, nn)
        sizes = [v.shape.num_elements() for v in v1.trainable_variables()]
    return sizes, outputs.shape.as_list()


@unittest.skipIf(torch_peer is None, "needs PyTorch, which is no dependency of ours")
class TorchPeerTest(parameterized.TestCase):
    @parameterized.parameters(*systems.PEER_MODELS)
    def test_has_our_layers(self, name):
        row = torch_peer.MODELS[name]
        network = row.network()
        sizes, shape = _sizes_of_ours(name)
        self.assertEqual([p.numel() for p in network.parameters()], sizes)
        images = torch_peer.torch.rand(2, *row.shape)
        self.assertEqual(list(network(images).shape), shape)

    def test_has_the_models_that_systems_says(self):
        self.assertCountEqual(torch_peer.MODELS, systems.PEER_MODELS)

    def test_trains(self):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            torch_peer.main(["--model=mlp", "--num_batches=3"])
        self.assertTrue(TOTAL.match(output.getvalue()))
