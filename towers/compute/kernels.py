"""Replacement gradients where TensorFlow's kernel is slow, inexact or missing.

A convolution's gradients are those of `convolution`.

Dense layers: the gradient of the input is the product of the output's gradient and the
transposed weights.  On CPUs with AVX-512 in float32, with 16 to 128 rows and 2**18
weights or more, oneDNN takes 1.2 to 4.7 times as long for it as for the transposed
product, of the weights and the transposed gradient; with 8 rows this holds from 2**24
weights on.  It was a sixteenth of AlexNet's step (32 images on four towers) and a
seventh of LeNet's with one tower (TensorFlow 2.21, 2 cores).

ReLU: the gradient passes where the output is positive.  In bfloat16, TensorFlow's
  kernel
converts every number to float32 and back.  The same on the bits, as integers, takes 0.6
of the time; but six times as long if the result overwrites the gradient, which is
prevented here.  (TensorFlow's graph optimizers would undo that;
`placement.session_config` turns them off.)  ResNet-50's step took 0.97 of the time (16
images, 2 cores).

Biases: the gradient is the sum of all rows of the output's gradient.  On CPUs in
bfloat16, TensorFlow's kernel adds them one by one in bfloat16: a sum stops growing at
256 times a row, and is 5 % off after 2,000 rows of noise.  The product of a row of ones
and these rows is added in float32, rounded once, and takes less time.

Local response normalization: TensorFlow's kernel for the gradient takes a power of
every number, channel by channel.  On CPUs in float32 the gradient is made of plain
operations here, which take a quarter of the time (TensorFlow 2.21, 16 x 16 images of 64
channels).  TensorFlow has no gradient of its gradient either, so a penalty on gradients
would fail.  Elsewhere that is made of plain operations, if it is needed.

Max pooling: on CPUs only oneDNN has a kernel for the gradient in NCHW, and it needs the
pooling in the same function.  Forward and backward pass may be two functions.

Padding: the gradient is the middle of the output's gradient.  TensorFlow computes at
  run
time where that begins.  XLA needs the value before, and looks for it on the first CPU
of the process; on another logical CPU this fails with "Multiple CPU devices".
"""

import contextlib

import numpy as np
import tensorflow as tf

from towers.compute import convolution
from towers.layout import processor

v1 = tf.compat.v1

_MAX_POOL, _RELU = "TowersMaxPool", "TowersRelu"
_BIAS_ADD, _MATMUL, _PAD = "TowersBiasAdd", "TowersMatMul", "TowersPad"
_LRN, _LRN_GRAD, _RELU_GRAD = "TowersLRN", "TowersLRNGrad", "TowersReluGrad"
_LRN_ON_CPU = "TowersLRNOnCPU"

_LRN_OPTIONS = ("depth_radius", "bias", "alpha", "beta")


def gradients(
    *, kind: str, dtype: tf.DType, apart: bool = False
) -> contextlib.AbstractContextManager:
    """A context in which operations get these gradients.

    Args:
      kind: `cpu` or `gpu`, on which they run.
      dtype: in which they compute.
      apart: whether forward and backward pass are separate functions.
    """
    chosen = {"LRN": _LRN}
    if kind == "cpu":
        chosen |= {"Conv2D": convolution.GRADIENT, "MatMul": _MATMUL, "Pad": _PAD}
        chosen["LRN"] = _LRN_ON_CPU
    if kind == "cpu" and dtype == tf.bfloat16:
        chosen |= {"BiasAdd": _BIAS_ADD, "Relu": _RELU}
    if kind == "cpu" and apart:
        chosen["MaxPool"] = _MAX_POOL
    return _overridden(chosen)


