"""The model contract: chains, losses and metrics."""

import dataclasses
import re

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from models import layers, model

v1 = tf.compat.v1


def _features(x, nn):
    x = nn.conv(x, 4, 3, activation=tf.nn.relu)
    return nn.max_pool(x, 2, 2)


def _logits(x, nn):
    return nn.dense(nn.flatten(x), nn.num_classes)


def _tiny(blocks=(("features", _features), ("logits", _logits))):
    return model.Model(
        name="tiny",
        blocks=blocks,
        inputs=model.Images(shape=(8, 8, 1), num_classes=3),
        recipe=model.Recipe(batch_size=4, schedule=model.Schedule(rates=(0.01,))),
    )


def _variables(run):
    """Names and shapes of the variables that `run(x, nn)` makes."""
    with tf.Graph().as_default():
        nn = layers.Layers(training=True, num_classes=3)
        run(tf.zeros([2, 8, 8, 1]), nn)
        return [(v.op.name, v.shape.as_list()) for v in v1.global_variables()]


class ChainTest(absltest.TestCase):
    def test_blocks_name_their_variables(self):
        self.assertEqual(
            _variables(_tiny().run),
            [
                ("features/conv/kernel", [3, 3, 1, 4]),
                ("features/conv/bias", [4]),
                ("logits/dense/kernel", [4 * 4 * 4, 3]),
                ("logits/dense/bias", [3]),
            ],
        )

    def test_a_cut_chain_is_the_chain(self):
        blocks = _tiny().blocks

        def in_two(x, nn):
            x = model.run_blocks(blocks[:1], x, nn)
            return model.run_blocks(blocks[1:], x, nn)

        self.assertEqual(_variables(in_two), _variables(_tiny().run))

    def test_a_second_run_reads_the_same_variables(self):
        def twice(x, nn):
            _tiny().run(x, nn)
            with v1.variable_scope("", reuse=True):
                return _tiny().run(x, nn)

        self.assertEqual(_variables(twice), _variables(_tiny().run))

    def test_refuses_a_name_given_twice(self):
        with self.assertRaisesRegex(ValueError, r"'tiny'.*unique.*\['same', 'same'\]"):
            _tiny((("same", _features), ("same", _logits)))

    def test_refuses_no_blocks(self):
        with self.assertRaisesRegex(ValueError, "'tiny' needs blocks"):
            _tiny(())

    def test_is_frozen(self):
        with self.assertRaises(dataclasses.FrozenInstanceError):
            _tiny().name = "other"


class LossTest(absltest.TestCase):
    def _evaluate(self, function, logits, labels):
        with tf.Graph().as_default(), v1.Session() as session:
            return session.run(function(logits, tf.constant(labels)))

    def test_cross_entropy_is_per_example(self):
        logits = np.array([[0.0, 1.0, 2.0], [3.0, -1.0, 0.5]], np.float32)
        actual = self._evaluate(
            lambda x, y: model.softmax_cross_entropy(tf.constant(x), y), logits, [2, 1]
        )
        log_sum = np.log(np.exp(logits).sum(1))
        np.testing.assert_allclose(actual, log_sum - [2.0, -1.0], rtol=1e-6)

    def test_cross_entropy_of_bfloat16_is_float32(self):
        # 256 + 1 is 256 in bfloat16; the difference must not be taken there.
        logits = np.array([[256.0, 0.0]], np.float32)
        actual = self._evaluate(
            lambda x, y: model.softmax_cross_entropy(tf.cast(x, tf.bfloat16), y),
            logits,
            [1],
        )
        self.assertEqual(actual.dtype, np.float32)
        np.testing.assert_allclose(actual, [256.0])

    def test_accuracy_is_per_example(self):
        logits = np.tile(np.arange(8, dtype=np.float32), [3, 1])
        actual = self._evaluate(model.top_k_accuracy, logits, [7, 3, 2])
        np.testing.assert_array_equal(actual["top_1_accuracy"], [1, 0, 0])
        np.testing.assert_array_equal(actual["top_5_accuracy"], [1, 1, 0])

    def test_with_few_classes_all_are_among_the_best_five(self):
        logits = np.array([[3.0, 2.0, 1.0]], np.float32)
        actual = self._evaluate(model.top_k_accuracy, logits, [2])
        np.testing.assert_array_equal(actual["top_5_accuracy"], [1])


