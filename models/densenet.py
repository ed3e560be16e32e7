"""Densely connected networks for CIFAR-10: each layer reads all layers before it.

Huang, Liu, van der Maaten, Weinberger: Densely Connected Convolutional Networks, CVPR
2017, arXiv:1608.06993; without bottlenecks and compression.  tf_cnn_benchmarks adds
biases to the convolutions.  Between the dense blocks it has only 2 x growth channels, a
rectifier after the convolution, and a ninth of the variance.
"""

import functools

import tensorflow as tf

from models.image_networks import CIFAR10
from models.layers import Initializer, Layers
from models.model import Model, Recipe, Schedule

# (depth, growth) -> trainable parameters; the paper's table 2 has 1.0, 7.0 and 27.2
# million.
_PARAMETERS = {(40, 12): 1_019_722, (100, 12): 6_979_642, (100, 24): 27_249_082}

# (depth, growth) -> error in %, with the augmentation of `cifar` (table 2, C10+).
_ERRORS = {(40, 12): 5.24, (100, 12): 4.10, (100, 24): 3.74}


def _initializer() -> Initializer:
    """Variance 2 / fan-out, as the authors' code and tf_cnn_benchmarks have it."""
    return tf.compat.v1.variance_scaling_initializer(2.0, mode="fan_out")


def _conv(x: tf.Tensor, nn: Layers, filters: int, kernel: int) -> tf.Tensor:
    return nn.conv(x, filters, kernel, use_bias=False, initializer=_initializer())


def _rectified(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    return nn.batch_norm(x, activation=tf.nn.relu)


def stem(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """32 x 32, 16 channels."""
    return _conv(x, nn, 16, 3)


def layer(x: tf.Tensor, nn: Layers, *, growth: int) -> tf.Tensor:
    """Adds `growth` channels, computed from all others."""
    return nn.concat([x, _conv(_rectified(x, nn), nn, growth, 3)])


def transition(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """Half the size, as many channels."""
    return nn.avg_pool(_conv(_rectified(x, nn), nn, nn.channels(x), 1), 2, 2)


def logits(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """One number per class."""
    return nn.dense(nn.global_avg_pool(_rectified(x, nn)), nn.num_classes)


def densenet(depth: int, growth: int) -> Model:
    """DenseNet for 32 x 32 images, of 40 or 100 layers.

    Args:
      depth: 3 n + 4 for n layers in each of the three dense blocks.
      growth: channels that each layer adds, 12 or 24.
    """
    add = functools.partial(layer, growth=growth)
    blocks = [("stem", stem)]
    for stage in (1, 2, 3):
        if stage > 1:
            blocks.append((f"transition{stage - 1}", transition))
        numbers = range(1, (depth - 4) // 3 + 1)
        blocks += [(f"stage{stage}_layer{number}", add) for number in numbers]
    return Model(
        name=f"densenet{depth}_k{growth}",
        blocks=(*blocks, ("logits", logits)),
        inputs=CIFAR10,
        recipe=Recipe(
            batch_size=64,
            # The paper trains 300 epochs; tf_cnn_benchmarks goes on.
            schedule=Schedule(rates=(0.1, 0.01, 0.001, 0.0001), epochs=(150, 225, 300)),
            num_epochs=300,
            weight_decay=1e-4,
            published=f"{_ERRORS[depth, growth]:.2f} % error (arXiv:1608.06993)",
        ),
        num_parameters=_PARAMETERS[depth, growth],
    )
