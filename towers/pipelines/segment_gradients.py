"""The gradients of a segment as named tensors, on the devices where they are added."""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf


def named(
    gradients: dict[str, Any], by: Mapping[str, tf.Tensor]
) -> dict[str, tf.Tensor]:
    """The tensors of gradients, each in an operation of its own.

    A gradient may be a tensor of the forward operations, or a placeholder.  The
    gradient of a part stays on the device where it was computed, or is moved to the
    part's.

    Args:
      gradients: name -> tensor, `IndexedSlices` or None.
      by: name -> the tensor with respect to which it is the gradient; of a part, on the
        part's device.

    Returns:
      `<name>/0` and, for an `IndexedSlices`, `<name>/1` -> tensor; for a name `dx...`
      the tensor under this name.
    """
    named = {}
    for name, gradient in gradients.items():
        if gradient is None:
            continue
        part = by[name].device
        if name.startswith("dx"):
            named[name] = tf.identity(tf.convert_to_tensor(gradient))
        elif not isinstance(gradient, tf.IndexedSlices):
            with tf.device(gradient.device or part):
                named[f"{name}/0"] = tf.identity(gradient)
        elif part and _also_read_as_a_whole(by[name]):
            with tf.device(part):
                rows = by[name].shape[0]
                named[f"{name}/0"] = tf.math.unsorted_segment_sum(
                    gradient.values, gradient.indices, rows
                )
        else:
            parts = (gradient.values, gradient.indices)
            named |= {f"{name}/{i}": tf.identity(part) for i, part in enumerate(parts)}
    return named


def _also_read_as_a_whole(table: tf.Tensor) -> bool:
    """Whether a table is read in other ways than by looking up rows."""
    return not {op.type for op in table.consumers()} <= {"GatherV2", "Shape"}


def dense(
    parts: Sequence[tf.Tensor], shape: tf.TensorShape, dtype: tf.DType | None = None
) -> tf.Tensor:
    """A gradient as one dense tensor.

    Args:
      parts: the tensor, or the values and indices of an `IndexedSlices`.
      shape: of the variable.
      dtype: in which rows are summed and returned; None for that of the parts.
    """
    values, *indices = parts
    values = tf.cast(values, dtype or values.dtype)
    if not indices:
        return values
    return tf.math.unsorted_segment_sum(values, *indices, shape[0])
