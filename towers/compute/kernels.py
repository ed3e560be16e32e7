"""Replacement gradients where TensorFlow's kernel is slow, inexact or missing.

A convolution has two gradients: the next layer waits for the one by the input, the
update for the one by the filters.  Of two operations that become ready together, a
TensorFlow thread queues the one made first and runs the other; so on CPUs the filter
gradient is made first, and another thread takes it while the backward pass goes on.
ResNet-50's step with one tower of 16 images took 0.97 of the time on 2 cores.

The filter gradient of a 1 x 1 convolution is the matrix product of its input and the
gradient of its output; that of a larger one is such a product for each place in the
filter, with the input shifted there.  On CPUs oneDNN multiplies matrices faster than
its filter gradient kernels do the same work (`_is_product` says where): up to three
times with AMX, 1.2 to 1.9 times with AVX-512's bfloat16, 1.2 times in float32.

The gradient of a ReLU is let through where its output is positive.  In bfloat16,
TensorFlow's kernel turns every number into float32 and back; on the same bits, taken as
integers, it takes 0.6 of the time, but six times as long if the result overwrites the
gradient.  With these products and integers, ResNet-50's step took 0.95 (16 images) and
0.93 (four towers of 4) of the time in bfloat16, 0.98 and 0.96 in float32.

The gradient of a bias is the sum of all rows of its output's gradient.  On CPUs in
bfloat16, TensorFlow's kernel adds them one by one in bfloat16: a sum stops growing at
256 times a row, and is 5 % off after 2,000 rows of noise.  The product of a row of ones
and these rows is added in float32, rounded once, and takes less time.

On CPUs only oneDNN has a kernel for the gradient of max pooling in NCHW, and it needs
the pooling in the same function, while forward and backward pass may be two functions.

The gradient of a padding cuts the middle out of its output's.  TensorFlow's computes at
run time where that begins, and XLA, which must know it, looks for its value on the
first CPU of the process: a cluster on another logical CPU then fails with "Multiple CPU
devices".
"""

import contextlib
import itertools
from collections.abc import Iterator

import tensorflow as tf

from towers.layout import processor

v1 = tf.compat.v1

_CONV2D, _MAX_POOL = "TowersConv2D", "TowersMaxPool"
_BIAS_ADD, _PAD, _RELU = "TowersBiasAdd", "TowersPad", "TowersRelu"
_OPTIONS = ("strides", "padding", "explicit_paddings", "data_format", "dilations")


def gradients(
    *, kind: str, dtype: tf.DType, apart: bool = False
) -> contextlib.AbstractContextManager:
    """A context in which operations get these gradients.

    Args:
      kind: `cpu` or `gpu`, what they will run on.
      dtype: that they compute in.
      apart: whether forward and backward pass are functions of their own.
    """
    chosen = {"Conv2D": _CONV2D, "Pad": _PAD} if kind == "cpu" else {}
    if kind == "cpu" and dtype == tf.bfloat16:
        chosen |= {"BiasAdd": _BIAS_ADD, "Relu": _RELU}
    if kind == "cpu" and apart:
        chosen["MaxPool"] = _MAX_POOL
    return v1.get_default_graph().gradient_override_map(chosen)


@tf.RegisterGradient(_CONV2D)
def _conv2d(op: tf.Operation, dy: tf.Tensor) -> list[tf.Tensor]:
    """The gradients by the input and by the filters, which are made first."""
    x, filters = op.inputs
    options = {name: op.get_attr(name) for name in _OPTIONS}
    options |= {n: options[n].decode() for n in ("padding", "data_format")}
    if _is_product(op):
        by_filters = _products(op, dy)
    else:
        by_filters = tf.raw_ops.Conv2DBackpropFilter(
            input=x, filter_sizes=tf.shape(filters), out_backprop=dy, **options
        )
    by_input = tf.raw_ops.Conv2DBackpropInput(
        input_sizes=tf.shape(x), filter=filters, out_backprop=dy, **options
    )
    return [by_input, by_filters]