@tf.RegisterGradient(_MATMUL)
def _matmul(op: tf.Operation, dy: tf.Tensor) -> list[tf.Tensor]:
    """The gradients of both factors; steps take longer if made in the other order."""
    a, b = (tf.math.conj(tensor) for tensor in op.inputs)
    turned = [op.get_attr(name) for name in ("transpose_a", "transpose_b")]
    if turned[0]:
        by_a = tf.matmul(b, dy, transpose_a=turned[1], transpose_b=True)
    elif turned[1] or not _is_faster_turned(a, b):
        by_a = tf.matmul(dy, b, transpose_b=not turned[1])
    else:
        by_a = tf.transpose(tf.matmul(b, dy, transpose_b=True))
    if turned[1]:
        by_b = tf.matmul(dy, a, transpose_a=True, transpose_b=turned[0])
    else:
        by_b = tf.matmul(a, dy, transpose_a=not turned[0])
    return [by_a, by_b]


def _is_faster_turned(x: tf.Tensor, weights: tf.Tensor) -> bool:
    rows, size = x.shape[0] or 0, weights.shape.num_elements() or 0
    return (
        x.dtype == tf.float32
        and size >= 1 << 18
        and (16 if size < 1 << 24 else 8) <= rows <= 128
        and processor.has("avx512f")
    )


@tf.RegisterGradient(_RELU)
def _relu(op: tf.Operation, dy: tf.Tensor) -> tf.Tensor:
    """The gradient of the input: that of the output where the output is positive."""
    return _where_positive(dy, op.outputs[0])


