"""What several networks for images share: their data, last blocks and settings."""

import tensorflow as tf

from models.layers import Layers
from models.model import Images, Recipe, Schedule

CIFAR10 = Images(
    shape=(32, 32, 3), num_classes=10, preprocessing="cifar", num_examples=50_000
)


def imagenet(side: int) -> Images:
    """ImageNet's images of this height and width, with tf_cnn_benchmarks' classes."""
    shape = (side, side, 3)
    return Images(shape=shape, num_classes=1001, preprocessing="imagenet")


def dense(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """4096 rectified units, half of them dropped in training."""
    x = nn.dense(nn.flatten(x), 4096, activation=tf.nn.relu)
    return nn.dropout(x, 0.5)


def logits(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """One number per class."""
    return nn.dense(x, nn.num_classes)


def pooled_logits(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """One number per class, of the means over height and width."""
    return nn.dense(nn.global_avg_pool(x), nn.num_classes)


def throughput_recipe(batch_size: int, published: str = "") -> Recipe:
    """tf_cnn_benchmarks' settings where a network has none of its own.

    They are for throughput, plain SGD at a constant rate; they are not how published
    accuracies were reached.

    Args:
      batch_size, published: as in `Recipe`.
    """
    return Recipe(
        batch_size=batch_size,
        schedule=Schedule(rates=(0.005,)),
        optimizer="sgd",
        weight_decay=4e-5,
        published=published,
    )