class MisfitTest(parameterized.TestCase):
    def test_a_block_that_does_not_fit_is_named_with_what_it_reads(self):
        def wide(x, nn):
            return x @ nn.variable("w", [7, 3])

        chain = _tiny((("features", _features), ("wide", wide)))
        with self.assertRaisesRegex(ValueError, r"block 'wide' on \(2, 4, 4, 4\): "):
            _variables(chain.run)

    @parameterized.parameters((None,), ((),), ([[], {}],))
    def test_a_block_that_forgets_to_return(self, nothing):
        chain = _tiny((("features", _features), ("lost", lambda x, nn: nothing)))
        with self.assertRaisesRegex(ValueError, "block 'lost' returned .*; return"):
            _variables(chain.run)

    @parameterized.parameters(
        (lambda x, nn: 3, "int; return a tensor"),
        (lambda x, nn: (x, 3), "int; return a tensor"),
        (
            lambda x, nn: tf.py_function(lambda y: y, [x], tf.float32),
            "a tensor of shape <unknown>, all of which must be known .*tf.py_function",
        ),
        (
            lambda x, nn: tf.boolean_mask(x, x[:, 0, 0, 0] > 0),
            r"a tensor of shape \(None, 4, 4, 4\), all of which must be known",
        ),
    )
    def test_what_no_block_can_read(self, block, sentence):
        chain = _tiny((("features", _features), ("odd", block)))
        with self.assertRaisesRegex(ValueError, f"^block 'odd' returned {sentence}"):
            _variables(chain.run)

    @parameterized.parameters(
        (lambda x, nn: {}["size"], "KeyError: 'size'"),
        (lambda x, nn: nn.no_such_layer(x), "AttributeError: 'Layers' object has no"),
        (lambda x, nn: nn.dense(x), "TypeError: .* 'units'"),
    )
    def test_a_block_that_raises_is_named_with_the_place(self, block, sentence):
        chain = _tiny((("features", _features), ("odd", block)))
        place = rf"\({re.escape(__file__)}:\d+\)"
        with self.assertRaisesRegex(
            ValueError, rf"^block 'odd' on \(2, 4, 4, 4\): {sentence}.*{place}$"
        ):
            _variables(chain.run)

    def test_updates_that_would_be_lost(self):
        def odd(x, nn):
            v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, x.op)
            return x

        chain = _tiny((("features", _features), ("odd", odd)))
        with self.assertRaisesRegex(
            ValueError,
            "^block 'odd' adds to the collection 'update_ops', which is not read; mov",
        ):
            _variables(chain.run)

    def test_statistics_of_a_branch(self):
        def odd(x, nn):
            return tf.cond(x[0, 0, 0, 0] > 0, lambda: nn.batch_norm(x), lambda: x)

        chain = _tiny((("features", _features), ("odd", odd)))
        with self.assertRaisesRegex(ValueError, "^block 'odd' takes statistics .* ins"):
            _variables(chain.run)


class NewLayersTest(parameterized.TestCase):
    class Unmade(layers.Layers):
        def __init__(self, **settings):
            pass

    def test_as_the_model_has_them(self):
        nn = _tiny().new_layers(training=False, num_classes=3, seed=7)
        self.assertEqual((nn.training, nn.num_classes), (False, 3))

    @parameterized.parameters(
        (lambda **settings: None, "made NoneType; make a models.layers.Layers"),
        (Unmade, "made Unmade; .* super"),
        (lambda **settings: {}["size"], "KeyError: 'size'"),
    )
    def test_what_makes_none(self, make, sentence):
        chain = dataclasses.replace(_tiny(), layers=make)
        place = rf"\({re.escape(__file__)}:\d+\)"
        with self.assertRaisesRegex(
            ValueError, f"^layers of model 'tiny': {sentence}.*{place}$"
        ):
            chain.new_layers(training=False, num_classes=3)


