"""What a model that is traced sees of its graph: its variables, and no devices."""

import dataclasses
import functools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from models.model import softmax_cross_entropy, top_k_accuracy
from tests import embedding_models, trainer
from towers.compute.traced import TracedGraph
from towers.compute.variable_getter import VariablePlaceholders
from towers.layout.shards import Shards
from towers.layout.stages import Pipeline

v1 = tf.compat.v1

_FACTOR = 0.02


def hidden(x, nn):
    return nn.dense(nn.flatten(x), 8, activation=tf.nn.relu)


def normed(x, nn):
    return nn.batch_norm(x)


def logits(x, nn):
    return nn.dense(x, nn.num_classes)


def _squares(variables):
    return tf.add_n([tf.nn.l2_loss(tf.cast(v, tf.float32)) for v in variables])


def _l2_loss(outputs, labels):
    """A hand-made L2 penalty, as programs for TensorFlow 1 have it."""
    plain = softmax_cross_entropy(outputs, labels)
    kernels = [v for v in v1.trainable_variables() if "kernel" in v.name]
    return plain + _FACTOR * _squares(kernels)


def _steps(model, *, towers=1, weight_decay=0.0, source=None, **options):
    update = dataclasses.replace(trainer.MOMENTUM, weight_decay=weight_decay)
    training = trainer.Trainer(
        model,
        source or trainer.random_source(num_examples=22),  # the last batch is short
        towers=towers,
        batch_size=8 // towers // options.get("accumulate_steps", 1),
        update=update,
        limit=22,
        **options,
    )
    return training.start().to_the_end()


@functools.cache
def _decayed():
    """What one tower comes to with the weight decay of the optimizer."""
    decayed = dataclasses.replace(
        trainer.MOMENTUM, weight_decay=_FACTOR, decayed=lambda name: "kernel" in name
    )
    plain = trainer.Trainer(
        trainer.model_of(hidden, logits),
        trainer.random_source(num_examples=22),
        update=decayed,
        limit=22,
    )
    return plain.start().to_the_end()


class VariablesTest(parameterized.TestCase):
    @parameterized.parameters(
        dict(),
        dict(towers=4),
        dict(towers=2, accumulate_steps=2),
        dict(towers=2, variable_update="replicated"),
        dict(towers=4, variable_update="distributed_replicated"),
        dict(towers=2, xla_compile=True),
        dict(pipeline=Pipeline(stages=2, micro_batches=2)),
        dict(towers=2, pipeline=Pipeline(stages=2, micro_batches=2)),
        dict(towers=2, pipeline=Pipeline(recompute="block")),
    )
    def test_a_hand_made_l2_is_a_weight_decay(self, **how):
        """In every mode, for any number of towers and stages."""
        model = trainer.model_of(hidden, logits, loss=_l2_loss)
        wanted = _decayed()
        self.assertLess(trainer.difference(wanted, _steps(model, **how)), 1e-5)

    def test_the_weight_decay_makes_a_difference(self):
        without = _steps(trainer.model_of(hidden, logits))
        self.assertGreater(trainer.difference(_decayed(), without), 1e-3)

    def test_what_each_block_sees(self):
        seen = {}

        def see(where, trainable=True):
            every = v1.trainable_variables() if trainable else v1.global_variables()
            seen.setdefault(where, [v.op.name for v in every])

        def first(x, nn):
            see("first")
            y = normed(hidden(x, nn), nn)
            see("after")
            see("all", trainable=False)
            see("models", trainable=False)
            seen["scope"] = [v.op.name for v in v1.trainable_variables("first/dense")]
            seen["model"] = [v.op.name for v in v1.model_variables()]
            ref = v1.get_collection_ref(v1.GraphKeys.TRAINABLE_VARIABLES)
            seen["ref"] = [v.op.name for v in ref]
            return y

        def loss(outputs, labels):
            see("loss")
            return softmax_cross_entropy(outputs, labels)

        dense = ["read/first/dense/kernel", "read/first/dense/bias"]
        norm = ["read/first/batch_norm/beta", "read/first/batch_norm/gamma"]
        moving = [f"read/first/batch_norm/moving_{s}" for s in ("mean", "variance")]
        last = ["read/logits/dense/kernel", "read/logits/dense/bias"]
        for how in (dict(), dict(pipeline=Pipeline(stages=2, micro_batches=2))):
            seen.clear()
            _steps(trainer.model_of(first, logits, loss=loss), **how)
            self.assertEqual(seen["first"], [])
            self.assertEqual(seen["after"], dense + norm)
            self.assertEqual(seen["ref"], dense + norm)
            self.assertEqual(seen["scope"], dense)
            self.assertEqual(seen["all"], dense + norm + moving)
            self.assertEqual(seen["model"], dense + norm + moving)
            self.assertEqual(seen["loss"], dense + norm + last)

    def test_a_function_with_its_own_gradient_makes_some(self):
        """TensorFlow looks for variables there, which would be resources."""

        def head(x, nn):
            @tf.custom_gradient
            def doubled(x):
                scale = tf.stop_gradient(nn.variable("scale", []))
                return 2.0 * scale * x, lambda dy: 2.0 * scale * dy

            return logits(doubled(nn.flatten(x)), nn)

        model = trainer.model_of(head)
        self.assertIn("head/scale", _steps(model, towers=2))

    def test_of_sharded_ones_the_whole(self):
        def with_l2(model):
            def loss(outputs, labels):
                every = v1.trainable_variables()
                seen.append([v.op.name for v in every])
                return model.loss(outputs, labels) + _FACTOR * _squares(every)

            return dataclasses.replace(model, loss=loss)

        seen = []
        model = with_l2(embedding_models.untied())
        whole = _steps(model, source=embedding_models.tokens())
        shards = Shards(embeddings=2)
        two = _steps(model, towers=2, source=embedding_models.tokens(), shards=shards)
        self.assertEqual(seen[0], seen[-1])
        self.assertLess(trainer.difference(whole, two), 1e-5)


