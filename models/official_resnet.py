"""Residual networks of tensorflow/models' official/r1/resnet, for ImageNet.

They differ from those in `models/imagenet_resnet.py`: version 1 has its strides in the
3 x 3 convolutions, the first unit of every stage projects, version 2 has no
normalisation in its stem.  Initial values, moving averages, preprocessing differ, too.

He, Zhang, Ren, Sun: arXiv:1512.03385 for version 1, arXiv:1603.05027 for version 2.
"""

import functools
from typing import Any

import tensorflow as tf

from models import imagenet_resnet
from models.image_networks import pooled_logits
from models.imagenet_resnet import basic, bottleneck, preactivated_unit, residual_unit
from models.layers import Layers
from models.model import Images, Model
from models.resnet import preactivated_logits

v1 = tf.compat.v1

# Depth -> units per stage.
_UNITS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    200: (3, 24, 36, 3),
}

# (depth, version) -> trainable parameters with ImageNet's 1000 classes: those of the
# same network in torchvision or, of version 2 and 200 layers, in osmr/imgclsmob; more
# for the projection of the first stage, fewer for the stem's normalisation.
_PARAMETERS = {
    (18, 1): 11_689_512 + 4096 + 128,
    (34, 1): 21_797_672 + 4096 + 128,
    (50, 1): 25_557_032,
    (101, 1): 44_549_160,
    (152, 1): 60_192_808,
    (200, 1): 64_673_832,
    (18, 2): 11_687_848 + 4096 - 128,
    (34, 2): 21_796_008 + 4096 - 128,
    (50, 2): 25_549_480 - 128,
    (101, 2): 44_541_608 - 128,
    (152, 2): 60_185_256 - 128,
    (200, 2): 64_666_280 - 128,
}

_PUBLISHED = {
    (50, 1): "76.53 % top-1 (README of official/r1/resnet)",
    (50, 2): "76.47 % top-1 (README of official/r1/resnet)",
    (200, 2): "79.9 % top-1, 95.2 % top-5 (arXiv:1603.05027)",
}


class OfficialLayers(Layers):
    """`Layers` with the initial values and moving averages of official/r1/resnet."""

    def conv(self, x: tf.Tensor, *args: Any, **options: Any) -> tf.Tensor:
        """As in `Layers`; the kernel starts with variance 1 / fan-in."""
        initializer = v1.variance_scaling_initializer()
        return super().conv(x, *args, initializer=initializer, **options)

    def dense(self, x: tf.Tensor, units: int, **options: Any) -> tf.Tensor:
        """As in `Layers`; the kernel starts as Glorot and Bengio's, uniform."""
        initializer = v1.glorot_uniform_initializer()
        return super().dense(x, units, initializer=initializer, **options)

    def batch_norm(self, x: tf.Tensor, **options: Any) -> tf.Tensor:
        """As in `Layers`, with slower moving averages."""
        return super().batch_norm(x, momentum=0.997, **options)


def stem(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """224 -> 112 -> 56, without the normalisation that the first unit begins with."""
    x = nn.conv(x, 64, 7, 2, padding="FIXED", use_bias=False)
    return nn.max_pool(x, 3, 2)


def official_resnet(depth: int, *, version: int = 1) -> Model:
    """ResNet of tensorflow/models, of 18, 34, 50, 101, 152 or 200 layers.

    Args:
      depth: 18, 34, 50, 101, 152 or 200.
      version: 1, which others call 1.5, or 2 with pre-activated units.
    """
    assert version in (1, 2), version
    units = imagenet_resnet.stages(
        residual_unit if version == 1 else preactivated_unit,
        basic if depth < 50 else functools.partial(bottleneck, strided=3),
        _UNITS[depth],
        always_projects=True,
    )
    first = imagenet_resnet.stem if version == 1 else stem
    last = pooled_logits if version == 1 else preactivated_logits
    features = 512 if depth < 50 else 2048
    return Model(
        name=f"official_resnet{depth}" + ("_v2" if version == 2 else ""),
        blocks=(("stem", first), *units, ("logits", last)),
        inputs=Images(
            shape=(224, 224, 3),
            num_classes=1001,
            preprocessing="official_models_imagenet",
        ),
        recipe=imagenet_resnet.recipe(
            128 if depth == 50 else 32, published=_PUBLISHED.get((depth, version), "")
        ),
        layers=OfficialLayers,
        num_parameters=_PARAMETERS[depth, version] + features + 1,  # the 1001st class
    )
