"""A worker process reads examples, or says why it cannot."""

import numpy as np
from absl.testing import parameterized

from tests.squares import Squares
from towers.data import source_worker
from towers.data.source_worker import Leaf, SourceError

_LEAVES = [
    Leaf("features['i']", np.dtype(np.float32), (2,)),
    Leaf("features['n']", np.dtype(np.int16), ()),
    Leaf("labels", np.dtype(np.int32), ()),
]


class RowsTest(parameterized.TestCase):
    def test_reads_examples_in_the_order_of_their_numbers(self):
        pairs, negatives, labels = source_worker.rows(Squares(), [3, 0, 3], _LEAVES, 10)
        np.testing.assert_array_equal(pairs, [[3, 9], [0, 0], [3, 9]])
        np.testing.assert_array_equal(negatives, [-3, 0, -3])
        np.testing.assert_array_equal(labels, [3, 0, 3])
        self.assertEqual(labels.dtype, np.int32)

    @parameterized.parameters(
        (
            "raises",
            r"source\[2\] failed: KeyError: 'nothing there' \(.*squares.py:\d+\)",
        ),
        (
            "grows",
            r"source\[2\] has features\['i'\] of float32 \[3\], and source\[0\] of",
        ),
        ("is_nan", r"source\[2\] has features\['i'\] that is not finite"),
        ("lacks", r"source\[2\] has 2 arrays, and source\[0\] has 3"),
        ("is_four", r"source\[2\] is a tuple of 4; an example is features, \(feat"),
    )
    def test_an_example_that_cannot_be_had_is_named(self, fault, words):
        with self.assertRaisesRegex(SourceError, words):
            source_worker.rows(Squares(**{fault: 2}), [1, 2], _LEAVES, 10)

    def test_weights_are_any_numbers_that_are_not_negative(self):
        leaves = [*_LEAVES, Leaf("weights", np.dtype(np.float32), ())]
        weights = source_worker.rows(Squares(weighs=True), [1, 4], leaves, 10)[-1]
        np.testing.assert_array_equal(weights, np.float32([0.5, 2]))
        with self.assertRaisesRegex(SourceError, "the weight -1, which is negative"):
            source_worker.rows(Squares(is_negative=1), [1], leaves, 10)

    def test_nests_are_flattened_as_tensorflow_does(self):
        self.assertEqual(source_worker.flattened({"b": (1, 2), "a": ()}), [1, 2])
        self.assertEqual(source_worker.parts_of([1, 2]), (1, 2))
        self.assertEqual(source_worker.parts_of({"a": 1}), ({"a": 1}, ()))
