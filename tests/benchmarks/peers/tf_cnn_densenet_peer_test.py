"""The DenseNets of tf_cnn_benchmarks are made with the argument that it passes."""

import sys

from absl.testing import absltest

from benchmarks.lib import process
from benchmarks.peers import tf_cnn_densenet_peer

_DENSENET = """
class DensenetCifar10Model:
    def __init__(self, model, layer_counts, growth_rate, params=None):
        self.made = model, layer_counts, growth_rate, params

def create_densenet100_k24_model():
    return DensenetCifar10Model("densenet100_k24", (32, 32, 32), 24)
"""
# As in models/model_config.py.
_PROGRAM = """
import sys
from models import densenet_model

print(densenet_model.create_densenet100_k24_model(params=sys.argv[1]).made)
"""


class DenseNetPeerTest(absltest.TestCase):
    def test_makes_them_with_params(self):
        folder = self.create_tempdir()
        folder.create_file("models/__init__.py")
        folder.create_file("models/densenet_model.py", _DENSENET)
        folder.create_file("tf_cnn_benchmarks.py", _PROGRAM)
        argv = [sys.executable, tf_cnn_densenet_peer.__file__, "--num_gpus=2"]
        finished = process.run(process.Command(argv, cwd=folder.full_path))
        self.assertEqual(
            [text for _, text in finished.lines],
            ["('densenet100_k24', (32, 32, 32), 24, '--num_gpus=2')"],
        )
