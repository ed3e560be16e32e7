"""The layers of sequences against numpy; gradients against differences."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from models import sequences
from tests import arrays, graph_test_case

v1 = tf.compat.v1


def _layers(**options):
    return sequences.SequenceLayers(**{"training": True, "num_classes": 10, **options})


def _random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _attention(x, weights, heads):
    """By definition, head by head and token by token, in float64."""
    joined = x @ weights["attention/dense/kernel"] + weights["attention/bias"]
    query, key, value = np.split(joined, 3, axis=-1)
    y = np.zeros(x.shape)
    size = x.shape[-1] // heads
    for batch, head, token in np.ndindex(x.shape[0], heads, x.shape[1]):
        mine = np.s_[head * size : (head + 1) * size]
        scores = key[batch, : token + 1, mine] @ query[batch, token, mine]
        seen = value[batch, : token + 1, mine]
        y[batch, token, mine] = _softmax(scores / np.sqrt(size)) @ seen
    return y @ weights["attention/dense_1/kernel"] + weights["attention/dense_1/bias"]


def _lstm(x, weights, forget_bias=0.0):
    """By definition, token by token, in float64."""
    units = weights["lstm/recurrent"].shape[0]
    state = output = np.zeros((x.shape[0], units))
    outputs = []
    for token in range(x.shape[1]):
        gates = x[:, token] @ weights["lstm/kernel"] + weights["lstm/bias"]
        gates = gates + output @ weights["lstm/recurrent"]
        enter, new, keep, leave = np.split(gates, 4, axis=1)
        state = _sigmoid(keep + forget_bias) * state + _sigmoid(enter) * np.tanh(new)
        output = _sigmoid(leave) * np.tanh(state)
        outputs.append(output)
    return np.stack(outputs, axis=1)


class SequencesTestCase(graph_test_case.GraphTestCase):
    def compare_with(self, by_definition, layer, x):
        """Outputs against numpy, gradients against numpy's central differences."""
        variables = {v.op.name: v for v in v1.trainable_variables()}
        weight = _random(*layer.shape, seed=9)
        wanted = [x, *variables.values()]
        gradients = tf.gradients(tf.reduce_sum(layer * weight), wanted)
        y, values, actual = self.evaluate([layer, [x, variables], gradients])
        at, weights = (
            values[0].astype("f8"),
            {k: v.astype("f8") for k, v in values[1].items()},
        )
        np.testing.assert_allclose(y, by_definition(at, weights), rtol=1e-4, atol=1e-5)
        rng = np.random.default_rng(3)
        for array, gradient in zip([at, *weights.values()], actual):
            direction = rng.normal(size=array.shape)
            sums = []
            for step in (1e-5, -2e-5):
                array += step * direction
                sums.append(np.sum(by_definition(at, weights) * weight))
            array += 1e-5 * direction
            slope = (sums[0] - sums[1]) / 2e-5
            self.assertAlmostEqual(
                np.sum(direction * gradient), slope, delta=1e-3 * abs(slope) + 1e-4
            )


