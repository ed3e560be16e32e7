"""The gradients of convolutions, by the kernels that are fastest where they run.

The filter gradient of a 1 x 1 convolution is a matrix product of its input and what
comes back.  On CPUs and in bfloat16, oneDNN multiplies matrices two to three times as
fast as its kernels for filter gradients do the same work (TensorFlow 2.21, AVX-512 with
AMX), and a ResNet-50 spends a sixth of its step there.  In float32, and with larger
filters, the matrix products that there could be are no faster.
"""

import contextlib

import tensorflow as tf

v1 = tf.compat.v1

_GRADIENT = "TowersConv2D"
_OPTIONS = ("strides", "padding", "explicit_paddings", "data_format", "dilations")


def gradients(*, kind: str, dtype: tf.DType) -> contextlib.AbstractContextManager:
    """Gives the convolutions made in this context their gradients.

    Args:
      kind: `cpu` or `gpu`, what they will run on.
      dtype: that they compute in.
    """
    if kind != "cpu" or dtype != tf.bfloat16:
        return contextlib.nullcontext()
    return v1.get_default_graph().gradient_override_map({"Conv2D": _GRADIENT})


@tf.RegisterGradient(_GRADIENT)
def _conv2d(op: tf.Operation, dy: tf.Tensor) -> list[tf.Tensor]:
    """By the input and by the filters."""
    x, filters = op.inputs
    options = {name: op.get_attr(name) for name in _OPTIONS}
    options |= {n: options[n].decode() for n in ("padding", "data_format")}
    dx = tf.raw_ops.Conv2DBackpropInput(
        input_sizes=tf.shape(x), filter=filters, out_backprop=dy, **options
    )
    if _is_product(op):
        rows, columns = (tf.reshape(t, [-1, t.shape[-1]]) for t in (x, dy))
        product = tf.matmul(rows, columns, transpose_a=True)
        return [dx, tf.reshape(product, filters.shape)]
    by_filters = tf.raw_ops.Conv2DBackpropFilter(
        input=x, filter_sizes=tf.shape(filters), out_backprop=dy, **options
    )
    return [dx, by_filters]


def _is_product(op: tf.Operation) -> bool:
    """Whether each of its outputs is made of the channels at one place."""
    x, filters = op.inputs
    (y,) = op.outputs
    return (
        op.get_attr("data_format") == b"NHWC"
        and filters.shape[:2] == [1, 1]
        and filters.shape[2] == x.shape[3]  # one group
        and op.get_attr("padding") != b"EXPLICIT"  # else some are made of zeros
        and x.shape[1:3].is_fully_defined()
        and x.shape[1:3] == y.shape[1:3]
    )
