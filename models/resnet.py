"""Residual networks: He et al.'s for CIFAR-10, versions 1 and 2.

He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, CVPR 2016,
arXiv:1512.03385, here [1]; Identity Mappings in Deep Residual Networks, ECCV 2016,
arXiv:1603.05027, here [2].
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from models.image_networks import CIFAR10, pooled_logits
from models.layers import Kernel, Layers
from models.model import Model, Recipe, Schedule

# Depth -> trainable parameters; [1] rounds them to 0.27, 0.46, 0.66, 0.85, 1.7 million.
# Version 2 moves the normalisations about but has as many.
_CIFAR_PARAMETERS = {
    20: 269_722,
    32: 464_154,
    44: 658_586,
    56: 853_018,
    110: 1_727_962,
}

_CIFAR_PUBLISHED = {
    (20, 1): "8.75 % error (arXiv:1512.03385)",
    (32, 1): "7.51 % error (arXiv:1512.03385)",
    (44, 1): "7.17 % error (arXiv:1512.03385)",
    (56, 1): "6.97 % error (arXiv:1512.03385)",
    (110, 1): "6.43 % error; 6.61 +- 0.16 over five runs (arXiv:1512.03385)",
    (110, 2): "6.37 % error, median of five runs (arXiv:1603.05027)",
}


def _conv(
    x: tf.Tensor, nn: Layers, filters: int, kernel: Kernel, **options: Any
) -> tf.Tensor:
    return nn.conv(x, filters, kernel, use_bias=False, **options)


def cifar_stem(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """32 x 32 -> 32 x 32."""
    return nn.batch_norm(_conv(x, nn, 16, 3), activation=tf.nn.relu)


def _identity(x: tf.Tensor, nn: Layers, filters: int, strides: int) -> tf.Tensor:
    """Option A of [1]: fewer pixels, and zeros in the additional channels."""
    if strides > 1:
        x = nn.avg_pool(x, 1, strides)
    missing = filters - nn.channels(x)
    if not missing:
        return x
    paddings = [[0, 0]] * 4
    paddings[nn.channel_axis] = [missing // 2, missing - missing // 2]
    return tf.pad(x, paddings)


def basic_unit(x: tf.Tensor, nn: Layers, *, filters: int, strides: int) -> tf.Tensor:
    """Two 3 x 3 convolutions beside an identity without parameters [1]."""
    y = _conv(x, nn, filters, 3, strides=strides)
    y = nn.batch_norm(y, activation=tf.nn.relu)
    y = nn.batch_norm(_conv(y, nn, filters, 3))
    return tf.nn.relu(y + _identity(x, nn, filters, strides))


def preactivated_unit(
    x: tf.Tensor,
    nn: Layers,
    *,
    filters: int,
    strides: int,
    first: bool = False,
    **norm: Any,
) -> tf.Tensor:
    """`basic_unit` with each normalisation and rectifier before its convolution [2].

    The network's first unit leaves out its own: they come before the two paths part,
    in the stem.  `norm` is of the normalisation of x, as `nn.batch_norm` has it.
    """
    y = x if first else nn.batch_norm(x, activation=tf.nn.relu, **norm)
    y = _conv(y, nn, filters, 3, strides=strides)
    y = nn.batch_norm(y, activation=tf.nn.relu)
    return _conv(y, nn, filters, 3) + _identity(x, nn, filters, strides)


def preactivated_logits(x: tf.Tensor, nn: Layers, **norm: Any) -> tf.Tensor:
    """`pooled_logits` after the rectifier that version 2's last unit lacks.

    `norm` is of the normalisation before it, as `nn.batch_norm` has it.
    """
    return pooled_logits(nn.batch_norm(x, activation=tf.nn.relu, **norm), nn)


def _units(
    unit: Callable[..., tf.Tensor], filters: Sequence[int], counts: Sequence[int]
) -> list[tuple[str, Callable]]:
    """Named units, stage after stage; every stage but the first halves the size."""
    return [
        (
            f"stage{stage}_unit{index}",
            functools.partial(
                unit, filters=width, strides=2 if stage > 1 and index == 1 else 1
            ),
        )
        for stage, (width, count) in enumerate(zip(filters, counts), start=1)
        for index in range(1, count + 1)
    ]


def cifar_resnet(depth: int, *, version: int = 1) -> Model:
    """ResNet for 32 x 32 images, of 20, 32, 44, 56 or 110 layers.

    Args:
      depth: 6 n + 2 for n units in each of the three stages.
      version: 1, or 2 with pre-activated units.
    """
    assert version in (1, 2), version
    unit: Callable[..., tf.Tensor] = basic_unit if version == 1 else preactivated_unit
    units = _units(unit, filters=(16, 32, 64), counts=[(depth - 2) // 6] * 3)
    last = pooled_logits
    if version == 2:
        name, unit = units[0]
        units[0] = name, functools.partial(unit, first=True)
        last = preactivated_logits
    return Model(
        name=f"resnet{depth}" + ("_v2" if version == 2 else ""),
        blocks=(("stem", cifar_stem), *units, ("logits", last)),
        inputs=CIFAR10,
        recipe=Recipe(
            batch_size=128,
            # 164 epochs are the 64 000 steps of [1]; tf_cnn_benchmarks goes on.
            schedule=Schedule(
                rates=(0.1, 0.01, 0.001, 0.0002),
                epochs=(82, 123, 300),
                # At 110 layers 0.1 is too much at first ([1], section 4.2).
                warmup_epochs=1 if depth == 110 else 0,
            ),
            num_epochs=164,
            weight_decay=1e-4,
            published=_CIFAR_PUBLISHED.get((depth, version), ""),
        ),
        num_parameters=_CIFAR_PARAMETERS[depth],
    )
