"""Word-level LSTM language models in the three sizes of Zaremba et al.

Zaremba, Sutskever, Vinyals: Recurrent Neural Network Regularization, 2014,
arXiv:1409.2329.

As published, the text is cut into as many contiguous rows as a step has examples.  The
LSTMs begin each window with the state at the end of the row's window before, and each
epoch with zeros.  Gradients do not flow from window to window.  Windows are those of
TensorFlow's tutorial, ptb_word_lm, which evaluates a single row:

    python -m towers.train --model=lstm_lm_medium --data_name=PTB --num_gpus=1 \
      --eval_batch_size=1
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
      published: perplexity of Penn Treebank (validation, test): the paper's table 1.
      tutorial: the same of ptb_word_lm, as its docstring has them.
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
    tutorial: tuple[float, float]


SIZES: dict[str, LstmSize] = {
    "small": LstmSize(
        *(200, 20, 0.1, 0.0, 4, 0.5, 13, 5, 4_651_600),
        published=(120.7, 114.5),
        tutorial=(121.39, 115.91),
    ),
    "medium": LstmSize(
        *(650, 35, 0.05, 0.5, 6, 0.8, 39, 5, 19_775_200),
        published=(86.2, 82.7),
        tutorial=(86.16, 82.07),
    ),
    "large": LstmSize(
        *(1500, 35, 0.04, 0.65, 14, 1 / 1.15, 55, 10, 66_022_000),
        published=(82.2, 78.4),
        tutorial=(82.62, 78.29),
    ),
}


def _uniform(size: LstmSize) -> Initializer:
    return v1.random_uniform_initializer(-size.scale, size.scale)


def embedding(x: tf.Tensor, nn: SequenceLayers, *, size: LstmSize) -> tf.Tensor:
    """Word ids [batch, length] -> embeddings [batch, length, units]."""
    table = nn.variable("words", [nn.num_classes, size.units], _uniform(size))
    return nn.dropout(nn.embedding(x, table), size.dropout)


def lstm(x: tf.Tensor, nn: SequenceLayers, *, size: LstmSize) -> tf.Tensor:
    """An LSTM over the row's windows, [batch, length, units] -> the same shape."""
    y = nn.lstm(x, size.units, initializer=_uniform(size), stateful=True)
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
            published="perplexity of Penn Treebank {} (validation), {} (test); "
            "TensorFlow's tutorial, ptb_word_lm: {}, {}".format(
                *size.published, *size.tutorial
            ),
        ),
        loss=language.summed_cross_entropy,
        metrics=language.bits_per_token,
        derived=language.perplexity,
        layers=SequenceLayers,
        stateful=True,
        num_parameters=size.num_parameters,
    )
