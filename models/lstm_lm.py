"""Word-level LSTM language models in the three sizes of Zaremba et al.

Zaremba, Sutskever, Vinyals: Recurrent Neural Network Regularization, 2014,
arXiv:1409.2329.

The paper carries the LSTM's state from one window of the text to the next.  Here the
state is zero at the start of every window, because examples must be independent:
windows are shuffled, and any tower may get any of them.  The first words of a window
have less context, so perplexities are somewhat higher than the published ones; the
longer the window, the smaller the difference.
"""

import functools
from typing import NamedTuple

import tensorflow as tf

from models import language
from models.inputs import Tokens
from models.layers import Initializer
from models.model import Block, Model, Recipe, Schedule
from models.sequences import SequenceLayers

v1 = tf.compat.v1


class LstmSize(NamedTuple):
    """One of the paper's three sizes, with its recipe.

    Attributes:
      units: size of the embedding and of both LSTM layers.
      length: words in a window.
      scale: initial weights are uniform in [-scale, scale].
      dropout: rate, on the non-recurrent connections only.
      constant_epochs: epochs at the initial learning rate of 1.
      decay: factor on the learning rate in each later epoch.
      num_epochs: in total.
      clip_norm: bound on the gradient's global norm; the loss is a sum over a window's
        words.
      num_parameters: with a vocabulary of 10,000 words.
      published: perplexity on Penn Treebank (validation, test).
    """

    units: int
    length: int
    scale: float
    dropout: float
    constant_epochs: int
    decay: float
    num_epochs: int
    clip_norm: float
    num_parameters: int
    published: tuple[float, float]


SIZES: dict[str, LstmSize] = {
    "small": LstmSize(200, 20, 0.1, 0.0, 4, 0.5, 13, 5, 4_651_600, (121.39, 115.91)),
    "medium": LstmSize(650, 35, 0.05, 0.5, 6, 0.8, 39, 5, 19_775_200, (86.16, 82.07)),
    "large": LstmSize(
        1500, 35, 0.04, 0.65, 14, 1 / 1.15, 55, 10, 66_022_000, (82.62, 78.29)
    ),
}


def _uniform(size: LstmSize) -> Initializer:
    return v1.random_uniform_initializer(-size.scale, size.scale)


def embedding(x: tf.Tensor, nn: SequenceLayers, *, size: LstmSize) -> tf.Tensor:
    """Word ids [batch, length] -> embeddings [batch, length, units]."""
    table = nn.variable("words", [nn.num_classes, size.units], _uniform(size))
    return nn.dropout(nn.embedding(x, table), size.dropout)


def lstm(x: tf.Tensor, nn: SequenceLayers, *, size: LstmSize) -> tf.Tensor:
    """An LSTM over the window, [batch, length, units] -> the same shape."""
    y = nn.lstm(x, size.units, initializer=_uniform(size))
    return nn.dropout(y, size.dropout)


def logits(x: tf.Tensor, nn: SequenceLayers, *, size: LstmSize) -> tf.Tensor:
    """Logits of the next word, [batch, length, num_classes]."""
    return nn.dense(x, nn.num_classes, initializer=_uniform(size))


def chain(size: LstmSize) -> tuple[tuple[str, Block], ...]:
    """The (name, block) pairs of a model of a size."""
    return tuple(
        (name, functools.partial(block, size=size))
        for name, block in (
            ("embedding", embedding),
            ("lstm_0", lstm),
            ("lstm_1", lstm),
            ("logits", logits),
        )
    )


def lstm_lm(name: str) -> Model:
    """An embedding, two LSTM layers, and a classifier whose weights are not tied.

    `--data_name` can be a folder with Penn Treebank (a vocabulary of 10,000 words, in
    `ptb.train.txt`, `ptb.valid.txt` and `ptb.test.txt`); the default is the Shakespeare
    that ships with the project, split into words.

    Args:
      name: a row of `SIZES`.
    """
    size = SIZES[name]
    decays = range(1, size.num_epochs - size.constant_epochs + 1)
    validation, test = size.published
    return Model(
        name="lstm_lm" if name == "small" else f"lstm_lm_{name}",
        blocks=chain(size),
        inputs=Tokens(
            length=size.length,
            num_classes=10_000,
            preprocessing="words",
            data_name="shakespeare",
        ),
        recipe=Recipe(
            batch_size=20,
            schedule=Schedule(
                rates=(1.0, *(size.decay**k for k in decays)),
                epochs=tuple(size.constant_epochs - 1 + k for k in decays),
            ),
            num_epochs=size.num_epochs,
            optimizer="sgd",
            clip_norm=size.clip_norm,
            published=f"perplexity of Penn Treebank {validation} (validation), {test} "
            "(test), with the state carried over (TensorFlow's tutorial, ptb_word_lm)",
        ),
        loss=language.summed_cross_entropy,
        metrics=language.bits_per_token,
        derived=language.perplexity,
        layers=SequenceLayers,
        num_parameters=size.num_parameters,
    )
