"""Inception-v3, with its auxiliary head or without.

Szegedy, Vanhoucke, Ioffe, Shlens, Wojna: Rethinking the Inception Architecture for
Computer Vision, CVPR 2016, arXiv:1512.00567.  The layers are tf_cnn_benchmarks', which
leaves the head off; the blocks have TF-slim's names.

From the block `auxiliary` on, x is the pair (activation, auxiliary logits), and the
loss reads both.
"""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from models.image_networks import imagenet, pooled_logits, throughput_recipe
from models.layers import Kernel, Layers
from models.model import Model, softmax_cross_entropy, top_k_accuracy

Pair = tuple[tf.Tensor, tf.Tensor]  # an activation, or logits; auxiliary logits

_AUXILIARY_WEIGHT = 0.4

# torchvision's num_params for inception_v3 with the head and 1000 classes, less its
# scales of batch norm; and the 1001st class in both classifiers.
_PARAMETERS = 27_161_264 - 18_112 + (2048 + 1) + (768 + 1)

# "Trainable params" of Keras's InceptionV3, which has no head, and the 1001st class.
_PARAMETERS_WITHOUT_HEAD = 23_817_352 + (2048 + 1)


def conv(
    x: tf.Tensor, nn: Layers, filters: int, kernel: Kernel, **options: Any
) -> tf.Tensor:
    """A convolution, batch norm without a scale, and a rectifier."""
    x = nn.conv(x, filters, kernel, use_bias=False, **options)
    return nn.batch_norm(
        x, momentum=0.999, epsilon=0.001, scale=False, activation=tf.nn.relu
    )


def convs(x: tf.Tensor, nn: Layers, *layers: tuple[int, Kernel]) -> tf.Tensor:
    """One convolution after another, each (filters, kernel)."""
    for filters, kernel in layers:
        x = conv(x, nn, filters, kernel)
    return x


def halve(x: tf.Tensor, nn: Layers, filters: int) -> tf.Tensor:
    """A 3 x 3 convolution with strides of 2, without padding."""
    return conv(x, nn, filters, 3, strides=2, padding="VALID")


