"""Examples from numpy arrays, which are in no graph definition and no checkpoint."""

from typing import Any

import numpy as np
import tensorflow as tf

from towers.data import examples
from towers.data.examples import Examples


def from_arrays(
    features: Any,
    labels: Any = (),
    weights: Any = None,
    *,
    num_classes: int | None = None,
) -> Examples:
    """The examples in arrays; row i of each array belongs to example i.

    Arrays of more than 256 MiB are not copied.  Do not change them while a run reads
    them.

    Args:
      features: an array [examples, ...], or a nest (dicts, tuples) of them.
      labels: the same; () if there are none.
      weights: numbers [examples], at least 0: the weight of each example's loss in the
        mean.  None if all are equal.
      num_classes: labels are in [0, num_classes); if None, the model's inputs have the
        number.

    Raises:
      ValueError: they do not fit together, are empty or contain something other than
        finite numbers; the sentence names the array.
    """
    parts: examples.Parts = (features, () if labels is None else labels)
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
        num_classes=num_classes,
        specs=specs,
        read=lambda numbers: examples.call(
            lambda rows: [array[rows] for array in flat], numbers, specs
        ),
        calls=2,  # one copies rows while TensorFlow receives those of the other
        weights=None if weights is None else lambda n: _gathered(flat[-1], n),
        arrays=tuple(flat),
        labels=parts[1],
    )


def _gathered(weights: np.ndarray, numbers: tf.Tensor) -> tf.Tensor:
    return examples.call(lambda rows: [weights[rows]], numbers, (_WEIGHT,))[0]


_WEIGHT = tf.TensorSpec([], tf.float32)


def _check(arrays: list[tuple[str, np.ndarray]]) -> None:
    """Refuses arrays with different numbers of rows, or with values not finite.

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
        # A memory-mapped file may be larger than memory; it is read as needed.
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