def _where_positive(dy: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """dy where y, the output of a ReLU, is positive, and 0 elsewhere."""
    if dy.dtype != tf.bfloat16:
        return tf.raw_ops.ReluGrad(gradients=dy, features=y)
    bits = [tf.bitcast(tensor, tf.int16) for tensor in (dy, y)]
    masked = tf.raw_ops.ReluGrad(gradients=bits[0], features=bits[1])
    # The gradient is read again after the result, so it is not overwritten.  Integers
    # have no gradients, so this last operation has that of the whole.
    with _overridden({"IdentityN": _RELU_GRAD}):
        masked, *_ = tf.identity_n([tf.bitcast(masked, dy.dtype), dy, y])
    return masked


@tf.RegisterGradient(_RELU_GRAD)
def _relu_grad(
    op: tf.Operation, by_masked: tf.Tensor, *_: object
) -> list[tf.Tensor | None]:
    """The gradients of the masked bits (none), of dy and of y."""
    y = op.inputs[2]
    return [None, _where_positive(by_masked, y), tf.zeros_like(y)]


@tf.RegisterGradient(_LRN)
def _lrn(op: tf.Operation, dy: tf.Tensor) -> tf.Tensor:
    """The gradient of the input, by TensorFlow's kernel."""
    with _overridden({"LRNGrad": _LRN_GRAD}):
        return tf.raw_ops.LRNGrad(
            input_grads=dy,
            input_image=op.inputs[0],
            output_image=op.outputs[0],
            **{name: op.get_attr(name) for name in _LRN_OPTIONS},
        )


@tf.RegisterGradient(_LRN_ON_CPU)
def _lrn_on_cpu(op: tf.Operation, dy: tf.Tensor) -> tf.Tensor:
    """The gradient of the input, with y = x * (bias + alpha * sum of x**2) ** -beta.

    Sums over neighbouring channels are products with a band of equal numbers.
    """
    x, y = op.inputs[0], op.outputs[0]
    if x.dtype != tf.float32:
        return _lrn(op, dy)
    radius, bias, alpha, beta = map(op.get_attr, _LRN_OPTIONS)
    channels = np.arange(x.shape[3])
    is_near = np.abs(channels[:, None] - channels) <= radius

    def sums(factor: float, values: tf.Tensor) -> tf.Tensor:
        rows = tf.reshape(values, [-1, len(channels)])
        sums = tf.matmul(rows, tf.constant(factor * is_near, x.dtype))
        return tf.reshape(sums, [-1, *x.shape[1:]])

    with tf.control_dependencies([dy]):  # else the forward pass makes and keeps base
        x = tf.identity(x)
    base = bias + sums(alpha, x * x)
    by_neighbours = x * sums(2 * alpha * beta, dy * y / base)
    with tf.control_dependencies([by_neighbours]):  # one after another: less memory
        base = tf.identity(base)
    if beta == 0.75:  # of all published networks; TensorFlow's power is slow
        root = tf.math.rsqrt(base)
        power = root * tf.sqrt(root)
    else:
        power = base**-beta
    return dy * power - by_neighbours


@tf.RegisterGradient(_LRN_GRAD)
def _lrn_grad(op: tf.Operation, by_dx: tf.Tensor) -> list[tf.Tensor | None]:
    """The gradients of dy and of the input: those of the same in plain operations."""
    radius, bias, alpha, beta = map(op.get_attr, _LRN_OPTIONS)
    # Copies, as one of the two may be computed from the other.
    dy, x = map(tf.identity, op.inputs[:2])
    channels = x.shape[3]
    squares = tf.pad(x * x, [[0, 0]] * 3 + [[radius, radius]])
    window = [squares[..., k : k + channels] for k in range(2 * radius + 1)]
    y = x * (bias + alpha * tf.add_n(window)) ** -beta
    [dx] = tf.gradients(y, [x], dy)
    return [*tf.gradients(dx, [dy, x], by_dx), None]


def _overridden(chosen: dict[str, str]) -> contextlib.AbstractContextManager:
    """A context in which operations get gradients by their registered names."""
    return v1.get_default_graph().gradient_override_map(chosen)


@tf.RegisterGradient(_BIAS_ADD)
def _bias_add(op: tf.Operation, dy: tf.Tensor) -> list[tf.Tensor]:
    """The gradients of the input and of the bias."""
    if op.get_attr("data_format") == b"NCHW":
        axes = [axis for axis in range(dy.shape.rank) if axis != 1]
        return [dy, tf.reduce_sum(dy, axes)]
    channels = op.inputs[1].shape[0] or tf.size(op.inputs[1])
    return [dy, sum_of_rows(tf.reshape(dy, [-1, channels]))]


def sum_of_rows(rows: tf.Tensor) -> tf.Tensor:
    """The sum of [rows, columns], in their dtype: [columns], rounded once."""
    if rows.dtype != tf.bfloat16:
        return tf.raw_ops.BiasAddGrad(out_backprop=rows)
    ones = tf.ones([1, rows.shape[0] or tf.shape(rows)[0]], rows.dtype)
    return tf.reshape(tf.matmul(ones, rows), [rows.shape[1] or -1])


@tf.RegisterGradient(_PAD)
def _pad(op: tf.Operation, dy: tf.Tensor) -> list[tf.Tensor | None]:
    """The gradient of the input; the sizes of the padding have none."""
    x, paddings = op.inputs
    static_paddings = tf.get_static_value(paddings)
    begin = paddings[:, 0] if static_paddings is None else static_paddings[:, 0]
    if x.shape.is_fully_defined():
        size = tf.constant(x.shape.as_list(), paddings.dtype)
    else:
        size = tf.shape(x, paddings.dtype)
    return [tf.slice(dy, begin, size), None]


@tf.RegisterGradient(_MAX_POOL)
def _max_pool(op: tf.Operation, dy: tf.Tensor) -> tf.Tensor:
    """The gradient of the input, by the NHWC kernel."""
    tensors = [*op.inputs, *op.outputs, dy]
    sizes = {name: op.get_attr(name) for name in ("ksize", "strides")}
    turned = op.get_attr("data_format") == b"NCHW"
    if turned:
        tensors = [tf.transpose(t, [0, 2, 3, 1]) for t in tensors]
        sizes = {name: [n, h, w, c] for name, (n, c, h, w) in sizes.items()}
    dx = tf.raw_ops.MaxPoolGrad(
        orig_input=tensors[0],
        orig_output=tensors[1],
        grad=tensors[2],
        **sizes,
        padding=op.get_attr("padding").decode(),
        explicit_paddings=op.get_attr("explicit_paddings"),  # NCHW has none on CPUs
    )
    return tf.transpose(dx, [0, 3, 1, 2]) if turned else dx