class AttentionTest(SequencesTestCase):
    @parameterized.parameters(1, 3)
    def test_by_definition(self, heads):
        x = tf.constant(_random(2, 5, 6))
        normal = v1.random_normal_initializer(stddev=0.7)
        y = _layers().causal_attention(
            x, heads, initializer=normal, output_initializer=normal
        )
        self.compare_with(lambda x, w: _attention(x, w, heads), y, x)

    def test_the_gradient_of_the_keys_bias_is_zero_and_not_rounding(self):
        x = tf.constant(_random(2, 5, 6))
        y = _layers().causal_attention(x, 2) * _random(2, 5, 6, seed=1)
        [bias] = [v for v in v1.trainable_variables() if v.op.name == "attention/bias"]
        query, key, value = np.split(self.evaluate(tf.gradients(y, [bias]))[0], 3)
        np.testing.assert_array_equal(key, np.zeros(6))
        self.assertGreater(np.abs(query).min() * np.abs(value).min(), 0)

    def test_no_token_sees_a_later_one(self):
        x = tf.constant(_random(1, 6, 4))
        y = _layers().causal_attention(x, 2)
        slopes = [
            tf.reduce_sum(tf.abs(tf.gradients(y[0, token], x)[0][0]), axis=1)
            for token in range(6)
        ]
        seen = np.array(self.evaluate(slopes)) > 0
        np.testing.assert_array_equal(seen, np.tri(6, dtype=bool))

    def test_dropout_belongs_to_examples(self):
        x = _random(4, 3, 8)

        def attend(first, count):
            nn = _layers(seed=5, first_example=7 + first)
            with v1.variable_scope("same", reuse=v1.AUTO_REUSE):
                part = tf.constant(x[first : first + count])
                return nn.causal_attention(part, 2, dropout=0.5)

        whole, *parts = self.evaluate([attend(0, 4), attend(0, 1), attend(1, 3)])
        arrays.assert_close(whole, np.concatenate(parts), rtol=1e-5, atol=1e-6)

    def test_bfloat16(self):
        x = _random(2, 5, 8)
        with v1.variable_scope("same", reuse=v1.AUTO_REUSE):
            wide = _layers().causal_attention(tf.constant(x), 2)
        weights = {v.op.name: v for v in v1.trainable_variables()}

        def read(getter, name, dtype=None, **options):
            return tf.cast(weights[name], dtype)

        with v1.variable_scope("same", custom_getter=read):
            narrow = _layers(dtype=tf.bfloat16).causal_attention(
                tf.cast(x, tf.bfloat16), 2
            )
        self.assertEqual(narrow.dtype, tf.bfloat16)
        wide, narrow = self.evaluate([wide, tf.cast(narrow, tf.float32)])
        arrays.assert_close(narrow, wide, rtol=0.0, atol=0.05)


class LstmTest(SequencesTestCase):
    @parameterized.parameters(0.0, 1.0)
    def test_by_definition(self, forget_bias):
        x = tf.constant(_random(3, 4, 5))
        y = _layers().lstm(
            x,
            2,
            initializer=v1.random_normal_initializer(stddev=0.7),
            forget_bias=forget_bias,
        )
        self.compare_with(lambda x, w: _lstm(x, w, forget_bias), y, x)

    def test_bfloat16_keeps_a_float32_state(self):
        y = _layers(dtype=tf.bfloat16).lstm(tf.zeros([2, 3, 4], tf.bfloat16), 5)
        self.assertEqual((y.dtype, y.shape.as_list()), (tf.bfloat16, [2, 3, 5]))
        dtypes = {v.op.name: v.dtype.base_dtype for v in v1.trainable_variables()}
        self.assertEqual(dtypes["lstm/bias"], tf.float32)


class OtherLayersTest(SequencesTestCase):
    def test_layer_norm(self):
        x = 3 + 2 * _random(2, 3, 7)
        y = self.evaluate(_layers().layer_norm(tf.constant(x)))
        want = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)
        np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4)

    def test_layer_norm_of_bfloat16_has_float32_parameters(self):
        y = _layers(dtype=tf.bfloat16).layer_norm(tf.ones([2, 7], tf.bfloat16))
        self.assertEqual(y.dtype, tf.bfloat16)
        names = {v.op.name: v.dtype.base_dtype for v in v1.trainable_variables()}
        self.assertEqual(
            names, {"layer_norm/beta": tf.float32, "layer_norm/gamma": tf.float32}
        )

    def test_gelu(self):
        x = tf.constant(np.linspace(-5, 5, 41, dtype=np.float32))
        actual, want = self.evaluate(
            [sequences.gelu(x), tf.nn.gelu(x, approximate=True)]
        )
        np.testing.assert_allclose(actual, want, rtol=1e-5, atol=1e-6)

    def test_a_shared_variable_is_the_same_in_every_block(self):
        nn = _layers()
        with v1.variable_scope("first"):
            shared = nn.shared("first/table", [2, 3])
        with v1.variable_scope("second"), v1.variable_scope("inner"):
            other = nn.shared("first/table", [2, 3])
            private = nn.variable("table", [1])
        self.assertEqual(
            [v.op.name for v in v1.trainable_variables()],
            ["first/table", "second/inner/table"],
        )
        arrays.assert_same_bits(*self.evaluate([shared, other]))
        self.assertEqual(private.shape, [1])

    def test_dropout_of_sequences_belongs_to_examples(self):
        x = tf.ones([4, 3, 8])
        whole = _layers(seed=3).dropout(x, 0.5)
        rest = _layers(seed=3, first_example=1).dropout(x[1:], 0.5)
        whole, rest = self.evaluate([whole, rest])
        self.assertGreater(np.std(whole), 0)
