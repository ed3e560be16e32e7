"""Gradients of convolutions on CPUs, in another order and often as matrix products.

The next layer of the backward pass needs the gradient of the input; only the update
needs the gradient of the filters.  If two operations become ready together, a
TensorFlow thread queues the one that was made first and runs the other.  So the filter
gradient is made first: another thread computes it while the backward pass continues.
ResNet-50's step with one tower of 16 images took 0.97 of the time on 2 cores.

The gradients of a pointwise (1 x 1) convolution are matrix products: of the input and
the output's gradient, and of the output's gradient and the filters.  With larger
filters, the filter gradient is such a product for each position in the filter, with the
input shifted.  oneDNN computes these products faster than its own kernels for the
gradients, in the cases that the functions below name (TensorFlow 2.21, ResNet-50's
shapes, batches of 4 and 16).  With them its step took 0.95 of the time in bfloat16 and
0.98 in float32, and that of four towers of 4 images 0.91 and 0.95 (AVX-512 with
bfloat16).
"""

import itertools
import os
from collections.abc import Iterator

import tensorflow as tf

from towers.layout import processor

GRADIENT = "TowersConv2D"

# For products, larger inputs are cut into parts of the batch, up to so many: each part
# adds a product for each position in the filter to the graph.
_PART_BYTES = 2**24
_MOST_PARTS = 8

_OPTIONS = ("strides", "padding", "explicit_paddings", "data_format", "dilations")


@tf.RegisterGradient(GRADIENT)
def _conv2d(op: tf.Operation, dy: tf.Tensor) -> list[tf.Tensor]:
    """The gradients of the input and of the filters; the latter is made first."""
    x, filters = op.inputs
    options = {name: op.get_attr(name) for name in _OPTIONS}
    options |= {n: options[n].decode() for n in ("padding", "data_format")}
    if _filters_by_products(op):
        by_filters = _filter_products(op, dy)
    else:
        by_filters = tf.raw_ops.Conv2DBackpropFilter(
            input=x, filter_sizes=tf.shape(filters), out_backprop=dy, **options
        )
    if _input_by_product(op):
        by_input = _input_product(op, dy)
    else:
        by_input = tf.raw_ops.Conv2DBackpropInput(
            input_sizes=tf.shape(x), filter=filters, out_backprop=dy, **options
        )
    return [by_input, by_filters]


def _filters_by_products(op: tf.Operation) -> bool:
    """Whether products are faster for the gradient of the filters.

    Pointwise in float32: 1.2 times with AVX-512, slower with AVX2; with strides a
    little faster, for 2 % more memory.  Pointwise in bfloat16: 2 to 3 times with AMX;
    without AMX up to 1.8 times on small images, and 1.1 to 1.5 times with strides.
    Without AMX also with larger filters: 1.2 to 1.9 times, if they have enough columns
    for two threads.  In float32 without AVX-512 with larger filters: 1.1 to 2.5 times.
    """
    if not _is_plain(op):
        return False
    x, filters = op.inputs
    pointwise, strided = _is_pointwise(op), _is_strided(op)
    if x.dtype == tf.float32:
        if processor.has("avx512f"):
            return pointwise and not strided
        return not strided and _is_slow_without_avx512(op)
    if processor.has("amx_bf16") or strided:
        return pointwise
    dense = _is_dense(op) and min(filters.shape[2:]) >= 128
    return _largest_side(op) <= 17 and (pointwise or dense)


def _is_slow_without_avx512(op: tf.Operation) -> bool:
    """Whether oneDNN's kernel for float32 filters is slower than products, with AVX2.

    Measured with filters of 2 x 2, 3 x 3, 1 x 3 and 1 x 7.  Products are no faster with
    64 channels on both sides on images of up to 56 pixels, and slower with 16 channels
    and with filters of 5 x 5.
    """
    with_onednn = os.environ.get("TF_ENABLE_ONEDNN_OPTS") == "1"
    if not with_onednn or not processor.has("avx2") or not _is_dense(op):
        return False
    height, width, *channels = op.inputs[1].shape.as_list()
    several = 1 < height * width <= 9
    many = max(channels) > 64 or _largest_side(op) > 64
    return several and min(channels) >= 64 and many


def _input_by_product(op: tf.Operation) -> bool:
    """Whether a product is faster for the gradient of the input.

    Pointwise in bfloat16: 1.2 to 2.4 times with strides; without, 1.1 times on the
    smallest images.
    """
    if not _is_plain(op) or not _is_pointwise(op) or op.inputs[0].dtype == tf.float32:
        return False
    smallest = _largest_side(op) <= 7 and not processor.has("amx_bf16")
    return _is_strided(op) or smallest


def _is_plain(op: tf.Operation) -> bool:
    """Whether the gradients of a convolution can be products."""
    x, filters = op.inputs
    return (
        x.dtype in (tf.float32, tf.bfloat16)
        and op.get_attr("data_format") == b"NHWC"
        and op.get_attr("padding") != b"EXPLICIT"
        and filters.shape[2] == x.shape[3]  # one group
        and x.shape[1:3].is_fully_defined()
    )


