"""The gradients of a segment as tensors by name, each where it is to be added up."""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf


def named(
    gradients: dict[str, Any], by: Mapping[str, tf.Tensor]
) -> dict[str, tf.Tensor]:
    """The tensors of gradients, in operations of their own.

    A gradient may be a tensor of the forward operations, or a placeholder.  That by a
    part of a variable stays where it was made, or goes where the part lies.

    Args:
      gradients: value -> tensor, `IndexedSlices` or None.
      by: value -> what it is the gradient by, on the device of a part if it is one.

    Returns:
      `<value>/0` and, of an `IndexedSlices`, `<value>/1` -> tensor; for a value `dx...`
      the tensor under its own name.
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
    """Whether more is done with a table than to look up rows."""
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
