"""The model contract: chains, losses and metrics."""

import dataclasses

import numpy as np
import tensorflow as tf
from absl.testing import absltest

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
        got = self._evaluate(
            lambda x, y: model.softmax_cross_entropy(tf.constant(x), y), logits, [2, 1]
        )
        log_sum = np.log(np.exp(logits).sum(1))
        np.testing.assert_allclose(got, log_sum - [2.0, -1.0], rtol=1e-6)

    def test_cross_entropy_of_bfloat16_is_float32(self):
        # 256 + 1 is 256 in bfloat16; the difference must not be taken there.
        logits = np.array([[256.0, 0.0]], np.float32)
        got = self._evaluate(
            lambda x, y: model.softmax_cross_entropy(tf.cast(x, tf.bfloat16), y),
            logits,
            [1],
        )
        self.assertEqual(got.dtype, np.float32)
        np.testing.assert_allclose(got, [256.0])

    def test_accuracy_is_per_example(self):
        logits = np.tile(np.arange(8, dtype=np.float32), [3, 1])
        got = self._evaluate(model.top_k_accuracy, logits, [7, 3, 2])
        np.testing.assert_array_equal(got["top_1_accuracy"], [1, 0, 0])
        np.testing.assert_array_equal(got["top_5_accuracy"], [1, 1, 0])

    def test_with_few_classes_all_are_among_the_best_five(self):
        logits = np.array([[3.0, 2.0, 1.0]], np.float32)
        got = self._evaluate(model.top_k_accuracy, logits, [2])
        np.testing.assert_array_equal(got["top_5_accuracy"], [1])


class RecipeTest(absltest.TestCase):
    def test_decay_spares_the_normalisation(self):
        self.assertTrue(model.decay_all("stem/conv/kernel"))
        self.assertTrue(model.decay_all("logits/dense/bias"))
        self.assertFalse(model.decay_all("stem/batch_norm/gamma"))
        self.assertFalse(model.decay_all("stem/batch_norm_1/beta"))


class MisfitTest(absltest.TestCase):
    def test_a_block_that_does_not_fit_is_named_with_what_it_reads(self):
        def wide(x, nn):
            return x @ nn.variable("w", [7, 3])

        chain = _tiny((("features", _features), ("wide", wide)))
        with self.assertRaisesRegex(ValueError, r"block 'wide' on \(2, 4, 4, 4\): "):
            _variables(chain.run)

    def test_a_block_that_forgets_to_return(self):
        chain = _tiny((("features", _features), ("lost", lambda x, nn: None)))
        with self.assertRaisesRegex(ValueError, "block 'lost' returned None"):
            _variables(chain.run)

    def test_more_classes_than_the_softmax_is_over(self):
        def two(x, nn):
            return nn.dense(nn.flatten(x), 2)

        chain = _tiny((("features", _features), ("two", two)))
        with self.assertRaisesRegex(ValueError, r"3 classes, and model 'tiny' .* 2 "):
            _variables(chain.run)
        one_number = dataclasses.replace(chain, loss=lambda outputs, labels: labels)
        self.assertNotEmpty(_variables(one_number.run))


if __name__ == "__main__":
    absltest.main()
