"""NASNet-A: cells that a search has found, for CIFAR-10 and in two sizes for ImageNet.

Zoph, Vasudevan, Shlens, Le: Learning Transferable Architectures for Scalable Image
Recognition, CVPR 2018, arXiv:1707.07012.  What the paper does not say is TF-slim's,
whose nets tf_cnn_benchmarks has, without a loss of the auxiliary head and without label
smoothing.

Between cells, x is (activation, activation of the cell before); from the block
`auxiliary` on, the auxiliary logits are its third part.  The outputs are (logits,
auxiliary logits).
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from models.image_networks import CIFAR10
from models.layers import Initializer, Layers
from models.model import (
    Images,
    Model,
    Recipe,
    Schedule,
    softmax_cross_entropy,
    top_k_accuracy,
)

v1 = tf.compat.v1

# (activation, that of the cell before), and later the auxiliary logits
State = tuple[tf.Tensor, ...]

_AUXILIARY_WEIGHT = 0.4


class Cell(NamedTuple):
    """A cell that was found.

    Its states are first the activation and that of the cell before, each with as many
    channels as the cell has, and then its sums.

    Attributes:
      sums: of two operations, each on the state of a number.
      outputs: numbers of the states that are joined.
      strides: of the operations on the first two states.
      skips: whether the next cell reads what this one read as its cell before; if not,
        it reads this one's activation.
    """

    sums: tuple[tuple[tuple[str, int], tuple[str, int]], ...]
    outputs: tuple[int, ...]
    strides: int = 1
    skips: bool = False


# Figure 4 of the paper.
_NORMAL = Cell(
    (
        (("separable5", 0), ("separable3", 1)),
        (("separable5", 1), ("separable3", 1)),
        (("average", 0), ("identity", 1)),
        (("average", 1), ("average", 1)),
        (("separable3", 0), ("identity", 0)),
    ),
    (1, 2, 3, 4, 5, 6),
)
_REDUCTION = Cell(
    (
        (("separable5", 0), ("separable7", 1)),
        (("maximum", 0), ("separable7", 1)),
        (("average", 0), ("separable5", 1)),
        (("identity", 3), ("average", 2)),
        (("separable3", 2), ("maximum", 0)),
    ),
    (3, 4, 5, 6),
    strides=2,
)


class NasnetSize(NamedTuple):
    """A network of the paper.

    Attributes:
      num_cells: normal cells; a third of them comes before each reduction.
      channels: of a state in the first cells; a reduction doubles them.
      stem: channels of the first convolution.
      skips: whether the two reductions do, as `Cell` has it.
      dropout: rate, before the classifier.
      drop_path: rate of the last cell at the end of the training.
      momentum, epsilon: of batch norm.
    """

    num_cells: int
    channels: int
    stem: int
    skips: bool
    dropout: float
    drop_path: float
    momentum: float
    epsilon: float


CIFAR = NasnetSize(18, 32, 96, False, 0.0, 0.4, 0.9, 1e-5)
MOBILE = NasnetSize(12, 44, 32, False, 0.5, 0.0, 0.9997, 0.001)
LARGE = NasnetSize(18, 168, 96, True, 0.5, 0.3, 0.9997, 0.001)


def _initializer() -> Initializer:
    return v1.variance_scaling_initializer(2.0, mode="fan_out")


def _conv(
    x: tf.Tensor, nn: Layers, size: NasnetSize, filters: int, **options: Any
) -> tf.Tensor:
    """A convolution with batch norm, 1 x 1 by default."""
    kernel = options.pop("kernel", 1)
    x = nn.conv(
        *(x, filters, kernel), use_bias=False, initializer=_initializer(), **options
    )
    return _norm(x, nn, size)


def _norm(x: tf.Tensor, nn: Layers, size: NasnetSize) -> tf.Tensor:
    return nn.batch_norm(x, momentum=size.momentum, epsilon=size.epsilon)


class _Operations(NamedTuple):
    """The operations of a cell.

    Attributes:
      nn: layers.
      size: of the network.
      channels: of a state.
      rate: of drop path, at the end of the training.
    """

    nn: Layers
    size: NasnetSize
    channels: int
    rate: float

    def __call__(self, name: str, x: tf.Tensor, strides: int) -> tf.Tensor:
        """An operation of a table on a state."""
        if name == "identity":
            return self.widened(x, tf.nn.relu)
        if name.startswith("separable"):
            y = self.separable(x, int(name[-1]), strides)
        else:
            pool = {"average": self.nn.avg_pool, "maximum": self.nn.max_pool}[name]
            y = self.widened(pool(x, 3, strides))
        return self.drop_path(y)

    def widened(
        self, x: tf.Tensor, activation: Callable[..., tf.Tensor] = tf.identity
    ) -> tf.Tensor:
        """x with the cell's channels, by a convolution if it has others."""
        if self.nn.channels(x) == self.channels:
            return x
        return _conv(activation(x), self.nn, self.size, self.channels)

    def separable(self, x: tf.Tensor, kernel: int, strides: int) -> tf.Tensor:
        """Two separable convolutions."""
        for steps in (strides, 1):
            x = self.nn.depthwise_conv(tf.nn.relu(x), kernel, steps)
            x = _conv(x, self.nn, self.size, self.channels)
        return x

    def halved(self, x: tf.Tensor) -> tf.Tensor:
        """Half the size: every other pixel, beside those one further down and right."""
        nn, last = self.nn, [[0, 0], [0, 1], [0, 1], [0, 0]]
        begin = [0, 1, 1, 0]
        if nn.data_format == "NCHW":
            last, begin = [[0, 0], [0, 0], [0, 1], [0, 1]], [0, 0, 1, 1]
        x = tf.nn.relu(x)
        further = tf.slice(tf.pad(x, last), begin, x.shape)
        settings: dict[str, Any] = {"use_bias": False, "initializer": _initializer()}
        halves = [
            nn.conv(pixels, self.channels // 2, 1, 2, **settings)
            for pixels in (x, further)
        ]
        return _norm(nn.concat(halves), nn, self.size)

    def drop_path(self, x: tf.Tensor) -> tf.Tensor:
        """Zeroes all of x in some examples; in more, the further the training is."""
        if not self.nn.training or not self.rate:
            return x
        keep = 1.0 - self.rate * self.nn.progress
        kept = self.nn.uniform(x[:, :1, :1, :1]) < keep
        return x * tf.cast(tf.cast(kept, tf.float32) / keep, x.dtype)


def stem(x: tf.Tensor, nn: Layers, *, size: NasnetSize) -> tf.Tensor:
    """32 -> 32, or half the size of ImageNet's images."""
    if size is CIFAR:
        return _conv(x, nn, size, size.stem, kernel=3)
    return _conv(x, nn, size, size.stem, kernel=3, strides=2, padding="VALID")


def cell(
    x: tf.Tensor | State,
    nn: Layers,
    *,
    kind: Cell,
    size: NasnetSize,
    channels: int,
    rate: float,
) -> State:
    """A cell; after the stem, x is its output alone.

    Args:
      x: its input.
      nn: layers.
      kind: `_NORMAL` or a reduction.
      size: of the network.
      channels: of a state.
      rate: of drop path, at the end of the training.
    """
    net, before, *head = x if isinstance(x, tuple) else (x, None)
    do = _Operations(nn, size, channels, rate)
    if before is None:
        second = net
    elif before.shape[2] != net.shape[2]:
        second = do.halved(before)
    else:
        second = do.widened(before, tf.nn.relu)
    states = [_conv(tf.nn.relu(net), nn, size, channels), second]
    for number, pair in enumerate(kind.sums, start=1):
        with v1.variable_scope(f"sum{number}"):
            left, right = (
                do(name, states[of], kind.strides if of < 2 else 1) for name, of in pair
            )
            states.append(left + right)
    y = nn.concat([do.widened(states[of]) for of in kind.outputs])
    return y, before if kind.skips else net, *head


def auxiliary(x: State, nn: Layers, *, size: NasnetSize) -> State:
    """A classifier on the activation before the last reduction."""
    net, before = x
    head = nn.avg_pool(tf.nn.relu(net), 5, 3, "VALID")
    head = tf.nn.relu(_conv(head, nn, size, 128))
    head = _conv(head, nn, size, 768, kernel=head.shape[2], padding="VALID")
    head = nn.flatten(tf.nn.relu(head))
    head = nn.dense(head, nn.num_classes, initializer=_initializer())
    return net, before, head


def logits(x: State, nn: Layers, *, size: NasnetSize) -> State:
    """One number per class, and the auxiliary logits."""
    net, _, head = x
    y = nn.dropout(nn.global_avg_pool(tf.nn.relu(net)), size.dropout)
    return nn.dense(y, nn.num_classes, initializer=_initializer()), head


def loss(outputs: State, labels: tf.Tensor, *, smoothing: float) -> tf.Tensor:
    """Cross entropy of both classifiers, the auxiliary one's at 0.4."""
    main, head = (softmax_cross_entropy(y, labels, smoothing) for y in outputs)
    return main + _AUXILIARY_WEIGHT * head


def metrics(outputs: State, labels: tf.Tensor) -> dict[str, tf.Tensor]:
    """Accuracies of the main classifier."""
    return top_k_accuracy(outputs[0], labels)


def _blocks(size: NasnetSize) -> list[tuple[str, Callable]]:
    """The chain, with drop path at rates that grow from cell to cell."""
    cells: list[tuple[str, Cell, int]] = []
    if size is not CIFAR:
        channels = size.channels
        cells = [
            ("stem1", _REDUCTION, channels // 4),
            ("stem2", _REDUCTION, channels // 2),
        ]
    third = size.num_cells // 3
    for number in range(size.num_cells):
        channels = size.channels * 2 ** (number // third)
        if number and number % third == 0:
            cells.append((f"reduction{number // third}", _REDUCTION, channels))
        cells.append((f"cell{number + 1}", _NORMAL, channels))
    blocks: list[tuple[str, Callable]] = [("stem", functools.partial(stem, size=size))]
    for number, (name, kind, channels) in enumerate(cells, start=1):
        if name == "reduction2":
            blocks.append(("auxiliary", functools.partial(auxiliary, size=size)))
        if name.startswith("reduction"):
            kind = kind._replace(skips=size.skips)
        rate = size.drop_path * number / len(cells)
        settings: dict[str, Any] = {
            "kind": kind,
            "size": size,
            "channels": channels,
            "rate": rate,
        }
        block = functools.partial(cell, **settings)
        blocks.append((name, block))
    return [*blocks, ("logits", functools.partial(logits, size=size))]


def nasnet_cifar10() -> Model:
    """NASNet-A (6 @ 768) for CIFAR-10."""
    return Model(
        name="nasnet_cifar10",
        blocks=_blocks(CIFAR),
        inputs=CIFAR10,
        recipe=Recipe(
            batch_size=32,
            schedule=Schedule(name="cosine", rates=(0.025,)),
            num_epochs=600,
            weight_decay=5e-4,
            clip_norm=5.0,
            published="3.41 % error (arXiv:1707.07012)",
        ),
        loss=functools.partial(loss, smoothing=0.0),
        metrics=metrics,
        num_parameters=4_978_036,
    )


def nasnet(size: NasnetSize) -> Model:
    """NASNet-A for ImageNet, mobile (4 @ 1056) or large (6 @ 4032).

    Args:
      size: `MOBILE` or `LARGE`.
    """
    large = size is LARGE
    image = 331 if large else 224
    accuracy = "82.7 % top-1, 96.2 % top-5" if large else "74.0 % top-1, 91.6 % top-5"
    # Keras's, the head, and the 1001st class in both classifiers.
    parameters = 88_753_150 + 4_567_784 + (4032 + 1) + (768 + 1)
    if not large:
        parameters = 5_289_978 + 2_411_240 + (1056 + 1) + (768 + 1)
    return Model(
        name="nasnetlarge" if large else "nasnet",
        blocks=_blocks(size),
        inputs=Images(
            shape=(image, image, 3), num_classes=1001, preprocessing="imagenet"
        ),
        recipe=Recipe(
            batch_size=16 if large else 32,
            # For the 1600 images of TF-slim's steps, of which it takes 250,000.
            schedule=Schedule(
                name="exponential",
                rates=(1.5 if large else 2.0,),
                factor=0.97,
                period=2.4,
                per_examples=1600,
            ),
            num_epochs=312,
            optimizer="rmsprop",
            weight_decay=5e-5 if large else 4e-5,
            clip_norm=10.0,
            ema_decay=0.9999,
            published=f"{accuracy} (TF-slim's table of models)",
        ),
        loss=functools.partial(loss, smoothing=0.1),
        metrics=metrics,
        num_parameters=parameters,
    )
