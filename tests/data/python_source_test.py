"""Examples of Python sources, read in this process or by others: the same."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests.squares import Squares
from towers.data import examples
from towers.data.python_source import from_source

v1 = tf.compat.v1


class FromSourceTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(0, 2)
    def test_reads_examples(self, workers):
        data = from_source(Squares(weighs=True, raises=9), workers)
        self.assertEqual(data.num_examples, 10)
        with tf.Graph().as_default(), v1.Session() as session:
            numbers = v1.placeholder(tf.int64, [2])
            parts = data.read(numbers)
            features, labels, weights = session.run(parts, {numbers: [7, 2]})
            with self.assertRaises(tf.errors.OpError) as caught:
                session.run(parts, {numbers: [7, 9]})
        self.assertAllEqual(features["i"], [[7, 49], [2, 4]])
        self.assertAllEqual(features["n"], [-7, -2])
        self.assertAllEqual(labels, [7, 2])
        self.assertEqual(labels.dtype, np.int32)
        self.assertAllEqual(weights, [3.5, 1])
        self.assertRegex(
            examples.explain_example(caught.exception),
            r"from_source: source\[9\] failed: KeyError: 'nothing there' \(.*:\d+\)$",
        )

    def test_a_list_is_an_array(self):
        features, label = from_source([([1.0, 2.0], 3)]).specs
        self.assertEqual(features, tf.TensorSpec([2], tf.float64))
        self.assertEqual(label, tf.TensorSpec([], tf.int32))

    @parameterized.parameters(
        (iter([1]), "a list_iterator has no length or no index.* for from_dataset"),
        ([], r"a list: source\[0\] is empty"),
        ([()], r"source\[0\] is a tuple of 0"),
        (Squares(raises=0), r"a Squares: source\[0\] failed: KeyError"),
        ([((), 1)], r"source\[0\] has no features"),
        ([object()], r"source\[0\]: features is of dtype object"),
    )
    def test_what_is_no_source(self, source, words):
        with self.assertRaisesRegex(ValueError, words):
            from_source(source)
