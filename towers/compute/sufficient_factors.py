"""Sufficient factors: a gradient as the two matrices that it is the product of.

The gradient of a dense layer's weights is the product of the layer's input and of its
output's gradient, which have a row per example:

    gradient_k = input_k' x output_gradient_k

and the sum over the towers is the product of all their rows at once,

    sum_k gradient_k = [input_0; input_1; ...]' x [gradient_0; gradient_1; ...]

So a tower does not compute its product.  It sends its rows, and one product is computed
on the variable's device, instead of adding the towers' large gradients there.  Xie et
al. 2016 (Distributed Machine Learning via Sufficient Factor Broadcasting) and Zhang et
al. 2017 (Poseidon) send factors from worker to worker; here they are sent to the
variable.  For a pointwise convolution the rows are pixels.

AlexNet's first dense layer has 37.7M weights.  With four towers of 8 examples, a step
sends 1.7 MB of factors instead of 4 x 151 MB of gradients, and products and sum take
0.2 of the time (2 cores).
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import tensorflow as tf

from towers.layout.placement import task_of

# Elements of a large gradient.  For smaller ones the additional operations cost more,
# and on a network they are sent together.
LARGE = 2**16

# Examples per tower up to which a CPU computes the product of GPU towers' rows; it
# takes about as long as reading the towers' gradients.
_ROWS_ON_CPU = 32


class Factors(NamedTuple):
    """A gradient as factors.

    Attributes:
      left, right: the inputs of the `MatMul`, on the tower's device.
      whole: the gradient itself; the tower computes it only if it is read.
    """

    left: tf.Tensor
    right: tf.Tensor
    whole: tf.Tensor

    @property
    def transposed(self) -> tuple[bool, bool]:
        """Which of left and right are transposed in the product."""
        product = _product(self.whole)
        assert product is not None
        get = product.get_attr
        return get("transpose_a"), get("transpose_b")

    @property
    def axes(self) -> tuple[int, int]:
        """The axes of left and right that the product sums over: the rows."""
        left, right = self.transposed
        return 0 if left else 1, 1 if right else 0


Gradient: TypeAlias = tf.Tensor | tf.IndexedSlices | Factors | None


def of(gradient: Gradient, device: str, towers: Sequence[str] = ()) -> Gradient:
    """A tower's gradient as factors, if these are less to send and to add.

    Args:
      gradient: in any form, of `LARGE` elements or more.
      device: of the variable.
      towers: devices of the towers whose gradients are added there, all in the same
        form; empty for this tower alone.

    Returns:
      `Factors` if the gradient is a large product of smaller factors; else the
      gradient. If the product is computed on another task or GPU, the factors of all
      towers together must be smaller than the gradient, because one device then does
      the work of all towers; on one CPU the same cores do it.
    """
    if not isinstance(gradient, tf.Tensor):
        return gradient
    op = _product(gradient)
    if op is None:
        return gradient
    left, right = op.inputs
    factors = Factors(left, right, gradient)
    towers = towers or (gradient.device,)
    return factors if _are_less(factors, device, towers) else gradient


def of_all_or_none(towers: Sequence[list[Gradient]]) -> None:
    """Leaves factors only of gradients that every tower has as factors.

    Towers of small batches may have them where those of large ones do not.
    """
    for index, gradients in enumerate(zip(*towers)):
        if not all(isinstance(gradient, Factors) for gradient in gradients):
            for of_tower in towers:
                of_tower[index] = dense(of_tower[index])


def _product(gradient: tf.Tensor) -> tf.Operation | None:
    """The `MatMul` that computes the tensor, up to a reshape."""
    op = gradient.op
    while op.type == "Reshape":
        op = op.inputs[0].op
    return op if op.type == "MatMul" else None


def _are_less(factors: Factors, device: str, towers: Sequence[str]) -> bool:
    rows = factors.left.shape[factors.axes[0]]
    sizes = [t.shape.num_elements() for t in (factors.whole, *factors[:2])]
    if rows is None or None in sizes:
        return False
    size, *factor_sizes = sizes
    here = all(task_of(tower) == task_of(device) for tower in towers)
    gpus = any(map(_is_gpu, towers)), _is_gpu(device)
    if here and len(towers) == 1:
        return False  # nothing to add, and no network
    if here and not any(gpus):
        return sum(factor_sizes) <= size
    if gpus == (True, False) and rows > _ROWS_ON_CPU:
        return False
    return len(towers) * sum(factor_sizes) <= size


def _is_gpu(device: str) -> bool:
    return tf.DeviceSpec.from_string(device).device_type == "GPU"


def dense(gradient: Gradient) -> tf.Tensor | tf.IndexedSlices | None:
    """The gradient itself, also if it is given as factors."""
    return gradient.whole if isinstance(gradient, Factors) else gradient


def summed(
    shares: Sequence[Factors], device: str, hosts: Sequence[str] = ()
) -> tf.Tensor:
    """The sum of the towers' products, float32.

    The product is computed in the factors' dtype, as by one tower on the joined batch,
    but in float32 if GPUs computed the factors and a CPU multiplies them.

    Args:
      shares: of each tower.
      device: where the product is computed.
      hosts: the CPU device of each tower's host.  If the device is on another task,
        factors are joined on each host first, so that there are two transfers per
        layer.
    """
    there = task_of(device)
    if all(task_of(host) == there for host in hosts):
        hosts = ()
    first = shares[0]
    sides = [
        _joined([share[side] for share in shares], first.axes[side], device, hosts)
        for side in (0, 1)
    ]
    with tf.device(device):
        if _is_gpu(first.whole.device) != _is_gpu(device):
            sides = [tf.cast(side, tf.float32) for side in sides]
        left, right = first.transposed
        product = tf.matmul(*sides, transpose_a=left, transpose_b=right)
        return tf.cast(tf.reshape(product, first.whole.shape), tf.float32)


def _joined(
    tensors: Sequence[tf.Tensor], axis: int, device: str, hosts: Sequence[str]
) -> tf.Tensor:
    """The rows of all towers, concatenated in their order, on the device."""
    if hosts:
        groups: dict[str, list[tf.Tensor]] = {}
        for tensor, host in zip(tensors, hosts, strict=True):
            groups.setdefault(host, []).append(tensor)
        tensors = [_joined(rows, axis, host, ()) for host, rows in groups.items()]
    if len(tensors) == 1:
        return tensors[0]
    with tf.device(device):
        return tf.concat(tensors, axis)
