"""A model with almost no computation, to measure everything else.

The layers are those of tf_cnn_benchmarks' `trivial`, so that speeds can be compared.
"""

import tensorflow as tf

from models.image_networks import CIFAR10, imagenet, logits, throughput_recipe
from models.layers import Layers
from models.model import Model


def narrow(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """The whole image into one number."""
    return nn.dense(nn.flatten(x), 1, activation=tf.nn.relu)


def wide(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """The number into 4096."""
    return nn.dense(x, 4096, activation=tf.nn.relu)


_BLOCKS = (("narrow", narrow), ("wide", wide), ("logits", logits))

_RECIPE = throughput_recipe(32)


def trivial() -> Model:
    """Three dense layers on an image of ImageNet's size."""
    return Model(
        name="trivial",
        blocks=_BLOCKS,
        inputs=imagenet(227),
        recipe=_RECIPE,
        num_parameters=4_263_877,
    )


def trivial_cifar10() -> Model:
    """Three dense layers on an image of CIFAR-10's size."""
    return Model(
        name="trivial_cifar10",
        blocks=_BLOCKS,
        inputs=CIFAR10,
        recipe=_RECIPE,
        num_parameters=52_235,
    )
