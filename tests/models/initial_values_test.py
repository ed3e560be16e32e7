"""Tests of models.initial_values: variances of kernels, and who sets them."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from models import imagenet_resnet
from models.initial_values import (
    CONV_INITIALIZERS,
    DENSE_INITIALIZERS,
    InitialValues,
)
from tests import trainer
from towers.layout.stages import Pipeline

v1 = tf.compat.v1

# A normal distribution cut off at two deviations keeps this part of its variance.
_LEFT = 0.7737

_VARIANCE_TIMES_FAN_IN = {"he_normal": 2.0, "lecun_normal": 1.0}


def _variance(initializer, shape):
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(7)
        return float(np.var(session.run(initializer(shape, tf.float32))))


class InitialValuesTest(parameterized.TestCase):
    def test_every_row_is_tested(self):
        self.assertEqual(set(_VARIANCE_TIMES_FAN_IN), set(CONV_INITIALIZERS))
        names = {"variance_scaling", "truncated_normal"}
        self.assertEqual(names, set(DENSE_INITIALIZERS))

    @parameterized.parameters(*_VARIANCE_TIMES_FAN_IN.items())
    def test_convolutions(self, name, product):
        shape = [3, 3, 20, 300]
        variance = _variance(InitialValues(conv=name).of_conv(), shape)
        self.assertAlmostEqual(variance * 3 * 3 * 20 / product, 1.0, delta=0.02)
        variance = _variance(InitialValues(conv=name).of_conv("fan_out"), shape)
        self.assertAlmostEqual(variance * 3 * 3 * 300 / product, 1.0, delta=0.02)

    @parameterized.product(
        name=("variance_scaling", "truncated_normal"), activation=(True, False)
    )
    def test_dense_layers(self, name, activation):
        values = InitialValues(dense=name)
        initializer = values.of_dense(200, activation=activation)
        product = _variance(initializer, [200, 300]) * 200
        left = _LEFT if name == "truncated_normal" else 1.0
        wanted = left * (2.0 if activation else 1.0)
        self.assertAlmostEqual(product / wanted, 1.0, delta=0.02)


class TrainedTest(parameterized.TestCase):
    @parameterized.parameters(
        {"towers": 1},
        {"towers": 2},
        {"towers": 2, "variable_update": "replicated"},
        {"towers": 2, "stages": 2},
    )
    def test_the_towers_variables_start_with_them(self, towers, stages=1, **options):
        def conv(x, nn):
            return nn.conv(nn.conv(x, 200, 3, use_bias=False), 2, 1, use_bias=False)

        def logits(x, nn):
            return nn.dense(nn.flatten(x), nn.num_classes)

        if stages > 1:
            options["pipeline"] = Pipeline(stages=stages, micro_batches=2)
        kernel = "conv/conv_1/kernel"
        products = []
        for values in (InitialValues(), InitialValues(conv="lecun_normal")):
            training = trainer.Trainer(
                model=trainer.model_of(conv, logits),
                towers=towers,
                initial_values=values,
                **options,
            ).start()
            products.append(np.var(training.values()[kernel]) * 200)
        self.assertAlmostEqual(products[0] / products[1], 2.0, delta=1e-3)

    @parameterized.parameters(
        (1, None, 1.0), (1, True, 0.0), (1.5, None, 0.0), (1.5, False, 1.0)
    )
    def test_the_last_scale_of_a_residual_unit(self, version, zero_gamma, wanted):
        model = imagenet_resnet.imagenet_resnet(50, version=version)
        with tf.Graph().as_default(), v1.Session() as session:
            nn = model.new_layers(training=True, num_classes=3)
            nn.initial_values = InitialValues(zero_gamma=zero_gamma)
            unit = dict(model.blocks)["stage1_unit1"]
            unit(tf.ones([1, 4, 4, 64]), nn)
            session.run(v1.global_variables_initializer())
            last = [v for v in v1.trainable_variables() if "norm_2/gamma" in v.name]
            np.testing.assert_array_equal(session.run(last[0]), wanted)