def _is_pointwise(op: tf.Operation) -> bool:
    """Whether filters are 1 x 1, and strides divide the image."""
    image = [size * step for size, step in zip(_image(op), _strides(op))]
    return op.inputs[1].shape[:2] == [1, 1] and op.inputs[0].shape[1:3] == image


def _is_dense(op: tf.Operation) -> bool:
    return set(op.get_attr("dilations")) == {1}


def _is_strided(op: tf.Operation) -> bool:
    return _strides(op) != [1, 1]


def _strides(op: tf.Operation) -> list[int]:
    return op.get_attr("strides")[1:3]


def _image(op: tf.Operation) -> list[int]:
    """Height and width of the output."""
    return op.outputs[0].shape[1:3].as_list()


def _largest_side(op: tf.Operation) -> int:
    return max(_image(op))


def _filter_products(op: tf.Operation, dy: tf.Tensor) -> tf.Tensor:
    """The gradient of the filters: a product for each position in the filter.

    Parts of the input are copied for the products.  So parts of the batch come one
    after another and are added, and the first waits for the backward pass: else the
    forward pass would copy them, and all layers' copies would be in memory.
    """
    total: tf.Tensor | None = None
    count = _parts_of_batch(op)
    for x, dy_part in zip(tf.split(op.inputs[0], count), tf.split(dy, count)):
        with tf.control_dependencies([dy if total is None else total]):
            x = tf.identity(x)
        by_filters = _products_of_part(op, x, dy_part)
        total = by_filters if total is None else total + by_filters
    return total


def _parts_of_batch(op: tf.Operation) -> int:
    """How many equal parts of a batch have `_PART_BYTES` each or less, or the most."""
    x, filters = op.inputs
    if filters.shape[:2] == [1, 1] or not x.shape.is_fully_defined():
        return 1
    batch, size = x.shape[0], x.shape.num_elements() * x.dtype.size
    divisors = [n for n in range(1, _MOST_PARTS + 1) if batch % n == 0]
    return next((n for n in divisors if size <= n * _PART_BYTES), divisors[-1])


def _products_of_part(op: tf.Operation, x: tf.Tensor, dy: tf.Tensor) -> tf.Tensor:
    """The gradient of the filters by some images of the batch.

    Args:
      op: the convolution.
      x: the images.
      dy: the gradient of their outputs.
    """
    *_, channels, filters = size = op.inputs[1].shape
    dy_rows = tf.reshape(dy, [-1, filters])
    products: list[tf.Tensor] = []
    for x_met in _met(op, x, products):
        x_rows = tf.reshape(x_met, [-1, channels])
        products.append(tf.matmul(x_rows, dy_rows, transpose_a=True))
    whole = tf.stack(products) if len(products) > 1 else products[0]
    return tf.reshape(whole, size)


def _met(
    op: tf.Operation, x: tf.Tensor, products: list[tf.Tensor]
) -> Iterator[tf.Tensor]:
    """What is under each filter position, row by row.

    Args:
      op: the convolution.
      x: the images.
      products: those of the positions before.  The next is cut out only after the
        product of the last but one, so that no more than two are in memory.
    """
    filters = op.inputs[1]
    height, width = _image(op)
    window, channels = filters.shape[:2], filters.shape[2]
    if window == [1, 1]:
        if _is_strided(op):  # copies of whole rows; TensorFlow's strides are slow
            down, right = _strides(op)
            x = tf.reshape(x, [-1, height, down, width, right * channels])
            x = x[:, :, 0, :, :channels]
        yield x
        return
    if op.get_attr("padding") == b"SAME":
        sides = [[(length - 1) // 2, length // 2] for length in window]
        x = tf.pad(x, [[0, 0], *sides, [0, 0]])
    for i, j in itertools.product(*map(range, window)):
        with tf.control_dependencies(products[-2:-1]):
            part = x[:, i : i + height, j : j + width]
        yield part


def _input_product(op: tf.Operation, dy: tf.Tensor) -> tf.Tensor:
    """The gradient of a pointwise convolution's input, with zeros between strides."""
    x, filters = op.inputs
    channels = filters.shape[2]
    (height, width), (down, right) = _image(op), _strides(op)
    rows = tf.reshape(dy, [-1, filters.shape[3]])
    matrix = tf.reshape(filters, filters.shape[2:])
    dx = tf.matmul(rows, matrix, transpose_b=True)
    if _is_strided(op):
        dx = tf.reshape(dx, [-1, height, 1, width, channels])
        between = [[0, 0], [0, 0], [0, down - 1], [0, 0], [0, (right - 1) * channels]]
        dx = tf.pad(dx, between)
    return tf.reshape(dx, [-1, *x.shape[1:]])
