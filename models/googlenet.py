"""GoogLeNet, or Inception-v1, with the layers of tf_cnn_benchmarks.

Szegedy et al.: Going Deeper with Convolutions, CVPR 2015, arXiv:1409.4842.  Of the
paper's layers, tf_cnn_benchmarks leaves out the two auxiliary classifiers, local
response normalisation and dropout.  The blocks have the paper's names (table 1).
"""

import functools

import tensorflow as tf

from models.image_networks import imagenet, pooled_logits, throughput_recipe
from models.layers import Kernel, Layers
from models.model import Model

# Block -> filters ([paper], table 1): 1 x 1; 3 x 3 reduce, 3 x 3; 5 x 5 reduce, 5 x 5;
# pool proj.
_MODULES = {
    "inception_3a": (64, 96, 128, 16, 32, 32),
    "inception_3b": (128, 128, 192, 32, 96, 64),
    "inception_4a": (192, 96, 208, 16, 48, 64),
    "inception_4b": (160, 112, 224, 24, 64, 64),
    "inception_4c": (128, 128, 256, 24, 64, 64),
    "inception_4d": (112, 144, 288, 32, 64, 64),
    "inception_4e": (256, 160, 320, 32, 128, 128),
    "inception_5a": (256, 160, 320, 32, 128, 128),
    "inception_5b": (384, 192, 384, 48, 128, 128),
}

_HALVED_AFTER = ("inception_3b", "inception_4e")


def _conv(
    x: tf.Tensor, nn: Layers, filters: int, kernel: Kernel, *, strides: int = 1
) -> tf.Tensor:
    return nn.conv(x, filters, kernel, strides, activation=tf.nn.relu)


def conv1(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """224 -> 112 -> 56."""
    return nn.max_pool(_conv(x, nn, 64, 7, strides=2), 3, 2)


def conv2(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """56 -> 28."""
    return nn.max_pool(_conv(_conv(x, nn, 64, 1), nn, 192, 3), 3, 2)


def module(
    x: tf.Tensor, nn: Layers, *, filters: tuple[int, ...], halves: bool
) -> tf.Tensor:
    """1 x 1, 3 x 3 and 5 x 5 convolutions and a pool, side by side.

    Args:
      x: [batch, height, width, channels], or `NCHW`.
      nn: its layers.
      filters: the six numbers of a row of `_MODULES`.
      halves: whether height and width are halved at the end.
    """
    filters_1, reduced_3, filters_3, reduced_5, filters_5, pooled = filters
    x = nn.concat(
        [
            _conv(x, nn, filters_1, 1),
            _conv(_conv(x, nn, reduced_3, 1), nn, filters_3, 3),
            _conv(_conv(x, nn, reduced_5, 1), nn, filters_5, 5),
            _conv(nn.max_pool(x, 3, 1), nn, pooled, 1),
        ]
    )
    return nn.max_pool(x, 3, 2) if halves else x


def googlenet() -> Model:
    """GoogLeNet, with the settings of `throughput_recipe`."""
    modules = [
        (name, functools.partial(module, filters=filters, halves=name in _HALVED_AFTER))
        for name, filters in _MODULES.items()
    ]
    return Model(
        name="googlenet",
        blocks=(
            ("conv1", conv1),
            ("conv2", conv2),
            *modules,
            ("logits", pooled_logits),
        ),
        inputs=imagenet(224),
        recipe=throughput_recipe(
            32,
            published="68.7 % top-1, 88.9 % top-5 (Caffe's bvlc_googlenet, with what "
            "is left out here)",
        ),
        num_parameters=6_999_577,
    )
