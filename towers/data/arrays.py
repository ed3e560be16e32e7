"""Examples from numpy arrays, of which nothing enters the graph or a checkpoint."""

from typing import Any

import numpy as np
import tensorflow as tf

from towers.data import examples
from towers.data.examples import Examples


def from_arrays(features: Any, labels: Any = (), weights: Any = None) -> Examples:
    """The examples that arrays hold, example i in row i of each.

    The arrays stay where they are, and are not copied; do not change them while a run
    reads them.

    Args:
      features: an array [examples, ...], or a nest (dicts, tuples) of them.
      labels: the same; () where there are none.
      weights: numbers [examples], not negative: what each example counts in the mean
        of the losses.  None where each counts the same.

    Raises:
      ValueError: they do not fit together, are empty or hold what is no number; the
        sentence names the array.
    """
    parts: examples.Parts = (features, labels)
    if weights is not None:
        parts = (*parts, weights)
    parts = examples.map_parts(examples.as_array, parts)
    arrays = examples.leaves(parts)
    _check(arrays)
    if weights is not None:
        parts = (*parts[:2], _checked_weights(parts[2]))
    flat = tf.nest.flatten(parts)
    specs = tf.nest.map_structure(examples.spec_of, parts)
    return Examples(
        name="arrays",
        num_examples=len(flat[0]),
        specs=specs,
        read=lambda numbers: examples.call(
            lambda rows: [array[rows] for array in flat], numbers, specs
        ),
        calls=2,  # one copies rows while the other's are handed over
        weights=None if weights is None else lambda n: _gathered(flat[-1], n),
    )


def _gathered(weights: np.ndarray, numbers: tf.Tensor) -> tf.Tensor:
    return examples.call(lambda rows: [weights[rows]], numbers, (_WEIGHT,))[0]


_WEIGHT = tf.TensorSpec([], tf.float32)


def _check(arrays: list[tuple[str, np.ndarray]]) -> None:
    """Refuses arrays that have not the same number of rows, or rows without numbers.

    Raises:
      ValueError: the sentence names the array.
    """
    if not arrays or not arrays[0][0].startswith("features"):
        raise ValueError("features has no array; give at least one")
    first, like = arrays[0]
    for name, array in arrays:
        if not array.ndim:
            raise ValueError(f"{name} is a single number; it must be [examples, ...]")
        if len(array) != len(like):
            raise ValueError(
                f"{first} holds {len(like)} examples and {name} {len(array)}; each "
                "must have one row for each example"
            )
        if not array.size:
            raise ValueError(f"{name} is empty: its shape is {list(array.shape)}")
        # A file in memory may be larger than memory, and is read as it is needed.
        if not isinstance(array, np.memmap):
            row = examples.first_not_finite(array)
            if row is not None:
                raise ValueError(
                    f"{name} of example {row} is not finite; leave the example out, or "
                    "replace what is missing"
                )


def _checked_weights(weights: np.ndarray) -> np.ndarray:
    """The weights as float32.

    Raises:
      ValueError: they are not numbers [examples], one is negative, or all are 0.
    """
    if weights.ndim != 1 or weights.dtype.kind not in "fiu":
        raise ValueError(
            f"weights is {weights.dtype} {list(weights.shape)}; it must hold a number "
            "for each example"
        )
    if weights.min() < 0:
        raise ValueError(f"weights of example {int(np.argmin(weights))} is negative")
    if not weights.any():
        raise ValueError("weights are all 0, so nothing could be learnt")
    return weights.astype(np.float32)
