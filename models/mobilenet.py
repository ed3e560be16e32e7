"""MobileNet v2 for ImageNet.

Sandler, Howard, Zhu, Zhmoginov, Chen: MobileNetV2: Inverted Residuals and Linear
Bottlenecks, CVPR 2018, arXiv:1801.04381.  What the paper does not say, the initial
values, the batch norm and the dropout, is TF-slim's, whose net tf_cnn_benchmarks has.
"""

import functools

import tensorflow as tf

from models.image_layers import Activation
from models.image_networks import imagenet
from models.layers import Layers
from models.model import Model, Recipe, Schedule
from models.recipe import decay_all

# (expansion, channels, units, strides of the first), table 2 of the paper.
_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def _initializer() -> tf.compat.v1.truncated_normal_initializer:
    return tf.compat.v1.truncated_normal_initializer(stddev=0.09)


def _norm(x: tf.Tensor, nn: Layers, activation: Activation = None) -> tf.Tensor:
    return nn.batch_norm(x, momentum=0.997, epsilon=0.001, activation=activation)


def conv(
    x: tf.Tensor, nn: Layers, *, filters: int, kernel: int, strides: int = 1
) -> tf.Tensor:
    """A convolution with batch norm and a rectifier that ends at 6."""
    x = nn.conv(x, filters, kernel, strides, use_bias=False, initializer=_initializer())
    return _norm(x, nn, tf.nn.relu6)


def unit(
    x: tf.Tensor, nn: Layers, *, expansion: int, filters: int, strides: int
) -> tf.Tensor:
    """An inverted residual: more channels, a depthwise convolution, few channels."""
    y = x
    if expansion > 1:
        y = conv(y, nn, filters=expansion * nn.channels(x), kernel=1)
    y = nn.depthwise_conv(y, 3, strides, initializer=_initializer())
    y = _norm(y, nn, tf.nn.relu6)
    y = nn.conv(y, filters, 1, use_bias=False, initializer=_initializer())
    y = _norm(y, nn)
    return x + y if strides == 1 and nn.channels(x) == filters else y


def logits(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """One number per class."""
    x = nn.dropout(nn.global_avg_pool(x), 0.2)
    return nn.dense(x, nn.num_classes, initializer=_initializer())


def _units() -> list:
    return [
        (
            f"stage{stage}_unit{index}",
            functools.partial(
                unit,
                expansion=expansion,
                filters=filters,
                strides=strides if index == 1 else 1,
            ),
        )
        for stage, (expansion, filters, count, strides) in enumerate(_STAGES, start=1)
        for index in range(1, count + 1)
    ]


def mobilenet() -> Model:
    """MobileNet v2 of width 1."""
    return Model(
        name="mobilenet",
        blocks=(
            ("stem", functools.partial(conv, filters=32, kernel=3, strides=2)),
            *_units(),
            ("head", functools.partial(conv, filters=1280, kernel=1)),
            ("logits", logits),
        ),
        inputs=imagenet(224),
        recipe=Recipe(
            batch_size=96,
            schedule=Schedule(
                name="exponential",
                rates=(0.045,),
                factor=0.98,
                period=1.0,
                per_examples=96,
            ),
            num_epochs=300,  # the paper does not say; the rate is then 0.0001
            optimizer="rmsprop",
            weight_decay=4e-5,
            # TF-slim leaves depthwise filters alone.
            decayed=lambda name: decay_all(name) and "/depthwise_conv" not in name,
            published="72.0 % top-1 (arXiv:1801.04381)",
        ),
        num_parameters=3_504_872 + 1280 + 1,  # torchvision's, and the 1001st class
    )