class MeasureTest(parameterized.TestCase):
    def _measure(self, outputs, *, classes=3, **parts):
        chain = dataclasses.replace(_tiny(), **parts)
        with tf.Graph().as_default():
            labels = v1.placeholder(tf.int32, [4])
            return chain.measure(
                tf.zeros(outputs), labels, num_classes=classes, batch_size=4
            )

    def test_one_number_for_each_example(self):
        actual = self._measure([4, 3])
        self.assertEqual([*actual], ["loss", "top_1_accuracy", "top_5_accuracy"])
        for value in actual.values():
            self.assertEqual((value.shape, value.dtype), ([4], tf.float32))

    def test_more_classes_than_the_softmax_is_over(self):
        with self.assertRaisesRegex(ValueError, r"3 classes, and model 'tiny' .* 2 "):
            self._measure([4, 2])
        actual = self._measure(
            [4, 2], loss=lambda outputs, labels: outputs[:, 0], metrics=lambda *_: {}
        )
        self.assertEqual([*actual], ["loss"])

    @parameterized.parameters([[]], [[4]], [[4, 2, 3]])
    def test_what_is_no_logits(self, shape):
        with self.assertRaisesRegex(ValueError, r"its loss takes \[batch, classes\]"):
            self._measure(shape)

    def test_logits_of_fewer_examples_than_the_batch_has(self):
        with self.assertRaisesRegex(
            ValueError, r"'tiny' returns \(2, 3\) from .* 'logits', on a batch of 4; "
        ):
            self._measure([2, 3])

    @parameterized.parameters(
        (lambda o, y: tf.reduce_mean(o), r"loss of .* is float32 \(\), and must be"),
        (lambda o, y: o[:, :1], r"loss of .* is float32 \(4, 1\), and .* \(4,\), one"),
        (lambda o, y: y, r"loss of .* is int32 \(4,\), and must be float32"),
        (lambda o, y: None, "loss of .* is NoneType, and must be"),
        (lambda o, y: 1 / 0, r"the loss of .*ZeroDivisionError.*_test.py:\d+\)$"),
        (
            lambda o, y: tf.cast(y == 3, tf.float32),
            r"the loss of .* compared by ==.*\d\)$",
        ),
        (lambda o: o, "loss of .* must take .*positional"),
    )
    def test_a_loss_that_is_none(self, loss, sentence):
        with self.assertRaisesRegex(ValueError, f"^{sentence}"):
            self._measure([4, 3], loss=loss)

    @parameterized.parameters(
        (lambda o, y: [o[:, 0]], "the metrics of .* must be a dict from names"),
        (lambda o, y: {"loss": o[:, 0]}, "the metrics of .* must be .* none of them l"),
        (lambda o, y: {"a": 1.0}, "a of .* is float, and must be float32"),
        (
            lambda o, y: {"a": tf.where(y == 3, o[:, 0], 0.0)},
            r"the metrics of .*tf.equal.*model_test.py:\d+\)$",
        ),
        (lambda o, y: {"a b": o[:, 0]}, "a b of .*: no such name"),
        (lambda o, y: {}["a"], r"the metrics of .*KeyError: 'a' \(.*_test.py:\d+\)$"),
    )
    def test_metrics_that_are_none(self, metrics, sentence):
        with self.assertRaisesRegex(ValueError, f"^{sentence}"):
            self._measure([4, 3], metrics=metrics)

    def test_what_is_derived_from_means(self):
        chain = dataclasses.replace(
            _tiny(), derived=lambda means: {"b": 2 * means["a"]}
        )
        self.assertEqual(chain.with_derived({"a": 1.0}), {"a": 1.0, "b": 2.0})

    def test_a_metric_may_be_wider(self):
        actual = self._measure(
            [4, 3], metrics=lambda o, y: {"a": o, "b": tf.cast(o, tf.float64)}
        )
        self.assertEqual([x.shape.rank for x in actual.values()], [1, 2, 2])

    @parameterized.parameters(
        (lambda o, y: tf.zeros([4, 2, 2, 1]), "the pictures of .* must be a dict"),
        (lambda o, y: {"a": o}, r"picture a of .* is float32 \(4, 3\), and must be u"),
        (lambda o, y: 1 / 0, r"the pictures of .*ZeroDivisionError.*_test.py:\d+\)$"),
    )
    def test_pictures_that_are_none(self, pictures, sentence):
        chain = dataclasses.replace(_tiny(), pictures=pictures)
        with (
            tf.Graph().as_default(),
            self.assertRaisesRegex(ValueError, f"^{sentence}"),
        ):
            chain.show(tf.zeros([4, 3]), (), batch_size=4)

    def test_a_picture_may_be_derived(self):
        picture = np.zeros([5, 6, 3], np.uint8)
        chain = dataclasses.replace(
            _tiny(), derived=lambda values: {"b": picture, "c": np.sum(values["a"])}
        )
        actual = chain.with_derived({"a": np.ones([3])})
        self.assertIs(actual["b"], picture)
        self.assertIs(type(actual["c"]), float)

    @parameterized.parameters(
        lambda means: {"a": "x"},
        lambda means: None,
        lambda means: 1 / 0,
        lambda means: {"a": np.ones([3])},
    )
    def test_what_is_derived_from_means_in_vain(self, derived):
        chain = dataclasses.replace(_tiny(), derived=derived)
        with self.assertRaisesRegex(ValueError, "^what model 'tiny' derives from mea"):
            chain.with_derived({"a": 1.0})


