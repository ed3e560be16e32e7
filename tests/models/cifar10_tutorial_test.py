"""The CIFAR-10 tutorial's network: its order, initial values and decay."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from models import cifar10_tutorial, layers

v1 = tf.compat.v1


class Cifar10TutorialTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.graph = tf.Graph()
        self.enter_context(self.graph.as_default())
        v1.set_random_seed(1)
        nn = layers.Layers(training=True, num_classes=10)
        self.model = cifar10_tutorial.cifar10_tutorial()
        self.model.run(tf.zeros([2, *self.model.inputs.shape]), nn)
        self.variables = {v.op.name: v for v in v1.trainable_variables()}

    def test_normalises_after_the_first_pool_and_before_the_second(self):
        types = [op.type for op in self.graph.get_operations()]
        order = [t for t in types if t in ("Conv2D", "MaxPool", "LRN", "MatMul")]
        self.assertEqual(
            order,
            ["Conv2D", "MaxPool", "LRN", "Conv2D", "LRN", "MaxPool"] + 3 * ["MatMul"],
        )

    def test_initial_values(self):
        kernels = {
            "conv1/conv": 0.05,
            "conv2/conv": 0.05,
            "local3/dense": 0.04,
            "local4/dense": 0.04,
            "softmax_linear/dense": 1 / 192,
        }
        biases = [0.0, 0.1, 0.1, 0.1, 0.0]
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            values = session.run(self.variables)
        self.assertLen(values, 10)
        for (layer, deviation), bias in zip(kernels.items(), biases):
            kernel = values[f"{layer}/kernel"]
            # A normal distribution cut off at two deviations keeps 0.88 of its
            # deviation.
            self.assertAlmostEqual(kernel.std() / deviation, 0.88, delta=0.02)
            self.assertLessEqual(abs(kernel).max(), 2.0001 * deviation)
            np.testing.assert_allclose(values[f"{layer}/bias"], bias)

    def test_decays_the_two_hidden_dense_kernels(self):
        decayed = [name for name in self.variables if self.model.recipe.decayed(name)]
        self.assertEqual(decayed, ["local3/dense/kernel", "local4/dense/kernel"])
