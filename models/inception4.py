"""Inception-v4, with the layers of tf_cnn_benchmarks; the blocks have TF-slim's names.

Szegedy, Ioffe, Vanhoucke, Alemi: Inception-v4, Inception-ResNet and the Impact of
Residual Connections on Learning, AAAI 2017, arXiv:1602.07261.
"""

import string

import tensorflow as tf

from models.image_networks import imagenet, throughput_recipe
from models.inception import conv, convs, halve
from models.layers import Kernel, Layers
from models.model import Model

_ROW: Kernel = (1, 7)
_COLUMN: Kernel = (7, 1)


def _pool(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    return nn.max_pool(x, 3, 2, "VALID")


def stem1(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """299 -> 149."""
    return halve(x, nn, 32)


def stem2(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """149 -> 147."""
    return conv(x, nn, 32, 3, padding="VALID")


def stem3(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """147 -> 147."""
    return conv(x, nn, 64, 3)


def mixed_3a(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """147 -> 73."""
    return nn.concat([_pool(x, nn), halve(x, nn, 96)])


def mixed_4a(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """73 -> 71."""
    narrow = conv(conv(x, nn, 64, 1), nn, 96, 3, padding="VALID")
    wide = convs(x, nn, (64, 1), (64, _COLUMN), (64, _ROW))
    return nn.concat([narrow, conv(wide, nn, 96, 3, padding="VALID")])


def mixed_5a(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """71 -> 35."""
    return nn.concat([halve(x, nn, 192), _pool(x, nn)])


def module_a(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """35 x 35 (figure 4)."""
    return nn.concat(
        [
            conv(nn.avg_pool(x, 3, 1), nn, 96, 1),
            conv(x, nn, 96, 1),
            convs(x, nn, (64, 1), (96, 3)),
            convs(x, nn, (64, 1), (96, 3), (96, 3)),
        ]
    )


def reduction_a(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """35 -> 17 (figure 7)."""
    return nn.concat(
        [
            _pool(x, nn),
            halve(x, nn, 384),
            halve(convs(x, nn, (192, 1), (224, 3)), nn, 256),
        ]
    )


def module_b(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """17 x 17: 7 x 7 filters as 1 x 7 and 7 x 1 (figure 5)."""
    return nn.concat(
        [
            conv(nn.avg_pool(x, 3, 1), nn, 128, 1),
            conv(x, nn, 384, 1),
            convs(x, nn, (192, 1), (224, _ROW), (256, _COLUMN)),
            convs(
                x,
                nn,
                (192, 1),
                (192, _ROW),
                (224, _COLUMN),
                (224, _ROW),
                (256, _COLUMN),
            ),
        ]
    )


def reduction_b(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """17 -> 8 (figure 8)."""
    return nn.concat(
        [
            _pool(x, nn),
            halve(conv(x, nn, 192, 1), nn, 192),
            halve(convs(x, nn, (256, 1), (256, _ROW), (320, _COLUMN)), nn, 320),
        ]
    )


def module_c(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """8 x 8: 3 x 3 filters as 1 x 3 beside 3 x 1 (figure 6)."""
    narrow = conv(x, nn, 384, 1)
    deep = convs(x, nn, (384, 1), (448, (1, 3)), (512, (3, 1)))
    return nn.concat(
        [
            conv(nn.avg_pool(x, 3, 1), nn, 256, 1),
            conv(x, nn, 256, 1),
            conv(narrow, nn, 256, (1, 3)),
            conv(narrow, nn, 256, (3, 1)),
            conv(deep, nn, 256, (3, 1)),
            conv(deep, nn, 256, (1, 3)),
        ]
    )


def logits(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """One number per class; a fifth of the features is dropped in training."""
    return nn.dense(nn.dropout(nn.global_avg_pool(x), 0.2), nn.num_classes)


def inception4() -> Model:
    """Inception-v4, with the settings of `throughput_recipe`."""
    stem = (("stem1", stem1), ("stem2", stem2), ("stem3", stem3))
    mixed = (
        *(mixed_3a, mixed_4a, mixed_5a),
        *(4 * [module_a]),
        *(reduction_a, *(7 * [module_b])),
        *(reduction_b, *(3 * [module_c])),
    )
    counts = {3: 1, 4: 1, 5: 5, 6: 8, 7: 4}
    names = [
        f"mixed_{stage}{letter}"
        for stage, count in counts.items()
        for letter in string.ascii_lowercase[:count]
    ]
    return Model(
        name="inception4",
        blocks=(*stem, *zip(names, mixed, strict=True), ("logits", logits)),
        inputs=imagenet(299),
        recipe=throughput_recipe(
            32, published="80.2 % top-1, 95.2 % top-5 (TF-slim's table of models)"
        ),
        # A published count, 42,679,816 (osmr/imgclsmob), less its scales of batch
        # norm; and the 1001st class.
        num_parameters=42_679_816 - 31_584 + (1536 + 1),
    )
