"""Residual networks for ImageNet: depth, strides, and what the versions do."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from models import imagenet_resnet
from tests.models import sizes

v1 = tf.compat.v1


def _strided_kernels(graph):
    """Sizes of the convolutions with strides of 2 behind the stem."""
    return {
        tuple(op.inputs[1].shape[:2])
        for op in graph.get_operations()
        if op.type == "Conv2D"
        and op.name.startswith("stage")
        and op.get_attr("strides") == [1, 2, 2, 1]
    }


class ImagenetResnetTest(parameterized.TestCase):
    @parameterized.parameters((18, 1, 3), (50, 1, 4), (50, 2, 4))
    def test_depth(self, depth, version, projections):
        model = imagenet_resnet.imagenet_resnet(depth, version=version)
        operations = sizes.graph(model, num_classes=10).get_operations()
        types = [op.type for op in operations]
        products = types.count("Conv2D") + types.count("MatMul")
        self.assertEqual(products, depth + projections)

    @parameterized.parameters((1, 1), (1.5, 3), (2, 1))
    def test_size_of_the_convolutions_with_the_strides(self, version, size):
        model = imagenet_resnet.imagenet_resnet(50, version=version)
        projection = (1, 1)
        strided = _strided_kernels(sizes.graph(model, num_classes=10))
        self.assertEqual(strided, {projection, (size, size)})

    def test_version_2_projects_what_is_rectified(self):
        model = imagenet_resnet.imagenet_resnet(50, version=2)
        graph = sizes.graph(model, num_classes=10)
        reads = [
            op.inputs[0].op.type
            for op in graph.get_operations()
            if op.type == "Conv2D" and op.name.startswith("stage2_unit1/")
        ]
        self.assertEqual(reads, 4 * ["Relu"])

    def test_version_1_5_starts_as_the_identity(self):
        x = np.abs(np.random.default_rng(0).normal(size=(2, 4, 4, 8)))
        with tf.Graph().as_default(), v1.Session() as session:
            y = imagenet_resnet.residual_unit(
                tf.constant(x, tf.float32),
                sizes.layers_of(imagenet_resnet.imagenet_resnet(50), num_classes=10),
                convolutions=imagenet_resnet.bottleneck(2, 1, strided=3),
                projects=False,
                starts_as_identity=True,
            )
            session.run(v1.global_variables_initializer())
            np.testing.assert_allclose(session.run(y), x, rtol=1e-6)

    def test_version_2_adds_to_what_it_has_not_rectified(self):
        x = np.random.default_rng(0).normal(size=(2, 4, 4, 8)).astype(np.float32)
        with tf.Graph().as_default(), v1.Session() as session:
            y = imagenet_resnet.preactivated_unit(
                tf.constant(x),
                sizes.layers_of(imagenet_resnet.imagenet_resnet(50), num_classes=10),
                convolutions=imagenet_resnet.bottleneck(2, 1),
                projects=False,
            )
            # With kernels of zero a unit returns its short cut.
            session.run([v.assign(tf.zeros_like(v)) for v in v1.trainable_variables()])
            session.run(
                [
                    v.initializer
                    for v in v1.global_variables()
                    if v not in v1.trainable_variables()
                ]
            )
            np.testing.assert_allclose(session.run(y), x)
