"""The layers of images, in either data format."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from models.initial_values import Initializer, InitialValues

v1 = tf.compat.v1

Activation = Callable[[tf.Tensor], tf.Tensor] | None
Kernel = int | tuple[int, int]  # size of a filter: one number, or (height, width)


def _size(kernel: Kernel) -> tuple[int, int]:
    return (kernel, kernel) if isinstance(kernel, int) else (kernel[0], kernel[1])


class ImageLayers:
    """Convolutions and pools, on `get_variable` and `tf.nn`.

    Attributes:
      dtype: of activations, and of weights in products.
      data_format: `NHWC` or `NCHW`, of four-dimensional activations.
      initial_values: of kernels for which a block has no initializer.
    """

    def __init__(self, *, data_format: str, dtype: tf.DType):
        self.data_format = data_format
        self.dtype = dtype
        self.initial_values = InitialValues()

    @property
    def channel_axis(self) -> int:
        """Axis of the channels in a four-dimensional activation."""
        return 1 if self.data_format == "NCHW" else 3

    @property
    def _spatial_axes(self) -> list[int]:
        """Axes of the height and the width."""
        return [2, 3] if self.data_format == "NCHW" else [1, 2]

    def channels(self, x: tf.Tensor) -> int:
        """Number of channels of x, [batch, height, width, channels] in any format."""
        return x.shape[self.channel_axis]

    def variable(
        self,
        name: str,
        shape: Sequence[int],
        initializer: Initializer = None,
        dtype: tf.DType | None = None,
    ) -> tf.Tensor:
        """A trainable variable of the current scope, read for this tower.

        Variables are stored in float32; `dtype` (the compute dtype when None) is the
        dtype in which they are read.
        """
        return v1.get_variable(name, shape, dtype or self.dtype, initializer)

    def conv(
        self,
        x: tf.Tensor,
        filters: int,
        kernel: Kernel,
        strides: int = 1,
        *,
        padding: str = "SAME",
        initializer: Initializer = None,
        **options: Any,
    ) -> tf.Tensor:
        """2-D convolution.

        Args:
          x: [batch, height, width, channels] (or `NCHW`).
          filters: number of output channels.
          kernel: size of the filter, one number or (height, width).
          strides: the same in both directions.
          padding: `SAME`, `VALID`, or `FIXED`: (kernel - 1) // 2 zeros before and the
            rest after, for any input size, as in He et al.'s ResNets.
          initializer: of the kernel; None for that of `initial_values`: unless set,
            truncated normal of variance 2 / fan-in (He et al.), because a rectifier
            follows most convolutions.
          **options: `use_bias`, `bias_initializer` and `activation`, as of `dense`.
        """
        size = _size(kernel)
        x, padding = self._padded(x, size, strides, padding)
        activation = options.pop("activation", None)
        with v1.variable_scope(None, default_name="conv"):
            y, *_ = self._affine(
                lambda kernel: tf.nn.conv2d(
                    x, kernel, strides, padding, self.data_format
                ),
                [*size, self.channels(x), filters],
                initializer=initializer or self.initial_values.of_conv(),
                **options,
            )
            return activation(y) if activation else y

    def depthwise_conv(
        self,
        x: tf.Tensor,
        kernel: Kernel,
        strides: int = 1,
        *,
        padding: str = "SAME",
        initializer: Initializer = None,
    ) -> tf.Tensor:
        """2-D convolution of each channel with a filter of its own, without bias.

        Args:
          x: [batch, height, width, channels] (or `NCHW`).
          kernel, strides, padding: as of `conv`.
          initializer: of the filters, [height, width, channels, 1]; None for truncated
            normal of variance 2 / (height x width), as `initial_values` says.
        """
        size = _size(kernel)
        x, padding = self._padded(x, size, strides, padding)
        steps = [1, 1, 1, 1]
        for axis in self._spatial_axes:
            steps[axis] = strides
        with v1.variable_scope(None, default_name="depthwise_conv"):
            filters = self.variable(
                "kernel",
                [*size, self.channels(x), 1],
                initializer or self.initial_values.of_conv("fan_out"),
            )
            return tf.nn.depthwise_conv2d(x, filters, steps, padding, self.data_format)

    def max_pool(
        self, x: tf.Tensor, size: int, strides: int, padding: str = "SAME"
    ) -> tf.Tensor:
        """Maximum over windows of size x size."""
        return tf.nn.max_pool2d(x, size, strides, padding, self.data_format)

    def avg_pool(
        self, x: tf.Tensor, size: int, strides: int, padding: str = "SAME"
    ) -> tf.Tensor:
        """Mean over windows of size x size; padding does not count."""
        return tf.nn.avg_pool2d(x, size, strides, padding, self.data_format)

    def global_avg_pool(self, x: tf.Tensor) -> tf.Tensor:
        """[batch, height, width, channels] -> [batch, channels]."""
        return tf.reduce_mean(x, self._spatial_axes)

    def concat(self, xs: Sequence[tf.Tensor]) -> tf.Tensor:
        """Joins activations along the channels."""
        return tf.concat(xs, self.channel_axis)

    def local_response_norm(self, x: tf.Tensor, **options: float) -> tf.Tensor:
        """`tf.nn.local_response_normalization` in any format and dtype.

        TensorFlow has its kernel for NHWC in float32 only.
        """
        y = tf.cast(x, tf.float32)
        if self.data_format == "NCHW":
            y = tf.transpose(y, [0, 2, 3, 1])
        y = tf.nn.local_response_normalization(y, **options)
        if self.data_format == "NCHW":
            y = tf.transpose(y, [0, 3, 1, 2])
        return tf.cast(y, x.dtype)

    def _affine(
        self,
        product: Callable[[tf.Tensor], tf.Tensor],
        shape: list[int],
        *,
        initializer: Initializer,
        use_bias: bool = True,
        bias_initializer: Initializer = None,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]:
        """product(kernel) + bias, and the two: variables in this scope."""
        kernel = self.variable("kernel", shape, initializer)
        x = product(kernel)
        if not use_bias:
            return x, kernel, None
        bias_initializer = bias_initializer or v1.zeros_initializer()
        bias = self.variable("bias", shape[-1:], bias_initializer)
        data_format = self.data_format if len(shape) == 4 else None
        return tf.nn.bias_add(x, bias, data_format), kernel, bias

    def _padded(
        self, x: tf.Tensor, size: tuple[int, int], strides: int, padding: str
    ) -> tuple[tf.Tensor, str]:
        """The input with the zeros of `FIXED`, and the padding that is left to do."""
        if padding != "FIXED":
            return x, padding
        if strides == 1 or size == (1, 1):
            return x, "SAME"  # the same zeros, without a copy of x
        # tf.nn.conv2d also takes a list of paddings, but on CPUs that is ten times
        # slower in bfloat16 (TensorFlow 2.21: no oneDNN kernel).
        paddings = [(0, 0)] * 4
        for axis, k in zip(self._spatial_axes, size):
            paddings[axis] = (k - 1) // 2, k - 1 - (k - 1) // 2
        return tf.pad(x, paddings), "VALID"
