"""Deterministic sums: equal in every run, bit for bit."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

# More large tensors than this are added in groups.  The second: bytes of a large one.
_AT_ONCE = 4
_SMALL = 2**18


def sum_in_order(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """The sum of tensors of one shape and dtype, added from first to last.

    It is one `AddN`, which runs at memory speed; chains, trees and stacks of the same
    tensors were slower.  More than four large tensors are added four at a time, so that
    the memory of the first ones is freed early: with 32 resnet50 towers a third of the
    process's memory.  For small tensors the additional operations cost more.

    `AddN` adds into the first input whose buffer nothing else uses, and begins with
    that input.  With three or more inputs its order would so depend on timing.
    Therefore the third and all later inputs are kept in use until the sum is done.
    Which of the first two it begins with does not matter, as a + b = b + a.
    """
    if len(tensors) == 1:
        return tf.identity(tensors[0])
    if len(tensors) > _AT_ONCE and not _is_small(tensors[0]):
        last = 1 - _AT_ONCE  # with the sum of those before
        return sum_in_order([sum_in_order(tensors[:last]), *tensors[last:]])
    total = tf.add_n(list(tensors))
    if len(tensors) == 2:
        return total
    with tf.control_dependencies([total]):
        held = tf.raw_ops.IdentityN(input=list(tensors[2:]))
    with tf.control_dependencies([held[0].op]):
        return tf.identity(total)


def _is_small(tensor: tf.Tensor) -> bool:
    """Whether the tensor is known to be small."""
    elements = tensor.shape.num_elements()
    return elements is not None and elements * tensor.dtype.size <= _SMALL


def differentiate(ys: Any, xs: Sequence[tf.Tensor], grad_ys: Any = None) -> list[Any]:
    """`tf.gradients`, made deterministic: equal in every run, bit for bit.

    If a tensor is read in three places or more, TensorFlow sums the gradients from
    these by one `AddN`, whose order depends on timing.  Here they are summed in pairs.
    """
    pairs = tf.AggregationMethod.EXPERIMENTAL_TREE
    return tf.gradients(ys, xs, grad_ys, aggregation_method=pairs)
