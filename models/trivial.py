"""A model with almost no computation, to measure everything else.

The layers are those of tf_cnn_benchmarks' `trivial`, so that speeds can be compared.
"""

import tensorflow as tf

from models.layers import Layers
from models.model import Images, Model, Recipe, Schedule


def narrow(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """The whole image into one number."""
    return nn.dense(nn.flatten(x), 1, activation=tf.nn.relu)


def wide(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """The number into 4096."""
    return nn.dense(x, 4096, activation=tf.nn.relu)


def logits(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """One number per class."""
    return nn.dense(x, nn.num_classes)


_BLOCKS = (("narrow", narrow), ("wide", wide), ("logits", logits))

_RECIPE = Recipe(
    batch_size=32,
    schedule=Schedule(rates=(0.005,)),
    optimizer="sgd",
    weight_decay=4e-5,
)


def trivial() -> Model:
    """Three dense layers on an image of ImageNet's size."""
    return Model(
        name="trivial",
        blocks=_BLOCKS,
        inputs=Images(shape=(227, 227, 3), num_classes=1001, preprocessing="imagenet"),
        recipe=_RECIPE,
        num_parameters=4_263_877,
    )


def trivial_cifar10() -> Model:
    """Three dense layers on an image of CIFAR-10's size."""
    return Model(
        name="trivial_cifar10",
        blocks=_BLOCKS,
        inputs=Images(
            shape=(32, 32, 3),
            num_classes=10,
            preprocessing="cifar",
            num_examples=50_000,
        ),
        recipe=_RECIPE,
        num_parameters=52_235,
    )