class DevicesTest(parameterized.TestCase):
    def _build(self, *blocks, **parts):
        trainer.Trainer(trainer.model_of(*blocks, **parts))

    @parameterized.parameters(tf.device, v1.device)
    def test_are_refused(self, device):
        def block(x, nn):
            with device("/cpu:0"):
                return logits(nn.flatten(x), nn)

        def loss(outputs, labels):
            with device("/gpu:1"):
                return softmax_cross_entropy(outputs, labels)

        def metrics(outputs, labels):
            with device("/device:CPU:3"):
                return top_k_accuracy(outputs, labels)

        for what, name, parts in (
            (r"block 'block' on \(8, 4, 4, 1\)", "/cpu:0", dict()),
            ("the loss of model 'chain'", "/gpu:1", dict(loss=loss)),
            ("the metrics of model 'chain'", "/device:CPU:3", dict(metrics=metrics)),
        ):
            sentence = rf"^{what}: tf.device\('{name}'\) would .*traced_test.py:\d+\)$"
            with self.assertRaisesRegex(ValueError, sentence):
                self._build(*((hidden, logits) if parts else (block,)), **parts)

    def test_in_a_branch_too(self):
        def block(x, nn):
            def doubled():
                with tf.device("/cpu:0"):
                    return 2.0 * x

            x = tf.cond(tf.reduce_sum(x) > 0.0, doubled, lambda: x)
            return logits(nn.flatten(x), nn)

        for how in (dict(), dict(pipeline=Pipeline(micro_batches=2))):
            with self.assertRaisesRegex(
                ValueError, "^operation .* is on /device:CPU:0"
            ):
                trainer.Trainer(trainer.model_of(block), **how)

    def test_those_of_tensorflow_itself_stay(self):
        """It computes the gradient of a product of all elements on the CPU."""

        def block(x, nn):
            x += tf.reduce_prod(x[:, :2, :2] + 1.0, [1, 2, 3], keepdims=True)
            return logits(nn.flatten(x * nn.variable("scale", [])), nn)

        model = trainer.model_of(block)
        wanted = _steps(model)
        self.assertLess(trainer.difference(wanted, _steps(model, towers=2)), 1e-5)
        self.assertTrue(all(np.all(np.isfinite(v)) for v in wanted.values()))

    def test_none_is_no_device(self):
        with TracedGraph(VariablePlaceholders(lambda *_, **__: None, {})).as_default():
            with tf.device(None), tf.device(""):
                self.assertEqual(tf.constant(1.0).device, "")
