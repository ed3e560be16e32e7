"""The official residual networks: published sizes, strides, initial values."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from models import official_resnet
from tests.models import sizes

v1 = tf.compat.v1


class OfficialResnetTest(parameterized.TestCase):
    # Millions of parameters and billions of multiply-adds of the same networks
    # elsewhere: torchvision's, and of version 2 and 200 layers osmr/imgclsmob's
    # (table of models).  The projection of the first stage adds 0.013 billion.
    @parameterized.parameters(
        (18, 1, 11.69, 1.814 + 0.013),
        (34, 1, 21.80, 3.664 + 0.013),
        (50, 1, 25.56, 4.089),
        (101, 1, 44.55, 7.801),
        (152, 1, 60.19, 11.514),
        (200, 1, 64.67, 15.04),
        (18, 2, 11.69, 1.818 + 0.013),
        (34, 2, 21.80, 3.669 + 0.013),
        (50, 2, 25.55, 4.101),
        (101, 2, 44.54, 7.818),
        (152, 2, 60.19, 11.537),
        (200, 2, 64.67, 15.04),
    )
    def test_published_size(self, depth, version, millions, multiply_adds):
        model = official_resnet.official_resnet(depth, version=version)
        measured = sizes.measure(model, num_classes=1000)
        self.assertEqual(round(measured.parameters / 1e6, 2), millions)
        error = abs(measured.multiply_adds - multiply_adds)
        self.assertLess(error, 0.003 * multiply_adds)
        projections = 4
        self.assertEqual(measured.products, depth + projections)

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
