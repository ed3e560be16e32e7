"""Residual networks for ImageNet: published sizes, and what the versions do."""

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
    # Parameters and multiply-adds in billions: torchvision's num_params and _ops; for
    # strides in the 1 x 1 convolutions, and for version 2, the table of osmr/imgclsmob,
    # which counts some of the batch norm, and normalises 64 channels once more.
    @parameterized.parameters(
        (18, 1, 11_689_512, 1.814),
        (34, 1, 21_797_672, 3.664),
        (50, 1, 25_557_032, 3.869),
        (101, 1, 44_549_160, 7.586),
        (152, 1, 60_192_808, 11.305),
        (50, 1.5, 25_557_032, 4.089),
        (50, 2, 25_549_480 - 128, 3.869),
        (101, 2, 44_541_608 - 128, 7.587),
        (152, 2, 60_185_256 - 128, 11.305),
    )
    def test_published_size(self, depth, version, parameters, multiply_adds):
        model = imagenet_resnet.imagenet_resnet(depth, version=version)
        measured = sizes.measure(model, num_classes=1000)
        self.assertEqual(measured.parameters, parameters)
        error = abs(measured.multiply_adds - multiply_adds)
        self.assertLess(error, 0.003 * multiply_adds)
        projections = 3 if depth < 50 else 4
        self.assertEqual(measured.products, depth + projections)

    @parameterized.parameters((1, 1), (1.5, 3), (2, 1))
    def test_size_of_the_convolutions_with_the_strides(self, version, size):
        model = imagenet_resnet.imagenet_resnet(50, version=version)
        projection = (1, 1)
        strided = _strided_kernels(sizes.graph(model, num_classes=10))
        self.assertEqual(strided, {projection, (size, size)})

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
            # Kernels of zero leave the short cut alone.
            session.run([v.assign(tf.zeros_like(v)) for v in v1.trainable_variables()])
            session.run(
                [
                    v.initializer
                    for v in v1.global_variables()
                    if v not in v1.trainable_variables()
                ]
            )
            np.testing.assert_allclose(session.run(y), x)