def _is_product(op: tf.Operation) -> bool:
    """Whether matrix products are better for the gradient by the filters.

    Measured with TensorFlow 2.21 on ResNet-50's shapes, in batches of 4 and 16.  With
    AVX2 alone, and with AMX for larger filters, products were not faster.
    """
    x, filters = op.inputs
    (y,) = op.outputs
    if (
        op.get_attr("data_format") != b"NHWC"
        or op.get_attr("padding") == b"EXPLICIT"  # some of x would be zeros
        or filters.shape[2] != x.shape[3]  # several groups
        or not x.shape[1:3].is_fully_defined()
    ):
        return False
    pointwise = filters.shape[:2] == [1, 1] and x.shape[1:3] == y.shape[1:3]
    if x.dtype == tf.float32:
        return pointwise and processor.has("avx512f")
    if x.dtype != tf.bfloat16:
        return False
    if processor.has("amx_bf16"):
        return pointwise
    small = max(y.shape[1:3]) <= 17
    dense = {*op.get_attr("strides"), *op.get_attr("dilations")} == {1}
    return small and (pointwise or (dense and min(filters.shape[2:]) >= 128))


def _products(op: tf.Operation, dy: tf.Tensor) -> tf.Tensor:
    """The gradient by the filters: a product for each place in them."""
    *_, channels, filters = size = op.inputs[1].shape
    dy_rows = tf.reshape(dy, [-1, filters])
    found = []
    for x in _shifted(op):
        x_rows = tf.reshape(x, [-1, channels])
        found.append(tf.matmul(x_rows, dy_rows, transpose_a=True))
    return tf.reshape(tf.stack(found), size)


def _shifted(op: tf.Operation) -> Iterator[tf.Tensor]:
    """What each place in the filters meets of the input, by row and column."""
    x, filters = op.inputs
    window = filters.shape[:2]
    if window == [1, 1]:
        yield x
        return
    if op.get_attr("padding") == b"SAME":
        sides = [[(length - 1) // 2, length // 2] for length in window]
        x = tf.pad(x, [[0, 0], *sides, [0, 0]])
    height, width = op.outputs[0].shape[1:3]
    for i, j in itertools.product(*map(range, window)):
        yield x[:, i : i + height, j : j + width]


@tf.RegisterGradient(_RELU)
def _relu(op: tf.Operation, dy: tf.Tensor) -> tf.Tensor:
    """The gradient by the input, where the output is positive, as its bits then are."""
    if dy.dtype != tf.bfloat16:
        return tf.raw_ops.ReluGrad(gradients=dy, features=op.outputs[0])
    bits = [tf.bitcast(tensor, tf.int16) for tensor in (dy, op.outputs[0])]
    masked = tf.raw_ops.ReluGrad(gradients=bits[0], features=bits[1])
    # Memory that is read later is not overwritten.
    with tf.control_dependencies([masked]):
        later = [tf.identity(tensor) for tensor in bits]
    with tf.control_dependencies(later):
        return tf.bitcast(masked, dy.dtype)


@tf.RegisterGradient(_BIAS_ADD)
def _bias_add(op: tf.Operation, dy: tf.Tensor) -> list[tf.Tensor]:
    """The gradients by the input and by the bias."""
    if op.get_attr("data_format") == b"NCHW":
        others = [axis for axis in range(dy.shape.rank) if axis != 1]
        return [dy, tf.reduce_sum(dy, others)]
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
    """The gradient by the input; there is none by the sizes of the padding."""
    x, paddings = op.inputs
    known = tf.get_static_value(paddings)
    begin = paddings[:, 0] if known is None else known[:, 0]
    if x.shape.is_fully_defined():
        size = tf.constant(x.shape.as_list(), paddings.dtype)
    else:
        size = tf.shape(x, paddings.dtype)
    return [tf.slice(dy, begin, size), None]


@tf.RegisterGradient(_MAX_POOL)
def _max_pool(op: tf.Operation, dy: tf.Tensor) -> tf.Tensor:
    """The gradient by the NHWC kernel."""
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
