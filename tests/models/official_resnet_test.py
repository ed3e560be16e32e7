"""The official residual networks: depth, strides, initial values."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from models import official_resnet
from tests.models import sizes

v1 = tf.compat.v1


class OfficialResnetTest(parameterized.TestCase):
    @parameterized.parameters(18, 50)
    def test_depth_and_strides(self, depth):
        for version in (1, 2):
            model = official_resnet.official_resnet(depth, version=version)
            operations = sizes.graph(model, num_classes=10).get_operations()
            convolutions = [op for op in operations if op.type == "Conv2D"]
            projections = 4
            self.assertLen(convolutions, depth - 1 + projections)
            strided = {
                tuple(op.inputs[1].shape[:2])
                for op in convolutions
                if op.name.startswith("stage")
                and op.get_attr("strides") == [1, 2, 2, 1]
            }
            self.assertEqual(strided, {(1, 1), (3, 3)})

    @parameterized.parameters(1, 2)
    def test_kernels_and_moving_averages(self, version):
        model = official_resnet.official_resnet(50, version=version)
        nn = sizes.layers_of(model, num_classes=1000)
        with tf.Graph().as_default():
            v1.set_random_seed(1)
            model.run(tf.zeros([1, 64, 64, 3]), nn)
            variables = {v.op.name: v for v in v1.trainable_variables()}
            last = max(name for name in variables if name.startswith("stage4_unit3/co"))
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                conv, dense = session.run(
                    [variables[last], variables["logits/dense/kernel"]]
                )
        fan_in = np.prod(conv.shape[:3])
        self.assertAlmostEqual(conv.var() * fan_in, 1.0, delta=0.02)
        limit = np.sqrt(6 / (2048 + 1000))
        self.assertAlmostEqual(abs(dense).max() / limit, 1.0, delta=1e-3)
        self.assertEqual({statistic.momentum for statistic in nn.statistics}, {0.997})

    def test_version_2_normalises_first_in_its_first_unit(self):
        model = official_resnet.official_resnet(18, version=2)
        graph = sizes.graph(model, num_classes=10)
        norms = [
            op.name
            for op in graph.get_operations()
            if op.type.startswith("FusedBatchNorm")
        ]
        self.assertStartsWith(norms[0], "stage1_unit1/")
        # Each of eight units has two, and the classifier one.
        self.assertLen(norms, 17)
