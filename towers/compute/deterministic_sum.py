"""Deterministic sums: equal in every run, bit for bit."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

# More tensors than this are added in groups, if each is larger than so many bytes.
_AT_ONCE = 4
_SMALL = 2**18


def sum_in_order(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """The sum of tensors of one shape and dtype, added from first to last.

    One `AddN`: it runs at memory speed, and chains, trees and stacks of the same
    tensors were measured slower.  More than four large tensors are added four at a
    time, which frees the memory of the first ones early: with 32 resnet50 towers a
    third of the process's, most of which the first step would have to clear.  For small
    ones that is not worth the operations.

    `AddN` adds into the first input whose buffer nobody else holds, and begins with
    that one, so with three inputs or more its order would depend on timing.  Therefore
    the third input and all later ones are held until the sum is done; which of the
    first two it begins with does not matter, as a + b = b + a.
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

    Where a tensor is read in three places or more, TensorFlow sums the gradients from
    there by one `AddN`, whose order depends on timing; summed in pairs it is fixed.
    """
    pairs = tf.AggregationMethod.EXPERIMENTAL_TREE
    return tf.gradients(ys, xs, grad_ys, aggregation_method=pairs)
