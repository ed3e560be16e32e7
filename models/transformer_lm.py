"""Decoder-only transformers that predict the next token: GPT-2, and a tiny one.

Radford, Wu, Child, Luan, Amodei, Sutskever: Language Models are Unsupervised Multitask
Learners, OpenAI, 2019; code and parameter counts: github.com/openai/gpt-2.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from models import language
from models.inputs import Tokens
from models.layers import Initializer
from models.model import Model, Recipe, Schedule
from models.sequences import SequenceLayers, gelu

v1 = tf.compat.v1

_TABLE = "embedding/tokens"

# What the paper's four sizes reach without training on the task, as its table 3 says.
_PUBLISHED = (
    "perplexity on WikiText-2 {} and on PTB {}, bits per character of enwik8 {}, all "
    "without training on them (Radford et al. 2019, table 3; trained on WebText)"
)


class TransformerSize(NamedTuple):
    """A size of the architecture."""

    layers: int
    units: int
    heads: int
    length: int  # tokens that a token may see
    dropout: float


class Gpt2Row(NamedTuple):
    """A size of GPT-2.

    Attributes:
      layers, units, heads: of the architecture.
      num_parameters: 124M is what the code has; the paper says 117M.
      rate: learning rate.  That of GPT-2 is not published; these are GPT-3's for models
        of these sizes, for half a million tokens (Brown et al. 2020, table 2.1).
      published: results, see `_PUBLISHED`.
    """

    layers: int
    units: int
    heads: int
    num_parameters: int
    rate: float
    published: tuple[float, float, float]


GPT2: dict[str, Gpt2Row] = {
    "124m": Gpt2Row(12, 768, 12, 124_439_808, 6e-4, (29.41, 65.85, 1.16)),
    "355m": Gpt2Row(24, 1024, 16, 354_823_168, 3e-4, (22.76, 47.33, 1.01)),
    "774m": Gpt2Row(36, 1280, 20, 774_030_080, 2.5e-4, (19.93, 40.31, 0.97)),
    "1.5b": Gpt2Row(48, 1600, 25, 1_557_611_200, 2e-4, (18.34, 35.76, 0.93)),
}


def _normal(deviation: float) -> Initializer:
    return v1.random_normal_initializer(stddev=deviation)


def embedding(x: tf.Tensor, nn: SequenceLayers, *, size: TransformerSize) -> tf.Tensor:
    """Each token's row of a table, and its position's of another."""
    tokens = nn.shared(_TABLE, [nn.num_classes, size.units], _normal(0.02))
    positions = nn.variable("positions", [x.shape[1], size.units], _normal(0.01))
    return nn.dropout(nn.embedding(x, tokens) + positions, size.dropout)


def layer(x: tf.Tensor, nn: SequenceLayers, *, size: TransformerSize) -> tf.Tensor:
    """Attention, then two dense layers, each on what is normalised before it."""
    inner = _normal(0.02)
    # Each of the residual sums' terms is the smaller the more of them there are.
    outer = _normal(0.02 / (2 * size.layers) ** 0.5)
    y = nn.causal_attention(
        nn.layer_norm(x),
        size.heads,
        dropout=size.dropout,
        initializer=inner,
        output_initializer=outer,
    )
    x += nn.dropout(y, size.dropout)
    y = nn.dense(
        nn.layer_norm(x),
        4 * size.units,
        activation=gelu,
        initializer=inner,
    )
    y = nn.dense(y, size.units, initializer=outer)
    return x + nn.dropout(y, size.dropout)


def logits(x: tf.Tensor, nn: SequenceLayers) -> tf.Tensor:
    """One number per token that may follow, by the table of the embedding."""
    table = nn.shared(_TABLE, [nn.num_classes, x.shape[-1]], _normal(0.02))
    return nn.unembed(nn.layer_norm(x), table)


def decayed(name: str) -> bool:
    """Weight decay on matrices: not on biases, nor on normalisation."""
    return name.endswith(("/kernel", "/tokens", "/positions"))


def chain(size: TransformerSize) -> tuple[tuple[str, Callable], ...]:
    """The blocks of a transformer of that size."""
    return (
        ("embedding", functools.partial(embedding, size=size)),
        *(
            (f"layer_{index}", functools.partial(layer, size=size))
            for index in range(size.layers)
        ),
        ("logits", logits),
    )


def transformer_lm() -> Model:
    """A tiny one, on the bytes of the Shakespeare that ships with the project."""
    size = TransformerSize(layers=3, units=96, heads=3, length=64, dropout=0.0)
    return Model(
        name="transformer_lm",
        blocks=chain(size),
        inputs=Tokens(length=size.length, data_name="shakespeare"),
        recipe=Recipe(
            batch_size=32,
            schedule=Schedule((3e-3, 5e-4), (1.8,), warmup_epochs=0.1),
            num_epochs=2.4,
            optimizer="adam",
            published="2.61 bits per character of the tenth that is held out (measured "
            "here)",
        ),
        loss=language.mean_cross_entropy,
        metrics=language.bits_per_character,
        layers=SequenceLayers,
        num_parameters=366_432,
    )


def gpt2(name: str) -> Model:
    """GPT-2 on 1024 tokens of 50257.

    That many are in synthetic data.  A text is read in bytes, of which there are 256:
    the table is the smaller for it, and all else is the same.

    Args:
      name: a row of `GPT2`.
    """
    row = GPT2[name]
    size = TransformerSize(row.layers, row.units, row.heads, length=1024, dropout=0.1)
    return Model(
        name=f"gpt2_{name}",
        blocks=chain(size),
        inputs=Tokens(length=size.length, num_classes=50257),
        recipe=Recipe(
            batch_size=8,
            schedule=Schedule((row.rate,), per_examples=512, warmup_epochs=0.02),
            num_epochs=1,
            optimizer="adamw",
            weight_decay=0.1,
            decayed=decayed,
            published=_PUBLISHED.format(*row.published),
        ),
        loss=language.mean_cross_entropy,
        metrics=language.bits_per_token,
        derived=language.perplexity,
        layers=SequenceLayers,
        num_parameters=row.num_parameters,
    )
