"""Examples from arrays: nests by number, and what does not fit together."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from towers.data.arrays import from_arrays

v1 = tf.compat.v1

_FOUR = np.arange(8, dtype=np.float32).reshape(4, 2)


class FromArraysTest(parameterized.TestCase, tf.test.TestCase):
    def test_reads_rows_by_their_numbers(self):
        table = {"a": _FOUR, "b": (np.arange(4, dtype=np.uint8),)}
        data = from_arrays(table, np.arange(4) < 2, weights=[0, 1, 2, 3])
        self.assertEqual(data.num_examples, 4)
        self.assertEqual(
            data.specs[0],
            {"a": tf.TensorSpec([2]), "b": (tf.TensorSpec([], tf.uint8),)},
        )
        with tf.Graph().as_default() as graph, v1.Session() as session:
            features, labels, weights = session.run(data.read(tf.constant([2, 1, 2])))
            self.assertAllEqual(session.run(data.weights(tf.constant([3, 0]))), [3, 0])
            self.assertLess(len(graph.as_graph_def().SerializeToString()), 2000)
        self.assertAllEqual(features["a"], _FOUR[[2, 1, 2]])
        self.assertAllEqual(features["b"][0], [2, 1, 2])
        self.assertAllEqual(labels, [False, True, False])
        self.assertAllEqual(weights, [2, 1, 2])

    def test_without_labels(self):
        data = from_arrays(_FOUR)
        self.assertEqual(data.specs, (tf.TensorSpec([2]), ()))
        self.assertIsNone(data.weights)

    @parameterized.parameters(
        ((_FOUR, [1, 2, 3]), "features holds 4 examples and labels 3; each must"),
        (
            ({"a": _FOUR, "b": _FOUR[:2]},),
            r"features\['a'\] holds 4 .* features\['b'\] 2",
        ),
        ((_FOUR[:0],), r"features is empty: its shape is \[0, 2\]"),
        (((), _FOUR), "features has no array; give at least one"),
        ((_FOUR, 3), "labels is a single number"),
        (([[1], [2, 3]],), "features is ragged"),
        ((np.array([None, 2]),), "features is of dtype object"),
        ((_FOUR, np.array([0, 1, np.nan, 3])), "labels of example 2 is not finite"),
        ((_FOUR, (), [1, 2, -1, 3]), "weights of example 2 is negative"),
        ((_FOUR, (), [0, 0, 0, 0]), "weights are all 0"),
        ((_FOUR, (), _FOUR), r"weights is float32 \[4, 2\]; it must hold a number for"),
        ((_FOUR, (), [1, 2]), "features holds 4 examples and weights 2"),
    )
    def test_what_does_not_fit_is_named(self, arguments, words):
        with self.assertRaisesRegex(ValueError, words):
            from_arrays(*arguments)
