"""VGG networks have their published sizes."""

import tensorflow as tf
from absl.testing import parameterized

from models import layers, vgg
from towers.compute import flops

v1 = tf.compat.v1


class VggTest(parameterized.TestCase):
    # num_params and _ops (billions of multiply-adds) of torchvision's models.
    @parameterized.parameters(
        (11, 132_863_336, 7.609), (16, 138_357_544, 15.47), (19, 143_667_240, 19.632)
    )
    def test_published_size(self, depth, parameters, multiply_adds):
        with tf.Graph().as_default() as graph:
            nn = layers.Layers(training=True, num_classes=1000)
            vgg.vgg(depth).run(tf.zeros([1, 224, 224, 3]), nn)
            variables = v1.trainable_variables()
        self.assertEqual(sum(v.shape.num_elements() for v in variables), parameters)
        self.assertLen([v for v in variables if "kernel" in v.op.name], depth)
        counted = flops.of_graph(graph, "") / 2e9
        self.assertAlmostEqual(counted, multiply_adds, delta=0.005)

    def test_every_layer_is_a_block(self):
        names = [name for name, _ in vgg.vgg(16).blocks]
        self.assertEqual(names[:3], ["conv1_1", "conv1_2", "conv2_1"])
        self.assertEqual(names[-4:], ["conv5_3", "dense6", "dense7", "logits"])
        self.assertLen(names, 16)
