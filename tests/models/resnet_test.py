"""Residual networks for CIFAR-10: published sizes, and what the versions do."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from models import layers, resnet
from tests.models import sizes

v1 = tf.compat.v1


def _types(graph, *types):
    """Types of those of the model's operations, in order, that are among `types`."""
    return [
        op.type
        for op in graph.get_operations()
        if op.type in types and "/Initializer/" not in op.name
    ]


class CifarTest(parameterized.TestCase):
    @parameterized.parameters(
        # Table 6 of He et al.: millions of parameters.
        (20, 0.27, 2),
        (32, 0.46, 2),
        (44, 0.66, 2),
        (56, 0.85, 2),
        (110, 1.7, 1),
    )
    def test_parameters(self, depth, millions, digits):
        # For n units per stage: nothing in the short cuts (option A), and a scale and
        # an offset for each normalised channel.
        n = (depth - 2) // 6
        stem, classifier = 9 * 3 * 16 + 2 * 16, 64 * 10 + 10
        stages = sum(
            (9 * before * width + 2 * width)
            + (2 * n - 1) * (9 * width * width + 2 * width)
            for before, width in ((16, 16), (16, 32), (32, 64))
        )
        count = stem + stages + classifier
        self.assertEqual(round(count / 1e6, digits), millions)
        # models_test checks each model's count against its variables.
        for version in (1, 2):
            model = resnet.cifar_resnet(depth, version=version)
            self.assertEqual(model.num_parameters, count)

    @parameterized.parameters(1, 2)
    def test_depth(self, version):
        model = resnet.cifar_resnet(20, version=version)
        graph = sizes.graph(model, num_classes=10)
        self.assertLen(_types(graph, "Conv2D", "MatMul"), 20)

    def test_short_cut_takes_every_other_pixel_and_adds_channels_of_zeros(self):
        x = np.random.default_rng(0).normal(size=(2, 5, 5, 4)).astype(np.float32)
        with tf.Graph().as_default(), v1.Session() as session:
            nn = layers.Layers(training=True, num_classes=10)
            unit = resnet.preactivated_unit(
                tf.constant(x), nn, filters=8, strides=2, first=True
            )
            # With kernels of zero a unit returns its short cut.
            zeros = [v.assign(tf.zeros_like(v)) for v in v1.trainable_variables()]
            session.run(zeros)
            actual = session.run(unit)
        want = np.pad(x[:, ::2, ::2], [(0, 0)] * 3 + [(2, 2)])
        np.testing.assert_allclose(actual, want)

    def test_version_2_normalises_before_it_convolves(self):
        conv, norm, relu, add = "Conv2D", "FusedBatchNormV3", "Relu", "AddV2"
        stem, before = [conv, norm, relu], [norm, relu, conv]
        unit = [conv, norm, relu, conv, norm, add, relu]
        units = {1: [*unit, *unit], 2: [conv, *before, add, *before, *before, add]}
        for version, want in units.items():
            model = resnet.cifar_resnet(20, version=version)
            graph = sizes.graph(model, num_classes=10)
            types = _types(graph, conv, norm, relu, add)
            self.assertEqual(types[: 3 + len(want)], stem + want)

    def test_refuses_other_versions(self):
        with self.assertRaises(AssertionError):
            resnet.cifar_resnet(20, version=3)
