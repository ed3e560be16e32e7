"""Replacement gradients where TensorFlow's kernel is slow, inexact or missing.

A convolution has two gradients: the next layer waits for the one by the input, the
update for the one by the filters.  Of two operations that become ready together, a
TensorFlow thread queues the one made first and runs the other; so on CPUs the filter
gradient is made first, and another thread takes it while the backward pass goes on.
ResNet-50's step with one tower of 16 images took 0.97 of the time on 2 cores.

The filter gradient of a 1 x 1 convolution is the matrix product of its input and the
gradient of its output.  On CPUs in bfloat16, oneDNN multiplies matrices two to three
times as fast as its filter gradient kernels do the same work (TensorFlow 2.21, AVX-512
with AMX); a ResNet-50 spends a sixth of its step there.  In float32, and for larger
filters, matrix products were not faster.

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

import tensorflow as tf

v1 = tf.compat.v1

_CONV2D, _MAX_POOL = "TowersConv2D", "TowersMaxPool"
_BIAS_ADD, _PAD = "TowersBiasAdd", "TowersPad"
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
        chosen["BiasAdd"] = _BIAS_ADD
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
        rows, columns = (tf.reshape(t, [-1, t.shape[-1]]) for t in (x, dy))
        product = tf.matmul(rows, columns, transpose_a=True)
        by_filters = tf.reshape(product, filters.shape)
    else:
        by_filters = tf.raw_ops.Conv2DBackpropFilter(
            input=x, filter_sizes=tf.shape(filters), out_backprop=dy, **options
        )
    by_input = tf.raw_ops.Conv2DBackpropInput(
        input_sizes=tf.shape(x), filter=filters, out_backprop=dy, **options
    )
    return [by_input, by_filters]


def _is_product(op: tf.Operation) -> bool:
    """Whether a matrix product is better: bfloat16, 1 x 1 filters, stride 1."""
    x, filters = op.inputs
    (y,) = op.outputs
    return (
        x.dtype == tf.bfloat16
        and op.get_attr("data_format") == b"NHWC"
        and filters.shape[:2] == [1, 1]
        and filters.shape[2] == x.shape[3]  # one group
        and op.get_attr("padding") != b"EXPLICIT"  # else some are made of zeros
        and x.shape[1:3].is_fully_defined()
        and x.shape[1:3] == y.shape[1:3]
    )


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
