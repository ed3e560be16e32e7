"""Residual networks: He et al.'s for CIFAR-10, versions 1 and 2, and for ImageNet.

He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, CVPR 2016,
arXiv:1512.03385, here [1]; Identity Mappings in Deep Residual Networks, ECCV 2016,
arXiv:1603.05027, here [2].  Goyal et al.: Accurate, Large Minibatch SGD,
arXiv:1706.02677, here [3].
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from models.layers import Kernel, Layers
from models.model import Images, Model, Recipe, Schedule

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

# Depth -> bottleneck units per stage ([1], table 1).
_IMAGENET_UNITS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}

# Depth -> trainable parameters with ImageNet's 1000 classes (torchvision's num_params).
_IMAGENET_PARAMETERS = {50: 25_557_032, 101: 44_549_160, 152: 60_192_808}

_IMAGENET_PUBLISHED = {
    (50, 1): "75.2 % top-1, 92.2 % top-5 (TF-slim's table of models)",
    (101, 1): "76.4 % top-1, 92.9 % top-5 (TF-slim's table of models)",
    (152, 1): "76.8 % top-1, 93.2 % top-5 (TF-slim's table of models)",
    (50, 1.5): "23.60 +- 0.12 % top-1 error with 256 images a step, 23.74 +- 0.09 % "
    "with 8192 (arXiv:1706.02677)",
}


def _conv(
    x: tf.Tensor, nn: Layers, filters: int, kernel: Kernel, **options: Any
) -> tf.Tensor:
    return nn.conv(x, filters, kernel, use_bias=False, **options)


def _fixed_conv(
    x: tf.Tensor, nn: Layers, filters: int, kernel: Kernel, **options: Any
) -> tf.Tensor:
    """Equal padding on all sides for any stride, as in the ImageNet networks."""
    return _conv(x, nn, filters, kernel, padding="FIXED", **options)


def cifar_stem(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """32 x 32 -> 32 x 32."""
    return nn.batch_norm(_conv(x, nn, 16, 3), activation=tf.nn.relu)


def imagenet_stem(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """224 -> 112 -> 56."""
    x = nn.batch_norm(_fixed_conv(x, nn, 64, 7, strides=2), activation=tf.nn.relu)
    return nn.max_pool(x, 3, 2)


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


def bottleneck_unit(
    x: tf.Tensor, nn: Layers, *, filters: int, strides: int, version: float
) -> tf.Tensor:
    """1 x 1, 3 x 3 and 1 x 1 convolutions beside an identity or a projection [1].

    Version 1.5 has the stride in the 3 x 3 convolution, and starts as the identity,
    its last normalisation scaled by 0 [3], unless `zero_gamma` is set otherwise.
    """
    strides_1, strides_3 = (strides, 1) if version == 1 else (1, strides)
    zero = nn.initial_values.zero_gamma
    zero = version == 1.5 if zero is None else zero
    gamma = tf.compat.v1.zeros_initializer() if zero else None
    y = _conv(x, nn, filters, 1, strides=strides_1)
    y = nn.batch_norm(y, activation=tf.nn.relu)
    y = _fixed_conv(y, nn, filters, 3, strides=strides_3)
    y = nn.batch_norm(y, activation=tf.nn.relu)
    y = nn.batch_norm(_conv(y, nn, 4 * filters, 1), gamma_initializer=gamma)
    if nn.channels(x) != 4 * filters:
        x = nn.batch_norm(_conv(x, nn, 4 * filters, 1, strides=strides))
    return tf.nn.relu(x + y)


def logits(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """One number per class."""
    return nn.dense(nn.global_avg_pool(x), nn.num_classes)


def preactivated_logits(x: tf.Tensor, nn: Layers, **norm: Any) -> tf.Tensor:
    """`logits` after the rectifier that version 2's last unit lacks.

    `norm` is of the normalisation before it, as `nn.batch_norm` has it.
    """
    return logits(nn.batch_norm(x, activation=tf.nn.relu, **norm), nn)


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
    last = logits
    if version == 2:
        name, unit = units[0]
        units[0] = name, functools.partial(unit, first=True)
        last = preactivated_logits
    return Model(
        name=f"resnet{depth}" + ("_v2" if version == 2 else ""),
        blocks=(("stem", cifar_stem), *units, ("logits", last)),
        inputs=Images(
            shape=(32, 32, 3),
            num_classes=10,
            preprocessing="cifar",
            num_examples=50_000,
        ),
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


def imagenet_resnet(depth: int, *, version: float = 1) -> Model:
    """ResNet for ImageNet, of 50, 101 or 152 layers, as in tf_cnn_benchmarks.

    Args:
      depth: 50, 101 or 152.
      version: 1, or 1.5 with the strides in the 3 x 3 convolutions.
    """
    assert version in (1, 1.5), version
    unit = functools.partial(bottleneck_unit, version=version)
    units = _units(unit, filters=(64, 128, 256, 512), counts=_IMAGENET_UNITS[depth])
    return Model(
        name=f"resnet{depth}" + ("_v1.5" if version == 1.5 else ""),
        blocks=(("stem", imagenet_stem), *units, ("logits", logits)),
        inputs=Images(shape=(224, 224, 3), num_classes=1001, preprocessing="imagenet"),
        recipe=Recipe(
            batch_size=64 if depth == 50 else 32,
            schedule=Schedule(
                rates=(0.128, 0.0128, 0.00128, 0.000128, 0.0000128),
                epochs=(30, 60, 80, 90),
                per_examples=256,
                warmup_epochs=5,
            ),
            num_epochs=90,
            weight_decay=1e-4,
            published=_IMAGENET_PUBLISHED.get((depth, version), ""),
        ),
        num_parameters=_IMAGENET_PARAMETERS[depth] + 2048 + 1,  # for the 1001st class
    )
