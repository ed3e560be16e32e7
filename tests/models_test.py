"""Every model by its name: the contract, swept over the table."""

import sys
import types

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import models
from models import layers

v1 = tf.compat.v1

_CIFAR = [f"resnet{depth}" for depth in (20, 32, 44, 56, 110)]

# Row of the table -> the least size of image that takes every layer somewhere.
_SMALL = {
    "trivial": (4, 4, 3),
    "mlp": (8, 8, 1),
    "lenet": (8, 8, 1),
    "cifar10_tutorial": (8, 8, 3),
    **{name: (16, 16, 3) for name in _CIFAR},
    **{f"{name}_v2": (16, 16, 3) for name in _CIFAR},
    "alexnet": (67, 67, 3),
    "vgg11": (32, 32, 3),
    "vgg16": (32, 32, 3),
    "vgg19": (32, 32, 3),
    "inception3": (299, 299, 3),
    "resnet50": (64, 64, 3),
    "resnet50_v1.5": (64, 64, 3),
    "resnet101": (64, 64, 3),
    "resnet152": (64, 64, 3),
}

_CLASSES = 7


def _config():
    """No graph optimizers: they take longer than the few steps that they speed up."""
    config = v1.ConfigProto()
    options = config.graph_options
    options.rewrite_options.disable_meta_optimizer = True
    options.optimizer_options.opt_level = v1.OptimizerOptions.L0
    return config


def _check_between_blocks(x):
    for part in x if isinstance(x, tuple) else (x,):
        assert part.shape.is_fully_defined() and part.shape[0] == 2, part
        assert part.dtype == tf.float32, part


def _build(model, shape, data_format="NHWC"):
    """The outputs of the model in the current graph, block by block."""
    nn = layers.Layers(
        training=True, num_classes=_CLASSES, data_format=data_format, seed=1
    )
    height, width, channels = shape
    order = (height, width, channels)
    if data_format == "NCHW":
        order = (channels, height, width)
    x = v1.placeholder(tf.float32, (2, *order), "features")
    with v1.variable_scope("", use_resource=True):
        for block in model.blocks:
            x = models.model.run_blocks([block], x, nn)
            _check_between_blocks(x)
    return x


class SweepTest(parameterized.TestCase):
    def test_every_row_is_swept(self):
        self.assertCountEqual(_SMALL, models.MODELS)

    @parameterized.parameters(*_SMALL)
    def test_descends(self, name):
        """A step down the gradient, which every variable has, lowers the loss."""
        model = models.get(name)
        rng = np.random.default_rng(0)
        with tf.Graph().as_default():
            v1.set_random_seed(1)
            outputs = _build(model, _SMALL[name])
            losses = model.loss(outputs, tf.constant([1, _CLASSES - 1]))
            metrics = model.metrics(outputs, tf.constant([1, _CLASSES - 1]))
            self.assertEqual(losses.shape, [2])
            self.assertEqual({m.shape.as_list()[0] for m in metrics.values()}, {2})
            variables = v1.trainable_variables()
            gradients = tf.gradients(tf.reduce_mean(losses), variables)
            without = [v.op.name for v, g in zip(variables, gradients) if g is None]
            self.assertEmpty(without)
            step = tf.group(
                *(v.assign_sub(1e-3 * g) for v, g in zip(variables, gradients))
            )
            features = {"features:0": rng.normal(size=(2, *_SMALL[name]))}
            with v1.Session(config=_config()) as session:
                session.run(v1.global_variables_initializer())
                before, _, values = session.run([losses, step, metrics], features)
                after = session.run(losses, features)
        self.assertTrue(np.isfinite(before).all(), before)
        self.assertLess(after.mean(), before.mean())
        self.assertContainsSubset(
            np.concatenate(list(values.values())).tolist(), [0.0, 1.0]
        )

    @parameterized.parameters(*_SMALL)
    def test_published_size(self, name):
        """At its own size the model has as many parameters as it says, in NCHW too."""
        model = models.get(name)
        with tf.Graph().as_default():
            outputs = _build(model, model.images.shape, "NCHW")
            for logits in outputs if isinstance(outputs, tuple) else (outputs,):
                self.assertEqual(logits.shape, [2, _CLASSES])
            variables = v1.trainable_variables()
        names = [v.op.name for v in variables]
        self.assertCountEqual(names, set(names))
        count = sum(v.shape.num_elements() for v in variables)
        # Every class more is one more row in each classifier.
        per_class = sum(
            v.shape.num_elements() // _CLASSES
            for v in variables
            if v.shape[-1] == _CLASSES
        )
        missing = model.images.num_classes - _CLASSES
        self.assertEqual(count + missing * per_class, model.num_parameters)

    @parameterized.parameters(*_SMALL)
    def test_recipe(self, name):
        model = models.get(name)
        self.assertEqual(model.name, name)
        recipe = model.recipe
        schedule = recipe.schedule
        self.assertLen(schedule.rates, len(schedule.epochs) + 1)
        self.assertSequenceEqual(sorted(schedule.epochs), schedule.epochs)
        self.assertGreater(recipe.batch_size, 0)
        self.assertGreater(recipe.num_epochs, schedule.warmup_epochs)


class GetTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        module = types.ModuleType("a_users_module")
        module.tiny = lambda: models.get("mlp")
        module.number = lambda: 3
        module.text = "not a function"
        sys.modules["a_users_module"] = module
        self.addCleanup(sys.modules.pop, "a_users_module")

    def test_a_users_own_model(self):
        self.assertEqual(models.get("a_users_module:tiny").name, "mlp")

    @parameterized.parameters(
        ("resnet5", "did you mean .*resnet50.*package.module:function"),
        ("lennet", "did you mean lenet"),
        ("zzzz", "did you mean .*alexnet.*vgg19"),
        ("no_such_module:f", "cannot import 'no_such_module'"),
        ("a_users_module:absent", "'a_users_module' has no function 'absent'"),
        ("a_users_module:text", "has no function 'text'"),
        ("a_users_module:", "has no function ''"),
        ("a_users_module:number", "number returned int, not a models.Model"),
        (":tiny", "cannot import ''"),
        (".module:tiny", "cannot import '.module'"),
    )
    def test_refuses(self, name, sentence):
        with self.assertRaisesRegex(ValueError, f"^--model={name}: .*{sentence}"):
            models.get(name)


if __name__ == "__main__":
    absltest.main()
