"""The bare graph has the same layers as this project's models."""

import contextlib
import io

import tensorflow as tf
from absl.testing import parameterized

from benchmarks.lib.process import TOTAL
from benchmarks.peers import bare_peer, systems
from models.layers import Layers
from tests.benchmarks.peers import peer_models

v1 = tf.compat.v1


def _sizes_of_ours(name: str) -> list[int]:
    with tf.Graph().as_default():
        model = peer_models.ours(name)
        images = tf.zeros([2, *bare_peer.MODELS[name].shape])
        nn = Layers(training=True, num_classes=model.inputs.num_classes)
        model.run(images, nn)
        return sorted(v.shape.num_elements() for v in v1.trainable_variables())


class BarePeerTest(parameterized.TestCase):
    @parameterized.parameters(*systems.BARE_MODELS)
    def test_has_our_layers(self, name):
        with tf.Graph().as_default() as graph:
            row = bare_peer.MODELS[name]
            _, net = bare_peer.build(row, 2, 2, dtype=tf.bfloat16, rate=0.1)
            types = [op.type for op in graph.get_operations()]
        sizes = sorted(v.shape.num_elements() for v in net.variables)
        self.assertEqual(sizes, _sizes_of_ours(name))
        # One update of each variable, for both towers.
        self.assertEqual(
            types.count("ResourceApplyGradientDescent"), len(net.variables)
        )

    def test_has_the_models_that_systems_says(self):
        self.assertCountEqual(bare_peer.MODELS, systems.BARE_MODELS)

    def test_trains(self):
        output = io.StringIO()
        arguments = ["--num_batches=3", "--num_devices=2", "--batch_size=2"]
        with contextlib.redirect_stdout(output):
            bare_peer.main([*arguments, "--compute_dtype=bfloat16"])
        self.assertTrue(TOTAL.match(output.getvalue()))