class DeclaredTest(parameterized.TestCase):
    @parameterized.parameters(
        (model.Model, dict(recipe=None), "Model.recipe is None, .* (models.)?Recipe"),
        (
            model.Model,
            dict(inputs=3),
            "Model.inputs is 3, and must be (models.)?Inputs or",
        ),
        (model.Model, dict(loss=None), "Model.loss is None, and must be a function"),
        (model.Model, dict(name=""), "Model.name is '', and must be one line"),
        (model.Model, dict(name="a\nb"), "Model.name is 'a.*b', and must be one line"),
        (model.Model, dict(blocks=[_logits]), "Model.blocks is "),
        (model.Model, dict(blocks=[("a b", _logits)]), "model 'tiny': 'a b' cannot be"),
        (model.Model, dict(blocks=[("", _logits)]), "model 'tiny': '' cannot be"),
        (model.Recipe, dict(batch_size=0), "Recipe.batch_size is 0, .* at least 1"),
        (model.Recipe, dict(num_epochs=0), "Recipe.num_epochs is 0, .* above 0"),
        (model.Recipe, dict(weight_decay=-1), "Recipe.weight_decay is -1, .* least 0"),
        (model.Recipe, dict(ema_decay=1), "Recipe.ema_decay is 1, .* below 1"),
        (model.Recipe, dict(clip_norm="5"), "Recipe.clip_norm is '5'"),
        (model.Recipe, dict(num_epochs=1e10), "Recipe.num_epochs is 1.*, .* most 1e9"),
        (model.Recipe, dict(batch_size=2**31), "Recipe.batch_size is .* below 2147"),
        (model.Recipe, dict(decayed=lambda: True), r"decayed .* must take \(name\): "),
        (model.Model, dict(blocks=[("b", len)]), r"block 'b' .* take \(x, nn\): too"),
        (model.Model, dict(loss=len), r"loss of model 'tiny' .* \(outputs, labels\): "),
        (model.Model, dict(metrics=len), r"metrics .* must take \(outputs, labels\): "),
        (model.Model, dict(pictures=lambda o: o), r"pictures .* \(outputs, labels\): "),
        (model.Model, dict(derived=lambda: {}), r"derived .* must take \(values\): "),
        (
            model.Model,
            dict(layers=lambda training: None),
            r"layers .* must take \(training=, .*'num_classes'",
        ),
        (
            model.Recipe,
            dict(schedule=0.1),
            "Recipe.schedule is 0.1, .* (models.)?Schedule",
        ),
        (model.Schedule, dict(rates=0.1), "Schedule.rates is 0.1"),
        (model.Schedule, dict(rates=(-0.1,)), "Schedule.rates is .* at least 0"),
        (model.Schedule, dict(rates=()), "Schedule has 0 rates and 0 epochs"),
        (model.Schedule, dict(rates=(1, 2, 3), epochs=(2, 2)), ".*must be ascending"),
        (model.Images, dict(shape=(8, 8)), r"Images.shape is \(8, 8\)"),
        (model.Images, dict(shape=(8, 0, 1)), "Images.shape is .* at least 1"),
        (model.Images, dict(num_classes=0), "Images.num_classes is 0"),
        (model.Tokens, dict(length=0), "Tokens.length is 0"),
        (model.Pairs, dict(num_classes=5), "Pairs.num_classes is 5"),
    )
    def test_refuses(self, kind, fields, sentence):
        tiny = _tiny()
        whole = {
            model.Model: tiny,
            model.Recipe: tiny.recipe,
            model.Schedule: tiny.recipe.schedule,
            model.Images: tiny.inputs,
            model.Tokens: model.Tokens(3),
            model.Pairs: model.Pairs((3, 4)),
        }
        with self.assertRaisesRegex(ValueError, f"^{sentence}"):
            dataclasses.replace(whole[kind], **fields)
