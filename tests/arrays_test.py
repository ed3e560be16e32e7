"""The comparisons of the tests refuse what they must."""

import numpy as np
from absl.testing import parameterized

from tests import arrays, trainer

_ONE = np.array([1.0, -2.0], np.float32)
_ODD = {
    "not a number": np.array([1.0, np.nan], np.float32),
    "infinite": np.array([1.0, -np.inf], np.float32),
    "another shape": _ONE[None],
    "another dtype": _ONE.astype("f8"),
}


def _near(first, second):
    return arrays.assert_close(first, second, rtol=1e-5)


def _far(first, second):
    return arrays.assert_apart(first, second, rtol=1e-5)


def _values_near(first, second):
    assert trainer.difference({"a": first}, {"a": second}) < 1e-5


def _values_far(first, second):
    assert trainer.difference({"a": first}, {"a": second}) > 1e-5


def _values_same(first, second):
    trainer.assert_same_bits({"a": first}, {"a": second})


_SAME = (arrays.assert_same_bits, _near, _values_near, _values_same)


class ArraysTest(parameterized.TestCase):
    @parameterized.parameters(*_SAME)
    def test_what_is_equal_passes(self, compare):
        compare(_ONE, _ONE.copy())
        compare(np.int64(3), np.array(3))

    @parameterized.product(
        compare=(*_SAME, _far, _values_far, arrays.assert_alike), kind=tuple(_ODD)
    )
    def test_what_cannot_be_compared_is_refused(self, compare, kind):
        odd = _ODD[kind]
        pairs = [(_ONE, odd), (odd, _ONE)]
        if not np.isfinite(odd).all():
            pairs.append((odd, odd.copy()))
        for pair in pairs:
            with self.assertRaises(AssertionError):
                compare(*pair)

    @parameterized.parameters(*_SAME)
    def test_what_differs_is_refused(self, compare):
        with self.assertRaises(AssertionError):
            compare(_ONE, np.array([1.0, -2.1], np.float32))
        with self.assertRaises(AssertionError):
            compare(np.int64(3), np.int64(4))

    @parameterized.parameters(_far, _values_far)
    def test_what_is_close_is_not_apart(self, compare):
        compare(_ONE, 1.1 * _ONE)
        with self.assertRaises(AssertionError):
            compare(_ONE, _ONE * np.float32(1 + 1e-6))

    @parameterized.parameters(arrays.assert_same_bits, _values_same)
    def test_bits_are_more_than_values(self, compare):
        with self.assertRaisesRegex(AssertionError, "zeros differ in sign"):
            compare(np.float32(0.0), np.float32(-0.0))

    def test_nothing_is_not_equal_to_nothing(self):
        for compare in (trainer.difference, trainer.assert_same_bits):
            with self.assertRaisesRegex(AssertionError, "nothing to compare"):
                compare({}, {})
        with self.assertRaisesRegex(AssertionError, "nothing to compare"):
            arrays.assert_all_same_bits([], [])
        with self.assertRaises(ValueError):
            arrays.assert_all_same_bits([_ONE], [_ONE, _ONE])
