"""The initial values of the layers' weights, as settings choose them."""

import math
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

v1 = tf.compat.v1

Initializer = Callable[..., tf.Tensor] | None  # of `tf.compat.v1` or Keras

# Name -> variance x fan-in of a convolution's kernel: truncated normal, for rectifiers
# (He et al. 2015) and without them (LeCun et al. 1998).
CONV_INITIALIZERS = {"he_normal": 2.0, "lecun_normal": 1.0}

# Name -> whether the deviation is that of the values after truncation, rather than that
# of the normal distribution, of which truncation leaves a deviation of 0.88.
DENSE_INITIALIZERS = {"variance_scaling": True, "truncated_normal": False}


class InitialValues(NamedTuple):
    """How kernels and scales start where a layer does not say it.

    Attributes:
      conv: of convolutions, a row of `CONV_INITIALIZERS`.
      dense: of dense layers, a row of `DENSE_INITIALIZERS`.
      zero_gamma: whether the last batch norm of each residual unit starts with a scale
        of 0 (Goyal et al. 2017); None if the model decides.
    """

    conv: str = "he_normal"
    dense: str = "variance_scaling"
    zero_gamma: bool | None = None

    def of_conv(self, mode: str = "fan_in") -> Initializer:
        """The initializer of a convolution's kernel; of a depthwise one, by fan-out."""
        gain = CONV_INITIALIZERS[self.conv]
        return v1.variance_scaling_initializer(gain, mode=mode)

    def of_dense(self, features: int, *, activation: bool) -> Initializer:
        """The initializer of a dense layer's kernel [features, units].

        Its variance is 2 / features before an activation (He et al.), else 1 /
        features.
        """
        gain = 2.0 if activation else 1.0
        if DENSE_INITIALIZERS[self.dense]:
            return v1.variance_scaling_initializer(gain, mode="fan_in")
        return v1.truncated_normal_initializer(stddev=math.sqrt(gain / features))
