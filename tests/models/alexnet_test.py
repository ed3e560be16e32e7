"""AlexNet, layer by layer."""

import tensorflow as tf
from absl.testing import absltest

from models import alexnet, layers

v1 = tf.compat.v1


class AlexnetTest(absltest.TestCase):
    def test_is_that_of_tf_cnn_benchmarks(self):
        with tf.Graph().as_default():
            nn = layers.Layers(training=True, num_classes=1001)
            alexnet.alexnet().run(tf.zeros([2, 227, 227, 3]), nn)
            kernels = [v for v in v1.trainable_variables() if "kernel" in v.op.name]
        self.assertEqual(
            [kernel.shape.as_list() for kernel in kernels],
            [
                [11, 11, 3, 64],
                [5, 5, 64, 192],
                [3, 3, 192, 384],
                [3, 3, 384, 384],
                [3, 3, 384, 256],
                [6 * 6 * 256, 4096],
                [4096, 4096],
                [4096, 1001],
            ],
        )

    def test_for_cifar10_starts_and_decays_as_in_tf_cnn_benchmarks(self):
        model = alexnet.alexnet_cifar10()
        with tf.Graph().as_default(), v1.Session() as session:
            v1.set_random_seed(1)
            nn = layers.Layers(training=True, num_classes=1000)
            model.run(tf.zeros([2, *model.inputs.shape]), nn)
            variables = v1.trainable_variables()
            self.assertTrue(all(model.recipe.decays(v.op.name) for v in variables))
            session.run(v1.global_variables_initializer())
            kernel = session.run(v1.trainable_variables("logits/dense/kernel")[0])
        self.assertAlmostEqual(kernel.var() * 192, 1.0, delta=0.05)
