"""Comparisons of arrays that the code under test made, both of them.

What is not finite is refused: NumPy's comparisons take two NaNs for equal, and so pass
where both sides are broken alike.  So is another shape or dtype, which they broadcast.
"""

from collections.abc import Sequence

import numpy as np


def assert_alike(first, second, name: str = "") -> None:
    """Both finite, and of one shape and dtype.

    Args:
      first, second: arrays or scalars.
      name: for the message.
    """
    arrays = np.asarray(first), np.asarray(second)
    kinds = [(array.shape, array.dtype) for array in arrays]
    assert kinds[0] == kinds[1], f"{name}: {kinds[0]} and {kinds[1]}"
    for array in arrays:
        if array.dtype.kind in "fcV":  # V is the kind of bfloat16
            assert np.isfinite(array).all(), f"{name}: not finite"


def assert_same_bits(first, second, name: str = "") -> None:
    """Equal in shape, dtype and every bit: -0 is not 0."""
    assert_alike(first, second, name)
    # By value first, so that the message says which elements differ.
    np.testing.assert_array_equal(first, second, err_msg=name)
    same = np.asarray(first).tobytes() == np.asarray(second).tobytes()
    assert same, f"{name}: zeros differ in sign"


def assert_all_same_bits(ones: Sequence, others: Sequence) -> None:
    """As many arrays on both sides, at least one, and equal in pairs."""
    assert len(ones), "nothing to compare"
    for first, second in zip(ones, others, strict=True):
        assert_same_bits(first, second)


def assert_close(
    first, second, *, rtol: float, atol: float = 0.0, name: str = ""
) -> None:
    """Close as NumPy has it, relative to `second`."""
    assert_alike(first, second, name)
    np.testing.assert_allclose(first, second, rtol, atol, err_msg=name)


def assert_apart(first, second, *, rtol: float, name: str = "") -> None:
    """Not close, somewhere."""
    assert_alike(first, second, name)
    assert not np.allclose(first, second, rtol, 0.0), f"{name}: equal to {rtol}"
