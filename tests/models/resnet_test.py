"""Residual networks: published sizes, and what tells the versions apart."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from models import layers, resnet
from towers.compute import flops

v1 = tf.compat.v1


def _graph(model, num_classes):
    """One image of the published size through the model, in training."""
    with tf.Graph().as_default() as graph:
        nn = layers.Layers(training=True, num_classes=num_classes)
        model.run(tf.zeros([1, *model.inputs.shape]), nn)
    return graph


def _parameters(graph):
    with graph.as_default():
        return sum(v.shape.num_elements() for v in v1.trainable_variables())


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
        # That they have as many as they say, models_test holds for every model.
        for version in (1, 2):
            model = resnet.cifar_resnet(depth, version=version)
            self.assertEqual(model.num_parameters, count)

    @parameterized.parameters(1, 2)
    def test_depth(self, version):
        graph = _graph(resnet.cifar_resnet(20, version=version), 10)
        self.assertLen(_types(graph, "Conv2D", "MatMul"), 20)

    def test_short_cut_takes_every_other_pixel_and_adds_channels_of_zeros(self):
        x = np.random.default_rng(0).normal(size=(2, 5, 5, 4)).astype(np.float32)
        with tf.Graph().as_default(), v1.Session() as session:
            nn = layers.Layers(training=True, num_classes=10)
            unit = resnet.preactivated_unit(
                tf.constant(x), nn, filters=8, strides=2, first=True
            )
            # Kernels of zero leave the short cut alone.
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
            types = _types(_graph(model, 10), conv, norm, relu, add)
            self.assertEqual(types[: 3 + len(want)], stem + want)

    def test_refuses_other_versions(self):
        with self.assertRaises(AssertionError):
            resnet.cifar_resnet(20, version=3)
        with self.assertRaises(AssertionError):
            resnet.imagenet_resnet(50, version=2)


class ImagenetTest(parameterized.TestCase):
    @parameterized.parameters(
        # Parameters: torchvision's num_params.  Multiply-adds: table 1 of He et al. for
        # version 1 (they round), torchvision's _ops for 1.5.
        (50, 1, 25_557_032, 3.8),
        (101, 1, 44_549_160, 7.6),
        (152, 1, 60_192_808, 11.3),
        (50, 1.5, 25_557_032, 4.089),
    )
    def test_published_size(self, depth, version, parameters, multiply_adds):
        graph = _graph(resnet.imagenet_resnet(depth, version=version), 1000)
        self.assertEqual(_parameters(graph), parameters)
        counted = flops.of_graph(graph, "") / 2e9
        self.assertAlmostEqual(counted, multiply_adds, delta=0.06)
        projections = 4
        self.assertLen(_types(graph, "Conv2D", "MatMul"), depth + projections)

    @parameterized.parameters((1, 1), (1.5, 3))
    def test_size_of_the_convolutions_with_the_stride(self, version, size):
        graph = _graph(resnet.imagenet_resnet(50, version=version), 10)
        halving = {
            tuple(op.inputs[1].shape[:2])
            for op in graph.get_operations()
            if op.type == "Conv2D"
            and op.name.startswith("stage")
            and op.get_attr("strides") == [1, 2, 2, 1]
        }
        projection = (1, 1)
        self.assertEqual(halving, {projection, (size, size)})

    def test_version_1_5_starts_as_the_identity(self):
        x = np.abs(np.random.default_rng(0).normal(size=(2, 4, 4, 8)))
        with tf.Graph().as_default(), v1.Session() as session:
            nn = layers.Layers(training=True, num_classes=10)
            y = resnet.bottleneck_unit(
                tf.constant(x, tf.float32), nn, filters=2, strides=1, version=1.5
            )
            session.run(v1.global_variables_initializer())
            np.testing.assert_allclose(session.run(y), x, rtol=1e-6)