def stem1(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """299 -> 149."""
    return halve(x, nn, 32)


def stem2(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """149 -> 147."""
    return conv(x, nn, 32, 3, padding="VALID")


def stem3(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """147 -> 73."""
    return nn.max_pool(conv(x, nn, 64, 3), 3, 2, "VALID")


def stem4(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """73 -> 73."""
    return conv(x, nn, 80, 1)


def stem5(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """73 -> 71 -> 35."""
    return nn.max_pool(conv(x, nn, 192, 3, padding="VALID"), 3, 2, "VALID")


def module_a(x: tf.Tensor, nn: Layers, *, pooled: int) -> tf.Tensor:
    """35 x 35: factorised 5 x 5 filters."""
    return nn.concat(
        [
            conv(x, nn, 64, 1),
            convs(x, nn, (48, 1), (64, 5)),
            convs(x, nn, (64, 1), (96, 3), (96, 3)),
            conv(nn.avg_pool(x, 3, 1), nn, pooled, 1),
        ]
    )


def module_b(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """35 -> 17."""
    return nn.concat(
        [
            halve(x, nn, 384),
            halve(convs(x, nn, (64, 1), (96, 3)), nn, 96),
            nn.max_pool(x, 3, 2, "VALID"),
        ]
    )


def module_c(x: tf.Tensor, nn: Layers, *, filters: int) -> tf.Tensor:
    """17 x 17: 7 x 7 filters as 1 x 7 and 7 x 1."""
    row, column = (1, 7), (7, 1)
    return nn.concat(
        [
            conv(x, nn, 192, 1),
            convs(x, nn, (filters, 1), (filters, row), (192, column)),
            convs(
                x,
                nn,
                (filters, 1),
                (filters, column),
                (filters, row),
                (filters, column),
                (192, row),
            ),
            conv(nn.avg_pool(x, 3, 1), nn, 192, 1),
        ]
    )


def auxiliary(x: tf.Tensor, nn: Layers) -> Pair:
    """A classifier on the 17 x 17 activation: x -> (x, auxiliary logits).

    Its 5 x 5 filters are smaller for images so small that they would not fit.
    """
    normal = tf.compat.v1.truncated_normal_initializer
    head = conv(nn.avg_pool(x, 5, 3, "VALID"), nn, 128, 1)
    size = min(5, head.shape[2])
    head = conv(head, nn, 768, size, padding="VALID", initializer=normal(stddev=0.01))
    head = nn.dense(nn.flatten(head), nn.num_classes, initializer=normal(stddev=0.001))
    return x, head


def _beside_auxiliary(block: Callable[..., tf.Tensor]) -> Callable[..., Pair]:
    """Applies the block to x of (x, auxiliary logits); the logits are unchanged."""

    @functools.wraps(block)
    def run(pair: Pair, nn: Layers, **options: Any) -> Pair:
        x, auxiliary_logits = pair
        return block(x, nn, **options), auxiliary_logits

    return run


def module_d(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """17 -> 8."""
    return nn.concat(
        [
            halve(conv(x, nn, 192, 1), nn, 320),
            halve(convs(x, nn, (192, 1), (192, (1, 7)), (192, (7, 1))), nn, 192),
            nn.max_pool(x, 3, 2, "VALID"),
        ]
    )


def module_e(x: tf.Tensor, nn: Layers, *, pool: str) -> tf.Tensor:
    """8 x 8: 3 x 3 filters as 1 x 3 beside 3 x 1; `pool` is `avg` or `max`."""
    pool_of = {"avg": nn.avg_pool, "max": nn.max_pool}[pool]
    narrow = conv(x, nn, 384, 1)
    deep = convs(x, nn, (448, 1), (384, 3))
    return nn.concat(
        [
            conv(x, nn, 320, 1),
            conv(narrow, nn, 384, (1, 3)),
            conv(narrow, nn, 384, (3, 1)),
            conv(deep, nn, 384, (1, 3)),
            conv(deep, nn, 384, (3, 1)),
            conv(pool_of(x, 3, 1), nn, 192, 1),
        ]
    )


def loss(outputs: Pair, labels: tf.Tensor) -> tf.Tensor:
    """Cross entropy of both classifiers, the auxiliary one's at 0.4."""
    main, head = outputs
    return softmax_cross_entropy(main, labels) + (
        _AUXILIARY_WEIGHT * softmax_cross_entropy(head, labels)
    )


def metrics(outputs: Pair, labels: tf.Tensor) -> dict[str, tf.Tensor]:
    """Accuracies of the main classifier."""
    return top_k_accuracy(outputs[0], labels)


_BLOCKS_BEFORE_HEAD = (
    ("stem1", stem1),
    ("stem2", stem2),
    ("stem3", stem3),
    ("stem4", stem4),
    ("stem5", stem5),
    ("mixed_5b", functools.partial(module_a, pooled=32)),
    ("mixed_5c", functools.partial(module_a, pooled=64)),
    ("mixed_5d", functools.partial(module_a, pooled=64)),
    ("mixed_6a", module_b),
    ("mixed_6b", functools.partial(module_c, filters=128)),
    ("mixed_6c", functools.partial(module_c, filters=160)),
    ("mixed_6d", functools.partial(module_c, filters=160)),
    ("mixed_6e", functools.partial(module_c, filters=192)),
)
_BLOCKS_AFTER_HEAD = (
    ("mixed_7a", module_d),
    ("mixed_7b", functools.partial(module_e, pool="avg")),
    ("mixed_7c", functools.partial(module_e, pool="max")),
    ("logits", pooled_logits),
)


def inception3(*, head: bool = True) -> Model:
    """Inception-v3, with the settings of `throughput_recipe`.

    Args:
      head: whether there is the auxiliary classifier.
    """
    blocks: tuple[tuple[str, Callable], ...] = _BLOCKS_BEFORE_HEAD + _BLOCKS_AFTER_HEAD
    if head:
        after = [(name, _beside_auxiliary(block)) for name, block in _BLOCKS_AFTER_HEAD]
        blocks = (*_BLOCKS_BEFORE_HEAD, ("auxiliary", auxiliary), *after)
    return Model(
        name="inception3",
        blocks=blocks,
        inputs=imagenet(299),
        recipe=throughput_recipe(
            32, published="78.0 % top-1, 93.9 % top-5 (TF-slim's table of models)"
        ),
        loss=loss if head else softmax_cross_entropy,
        metrics=metrics if head else top_k_accuracy,
        num_parameters=_PARAMETERS if head else _PARAMETERS_WITHOUT_HEAD,
    )
