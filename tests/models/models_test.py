"""Every model by its name: the contract, swept over the table."""

import sys
import types
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import models
from tests.models import sizes
from tests.models.placeholder_getter import PlaceholderGetter
from tests.small_models import DISTINCT, SHAPES, shortened
from towers.compute import flops

v1 = tf.compat.v1


def _run(model, shape, **options):
    """The outputs for a batch of two; checks what passes from block to block."""
    nn = model.new_layers(training=True, seed=1, **options)
    dtype = tf.float32 if model.inputs.kind == "images" else tf.int32
    x = v1.placeholder(dtype, (2, *shape), "features")
    x = model.inputs.prepare(x, nn)
    for block in model.blocks:
        x = models.model.run_blocks([block], x, nn)
        for part in x if isinstance(x, tuple) else (x,):
            assert part.shape.is_fully_defined() and part.shape[0] == 2, part
            assert part.dtype == tf.float32, part
    return x


def _examples(model, shape, num_classes):
    """Two random examples."""
    rng = np.random.default_rng(0)
    if model.inputs.kind == "images":
        return rng.normal(size=(2, *shape)), np.array([1, 6])
    if model.inputs.kind == "pairs":
        return rng.integers(0, num_classes, (2, *shape)), np.array([1, 0])
    return rng.integers(0, num_classes, (2, 2, *shape))


class SweepTest(parameterized.TestCase):
    @parameterized.parameters(*DISTINCT)
    def test_a_step_down_the_gradient_lowers_the_loss(self, name):
        model = shortened(models.get(name))
        shape = SHAPES.get(name, model.inputs.shape)
        classes = (7, 5) if model.inputs.kind == "pairs" else 7
        features, labels = _examples(model, shape, classes)
        features = {"features:0": features}
        config = v1.ConfigProto()
        # Optimizing the graph takes longer than the few steps that it would speed up.
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        with tf.Graph().as_default():
            v1.set_random_seed(1)
            labels = tf.constant(labels, tf.int32)
            with v1.variable_scope("", use_resource=True):
                outputs = _run(model, shape, num_classes=classes)
            loss = tf.reduce_mean(model.loss(outputs, labels))
            variables = v1.trainable_variables()
            gradients = tf.gradients(loss, variables)
            step = tf.group(
                *(
                    v.assign_sub(1e-3 * tf.convert_to_tensor(g))
                    for v, g in zip(variables, gradients)
                )
            )
            with v1.Session(config=config) as session:
                session.run(v1.global_variables_initializer())
                before, _ = session.run([loss, step], features)
                after = session.run(loss, features)
        self.assertTrue(np.isfinite(before))
        self.assertLess(after, before)

    @parameterized.parameters(*models.MODELS)
    def test_at_its_own_size_in_the_other_format(self, name):
        model, reads = models.get(name), PlaceholderGetter()
        classes = model.inputs.num_classes
        with tf.Graph().as_default() as built:
            shape = model.inputs.shape if model.inputs.kind == "tokens" else ()
            labels = v1.placeholder(tf.int32, [2, *shape])
            with v1.variable_scope("", custom_getter=reads):
                outputs = _run(
                    model, model.inputs.shape, num_classes=classes, data_format="NCHW"
                )
            if model.inputs.kind == "images":
                of_two_images = 2 * 2e9 * sizes.multiply_adds(name)
                error = flops.of_graph(built) / of_two_images - 1
                self.assertLess(abs(error), 0.005)
            losses = model.loss(outputs, labels)
            metrics = model.metrics(outputs, labels)
            read = list(reads.trainable.values()) if name in DISTINCT else []
            gradients = tf.gradients(losses, read)
        for logits in outputs if isinstance(outputs, tuple) else (outputs,):
            last = () if model.inputs.kind == "pairs" else (classes,)
            self.assertEqual(logits.shape, [2, *shape, *last])
        self.assertEqual({v.shape[0] for v in (losses, *metrics.values())}, {2})
        for read, gradient in zip(reads.trainable, gradients):
            self.assertIsNotNone(gradient, read)
        counts = [value.shape.num_elements() for value in reads.trainable.values()]
        self.assertEqual(sum(counts), model.num_parameters)

    @parameterized.parameters(*models.MODELS)
    def test_recipe(self, name):
        model = models.get(name)
        self.assertEqual(model.name, name)
        recipe, schedule = model.recipe, model.recipe.schedule
        self.assertLen(schedule.rates, len(schedule.epochs) + 1)
        self.assertSequenceEqual(sorted(schedule.epochs), schedule.epochs)
        self.assertGreater(recipe.num_epochs, schedule.warmup_epochs)


class GetTest(parameterized.TestCase):
    def test_a_users_own_model(self):
        module = types.ModuleType("a_users_module")
        module.tiny = lambda: models.get("mlp")
        with mock.patch.dict(sys.modules, a_users_module=module):
            self.assertEqual(models.get("a_users_module:tiny").name, "mlp")

    @parameterized.parameters(
        ("resnet5", "did you mean .*resnet50.*package.module:function"),
        ("lennet", "did you mean lenet"),
        ("ssd300", "of tf_cnn_benchmarks is not here now; .*lists those that are"),
        ("deepspeech2", "is not here now; .*towers.models lists those that are"),
        (
            "zzzz",
            "no such model; .*towers.models lists them .*package.module:function",
        ),
        (
            "zzzz.f",
            "no such model; .*towers.models lists them .*file.py:function",
        ),
        (
            "mine.py",
            "no such model; .*towers.models lists them .*file.py:function",
        ),
        (":tiny", "write path/to/file.py:function or package.module:function"),
    )
    def test_refuses(self, name, sentence):
        with self.assertRaisesRegex(ValueError, f"^model={name}: .*{sentence}"):
            models.get(name)
