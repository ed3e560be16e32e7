"""Examples by number: their names, dtypes and errors."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from towers.data import examples

v1 = tf.compat.v1


class NamesTest(tf.test.TestCase):
    def test_leaves_are_named_as_they_are_written(self):
        parts = {"b": (1, {"x y": 2}), "a": 3}, ()
        named = examples.leaves(parts)
        self.assertEqual(
            named,
            [
                ("features['a']", 3),
                ("features['b'][0]", 1),
                ("features['b'][1]['x y']", 2),
            ],
        )
        self.assertEqual([value for _, value in named], tf.nest.flatten(parts))
        names = examples.map_parts(lambda name, _: name, parts)
        self.assertEqual(tf.nest.flatten(names), [name for name, _ in named])


class AsArrayTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(
        (3, np.int32),
        (0.5, np.float32),
        (True, np.bool_),
        ([1, 2], np.int64),
        (np.float64(3), np.float64),
        (tf.constant([1], tf.int64), np.int64),
    )
    def test_dtypes(self, value, dtype):
        self.assertEqual(examples.as_array("x", value).dtype, dtype)

    @parameterized.parameters(
        ([[1], [2, 3]], "x is ragged: its rows differ in shape; pad them to one"),
        ("text", "x is of dtype <U4; make it numbers"),
        ([None], "x is of dtype object; make it numbers of one dtype and shape"),
        (np.array(["2000-01-01"], "M8[D]"), "x is of dtype datetime64"),
    )
    def test_what_is_no_tensor(self, value, words):
        with self.assertRaisesRegex(ValueError, words):
            examples.as_array("x", value)


class CallTest(tf.test.TestCase):
    def test_an_error_is_the_sentence_of_the_user(self):
        def read(numbers):
            if numbers[0]:
                raise examples.ExampleError("example 1 is not there")
            return [numbers * 2]

        with tf.Graph().as_default(), v1.Session() as session:
            first = v1.placeholder(tf.int64, [1])
            spec = tf.TensorSpec([], tf.int64)
            (doubled,) = examples.call(read, first, (spec,))
            self.assertEqual(doubled.shape, [1])
            self.assertAllEqual(session.run(doubled, {first: [0]}), [0])
            with self.assertRaises(tf.errors.OpError) as caught:
                session.run(doubled, {first: [1]})
        self.assertEqual(
            examples.explain_example(caught.exception), "example 1 is not there"
        )
        self.assertIsNone(examples.explain_example(ValueError("anything else")))
