"""Sufficient factors: the gradient of a dense layer as the two matrices it is made of.

The gradient by a dense layer's weights is the product of its input and of its output's
gradient, which have a row per example:

    gradient_k = input_k' x output_gradient_k

and the sum over the towers is the product of all their rows at once,

    sum_k gradient_k = [input_0; input_1; ...]' x [gradient_0; gradient_1; ...]

So a tower need not make its product: it gives its rows, and one product is made beside
the variable, where the towers' large ones would be read and added.  Xie et al. 2016
(Distributed Machine Learning via Sufficient Factor Broadcasting) and Zhang et al. 2017
(Poseidon) send them from worker to worker; here they go to the variable.

AlexNet's first dense layer has 37.7M weights: with four towers of 8 examples 4 x 151 MB
of gradients become 1.7 MB of factors, and products and sum take 0.2 of the time (2
cores).  On a network that is what a step sends.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from towers.layout.placement import task_of

# Elements of a gradient.  Smaller ones are not worth the operations, and on a network
# they go together.
_LARGE = 2**16

# Examples per tower, up to which the product of GPU towers' rows is made on a CPU: it
# then takes about as long as reading the towers' gradients.
_ROWS_ON_CPU = 32


class Factors(NamedTuple):
    """A gradient as factors.

    Attributes:
      left, right: the inputs of `product.op`, a MatMul, on the tower's device.
      product: the gradient itself; it is computed only where somebody reads it.
    """

    left: tf.Tensor
    right: tf.Tensor
    product: tf.Tensor

    @property
    def transposed(self) -> tuple[bool, bool]:
        """Whether left and right are transposed in the product."""
        get = self.product.op.get_attr
        return get("transpose_a"), get("transpose_b")

    @property
    def axes(self) -> tuple[int, int]:
        """The axes of left and right that are summed over, of one size: examples."""
        left, right = self.transposed
        return 0 if left else 1, 1 if right else 0


Gradient = tf.Tensor | tf.IndexedSlices | Factors | None


def of(gradient: Gradient, device: str, count: int) -> Gradient:
    """A tower's gradient as factors, if that is less to transfer and to add.

    Args:
      gradient: in any form.
      device: of the variable.
      count: of the towers whose gradients are added up there.

    Returns:
      `Factors` of a large product whose factors are smaller, those of all the towers
      together, than one gradient; any other gradient as it is.
    """
    if not isinstance(gradient, tf.Tensor) or gradient.op.type != "MatMul":
        return gradient
    factors = Factors(*gradient.op.inputs, gradient)
    return factors if _are_less(factors, device, count) else gradient


def _are_less(factors: Factors, device: str, count: int) -> bool:
    product = factors.product
    rows, size = factors.left.shape[factors.axes[0]], product.shape.num_elements()
    if rows is None or size is None:
        return False
    if size < _LARGE or rows * count * sum(product.shape) > size:
        return False
    if count == 1 and task_of(product.device) == task_of(device):
        return False  # nothing to add, and no network
    return rows <= _ROWS_ON_CPU or not _is_gpu(product.device) or _is_gpu(device)


def _is_gpu(device: str) -> bool:
    return tf.DeviceSpec.from_string(device).device_type == "GPU"


def dense(gradient: Gradient) -> tf.Tensor | tf.IndexedSlices | None:
    """The gradient itself, where it is given as factors."""
    return gradient.product if isinstance(gradient, Factors) else gradient


def summed(
    shares: Sequence[Factors], device: str, hosts: Sequence[str] = ()
) -> tf.Tensor:
    """The sum of the towers' products, float32.

    Args:
      shares: of each tower.
      device: where it is wanted; the product is made there, in float32.
      hosts: the CPU device beside each tower.  Where the device is on another task,
        factors are joined on each host first, so that a layer's cross the network in
        two transfers.
    """
    there = task_of(device)
    if all(task_of(host) == there for host in hosts):
        hosts = ()
    lefts, rights, _ = zip(*shares)
    sides = [
        _joined(tensors, axis, device, hosts)
        for tensors, axis in zip((lefts, rights), shares[0].axes)
    ]
    transposed = dict(zip(("transpose_a", "transpose_b"), shares[0].transposed))
    with tf.device(device):
        return tf.matmul(*(tf.cast(side, tf.float32) for side in sides), **transposed)


def _joined(tensors, axis: int, device: str, hosts: Sequence[str]) -> tf.Tensor:
    """The towers' rows one below the other, in their order, on the device."""
    if hosts:
        groups: dict[str, list[tf.Tensor]] = {}
        for tensor, host in zip(tensors, hosts, strict=True):
            groups.setdefault(host, []).append(tensor)
        tensors = [_joined(own, axis, host, ()) for host, own in groups.items()]
    if len(tensors) == 1:
        return tensors[0]
    with tf.device(device):
        return tf.concat(tensors, axis)
