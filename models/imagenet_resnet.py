"""Residual networks for ImageNet: He et al.'s, versions 1, 1.5 and 2.

He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, CVPR 2016,
arXiv:1512.03385, here [1]; Identity Mappings in Deep Residual Networks, ECCV 2016,
arXiv:1603.05027, here [2].  Goyal et al.: Accurate, Large Minibatch SGD,
arXiv:1706.02677, here [3].
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from models.image_networks import imagenet, pooled_logits
from models.layers import Layers
from models.model import Model, Recipe, Schedule
from models.resnet import preactivated_logits

# Depth -> units per stage ([1], table 1).  Below 50 layers a unit has two convolutions
# of 3 x 3, from there on a bottleneck of three.
UNITS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}

# (depth, version 1 or 2) -> trainable parameters with ImageNet's 1000 classes:
# torchvision's num_params, and for version 2 those of PreResNet in the table of
# osmr/imgclsmob, whose first unit normalises what the stem has normalised.
_PARAMETERS = {
    (18, 1): 11_689_512,
    (34, 1): 21_797_672,
    (50, 1): 25_557_032,
    (101, 1): 44_549_160,
    (152, 1): 60_192_808,
    (50, 2): 25_549_480 - 128,
    (101, 2): 44_541_608 - 128,
    (152, 2): 60_185_256 - 128,
}

_PUBLISHED = {
    (18, 1): "30.43 % top-1, 10.76 % top-5 error (fb.resnet.torch's table)",
    (34, 1): "26.73 % top-1, 8.74 % top-5 error (fb.resnet.torch's table)",
    (50, 1): "75.2 % top-1, 92.2 % top-5 (TF-slim's table of models)",
    (101, 1): "76.4 % top-1, 92.9 % top-5 (TF-slim's table of models)",
    (152, 1): "76.8 % top-1, 93.2 % top-5 (TF-slim's table of models)",
    (50, 1.5): "23.60 +- 0.12 % top-1 error with 256 images a step, 23.74 +- 0.09 % "
    "with 8192 (arXiv:1706.02677)",
    # Its images have 299 x 299 pixels.
    (50, 2): "75.6 % top-1, 92.8 % top-5 (TF-slim's table of models)",
    (101, 2): "77.0 % top-1, 93.7 % top-5 (TF-slim's table of models)",
    (152, 2): "77.8 % top-1, 94.1 % top-5 (TF-slim's table of models)",
}

# The convolutions of a unit, each (filters, size of the kernel, strides).
Convolutions = tuple[tuple[int, int, int], ...]


def _conv(
    x: tf.Tensor, nn: Layers, filters: int, kernel: int, *, strides: int
) -> tf.Tensor:
    """Equal padding on all sides for any stride."""
    return nn.conv(x, filters, kernel, strides, padding="FIXED", use_bias=False)


def stem(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """224 -> 112 -> 56."""
    x = nn.batch_norm(_conv(x, nn, 64, 7, strides=2), activation=tf.nn.relu)
    return nn.max_pool(x, 3, 2)


def basic(filters: int, strides: int) -> Convolutions:
    """Two 3 x 3 convolutions [1]."""
    return ((filters, 3, strides), (filters, 3, 1))


def bottleneck(filters: int, strides: int, *, strided: int = 1) -> Convolutions:
    """1 x 1, 3 x 3 and 1 x 1 convolutions [1].

    Args:
      filters: of the first two; the last one has four times as many.
      strides: of one of them.
      strided: the size of that one: 1, or 3 as in version 1.5 [3].
    """
    strides_1, strides_3 = (strides, 1) if strided == 1 else (1, strides)
    return ((filters, 1, strides_1), (filters, 3, strides_3), (4 * filters, 1, 1))


def residual_unit(
    x: tf.Tensor,
    nn: Layers,
    *,
    convolutions: Convolutions,
    projects: bool,
    starts_as_identity: bool = False,
) -> tf.Tensor:
    """Convolutions beside an identity or a projection [1].

    Args:
      x: [batch, height, width, channels], or `NCHW`.
      nn: its layers.
      convolutions: a normalisation follows each of them.
      projects: whether the short cut is a 1 x 1 convolution (option B).
      starts_as_identity: whether the last normalisation is at first scaled by 0 [3],
        unless `zero_gamma` of the initial values says it.
    """
    y = x
    for filters, kernel, strides in convolutions[:-1]:
        y = _conv(y, nn, filters, kernel, strides=strides)
        y = nn.batch_norm(y, activation=tf.nn.relu)
    filters, kernel, strides = convolutions[-1]
    zero = nn.initial_values.zero_gamma
    zero = starts_as_identity if zero is None else zero
    gamma = tf.compat.v1.zeros_initializer() if zero else None
    y = _conv(y, nn, filters, kernel, strides=strides)
    y = nn.batch_norm(y, gamma_initializer=gamma)
    if projects:
        x = nn.batch_norm(_projection(x, nn, convolutions))
    return tf.nn.relu(x + y)


def preactivated_unit(
    x: tf.Tensor,
    nn: Layers,
    *,
    convolutions: Convolutions,
    projects: bool,
    first: bool = False,
    **norm: Any,
) -> tf.Tensor:
    """`residual_unit` with each normalisation and rectifier before its convolution [2].

    A projection reads what the first of these return.

    Args:
      x, nn, convolutions, projects: as of `residual_unit`.
      first: whether x is normalised and rectified already, as it is in the network's
        first unit.
      **norm: of the normalisation of x, as `nn.batch_norm` has it.
    """
    y = x if first else nn.batch_norm(x, activation=tf.nn.relu, **norm)
    if projects:
        x = _projection(y, nn, convolutions)
    for index, (filters, kernel, strides) in enumerate(convolutions):
        y = nn.batch_norm(y, activation=tf.nn.relu) if index else y
        y = _conv(y, nn, filters, kernel, strides=strides)
    return x + y


def _projection(x: tf.Tensor, nn: Layers, convolutions: Convolutions) -> tf.Tensor:
    """A 1 x 1 convolution to the shape that the convolutions return."""
    strides = max(strides for _, _, strides in convolutions)
    return _conv(x, nn, convolutions[-1][0], 1, strides=strides)


def stages(
    unit: Callable[..., tf.Tensor],
    form: Callable[[int, int], Convolutions],
    counts: Sequence[int],
    *,
    always_projects: bool = False,
) -> list[tuple[str, Callable]]:
    """Named units of four stages; every stage but the first halves the size.

    Args:
      unit: `residual_unit` or `preactivated_unit`.
      form: filters and strides -> the convolutions of a unit.
      counts: units per stage.
      always_projects: whether each stage's first unit projects, even where its input
        has the shape of its output.
    """
    units: list[tuple[str, Callable]] = []
    channels = 64  # of the stem
    for stage, count in enumerate(counts, start=1):
        for index in range(1, count + 1):
            strides = 2 if stage > 1 and index == 1 else 1
            convolutions = form(32 * 2**stage, strides)
            changes = strides > 1 or channels != convolutions[-1][0]
            block = functools.partial(
                unit,
                convolutions=convolutions,
                projects=changes or (always_projects and index == 1),
            )
            units.append((f"stage{stage}_unit{index}", block))
            channels = convolutions[-1][0]
    return units


def imagenet_resnet(depth: int, *, version: float = 1) -> Model:
    """ResNet for ImageNet, of 18, 34, 50, 101 or 152 layers.

    From 50 layers on, version 1 is that of tf_cnn_benchmarks.

    Args:
      depth: 18, 34, 50, 101 or 152.
      version: 1, 2 with pre-activated units, or 1.5 with the strides in the 3 x 3
        convolutions.
    """
    strided = 3 if version == 1.5 else 1
    form = basic if depth < 50 else functools.partial(bottleneck, strided=strided)
    kinds: dict[float, Callable[..., tf.Tensor]] = {
        1: residual_unit,
        1.5: functools.partial(residual_unit, starts_as_identity=True),
        2: preactivated_unit,
    }
    units = stages(kinds[version], form, UNITS[depth])
    if version == 2:
        name, block = units[0]
        units[0] = name, functools.partial(block, first=True)
    last = preactivated_logits if version == 2 else pooled_logits
    parameters = _PARAMETERS[depth, 2 if version == 2 else 1]
    return Model(
        name=f"resnet{depth}" + {1: "", 1.5: "_v1.5", 2: "_v2"}[version],
        blocks=(("stem", stem), *units, ("logits", last)),
        inputs=imagenet(224),
        recipe=recipe(
            64 if depth == 50 else 32,
            published=_PUBLISHED.get((depth, version), ""),
        ),
        num_parameters=parameters + (512 if depth < 50 else 2048) + 1,  # 1001st class
    )


def recipe(batch_size: int, published: str) -> Recipe:
    """The settings of all ResNets for ImageNet.

    Args:
      batch_size: examples per tower.
      published: as in `Recipe`.
    """
    return Recipe(
        batch_size=batch_size,
        schedule=Schedule(
            rates=(0.128, 0.0128, 0.00128, 0.000128, 0.0000128),
            epochs=(30, 60, 80, 90),
            per_examples=256,
            warmup_epochs=5,
        ),
        num_epochs=90,
        weight_decay=1e-4,
        published=published,
    )
