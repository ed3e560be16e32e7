"""VGG networks A, D and E, with 11, 16 and 19 layers.

Simonyan, Zisserman: Very Deep Convolutional Networks for Large-Scale Image
Recognition, ICLR 2015, arXiv:1409.1556.
"""

import functools

import tensorflow as tf

from models.image_networks import dense, imagenet, logits, throughput_recipe
from models.layers import Layers
from models.model import Model

_FILTERS = (64, 128, 256, 512, 512)

# Depth -> convolutions per stage (table 1 of the paper).
_CONVOLUTIONS = {
    11: (1, 1, 2, 2, 2),
    16: (2, 2, 3, 3, 3),
    19: (2, 2, 4, 4, 4),
}

# Depth -> trainable parameters with ImageNet's 1000 classes (torchvision's num_params).
_PARAMETERS = {11: 132_863_336, 16: 138_357_544, 19: 143_667_240}

_PUBLISHED = {
    11: "69.0 % top-1, 88.6 % top-5 (torchvision's IMAGENET1K_V1 weights)",
    16: "71.5 % top-1, 89.8 % top-5 (TF-slim's table of models)",
    19: "71.1 % top-1, 89.8 % top-5 (TF-slim's table of models)",
}


def conv(x: tf.Tensor, nn: Layers, *, filters: int, last: bool) -> tf.Tensor:
    """A 3 x 3 convolution; half the size after the last one of a stage."""
    x = nn.conv(x, filters, 3, activation=tf.nn.relu)
    return nn.max_pool(x, 2, 2, "VALID") if last else x


def vgg(depth: int) -> Model:
    """VGG of 11, 16 or 19 layers, with the settings of `throughput_recipe`."""
    convolutions = [
        (
            f"conv{stage}_{index}",
            functools.partial(conv, filters=filters, last=index == count),
        )
        for stage, (filters, count) in enumerate(
            zip(_FILTERS, _CONVOLUTIONS[depth]), start=1
        )
        for index in range(1, count + 1)
    ]
    return Model(
        name=f"vgg{depth}",
        blocks=(
            *convolutions,
            ("dense6", dense),
            ("dense7", dense),
            ("logits", logits),
        ),
        inputs=imagenet(224),
        recipe=throughput_recipe(64, published=_PUBLISHED[depth]),
        num_parameters=_PARAMETERS[depth] + 4096 + 1,  # for the 1001st class
    )
