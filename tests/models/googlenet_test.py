"""GoogLeNet: published size, and its modules."""

from absl.testing import absltest

from models import googlenet
from tests.models import sizes


class GooglenetTest(absltest.TestCase):
    def test_published_size(self):
        # OpenVINO's table has 6.999 million for Caffe's network with 1000 classes.
        parameters = googlenet.googlenet().num_parameters - 1025
        self.assertEqual(round(parameters / 1e6, 3), 6.999)

    def test_shapes(self):
        shapes = sizes.block_shapes(googlenet.googlenet(), num_classes=1000)
        # Table 1 of the paper; a pool after a module is part of its block.
        self.assertEqual(
            shapes,
            {
                "conv1": (56, 56, 64),
                "conv2": (28, 28, 192),
                "inception_3a": (28, 28, 256),
                "inception_3b": (14, 14, 480),
                "inception_4a": (14, 14, 512),
                "inception_4b": (14, 14, 512),
                "inception_4c": (14, 14, 512),
                "inception_4d": (14, 14, 528),
                "inception_4e": (7, 7, 832),
                "inception_5a": (7, 7, 832),
                "inception_5b": (7, 7, 1024),
                "logits": (1000,),
            },
        )
