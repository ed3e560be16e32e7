"""Models with embedding tables, and sources of ids for them."""

import dataclasses

import tensorflow as tf

from models import language
from models.inputs import Tokens
from models.model import Model, Pairs, Recipe, Schedule
from models.sequences import SequenceLayers
from towers.data.source import Request
from towers.data.synthetic import SyntheticSource

v1 = tf.compat.v1


def model() -> Model:
    """A model whose tables differ in how they are read.

    `rows` is only looked up; `tied` is also read whole; `wide` has more columns than
    rows; `late` is looked up by ids that depend on a variable.
    """

    def product(x, nn):
        start = v1.random_normal_initializer(stddev=0.5)
        rows = nn.variable("rows", [23, 4], start)
        tied = nn.variable("tied", [23, 4], start)
        wide = nn.variable("wide", [2, 30], start)
        late = nn.variable("late", [3, 4], start)
        a = nn.embedding(x[:, 0], rows) * nn.embedding(x[:, 1], tied)
        b = nn.embedding(x[:, 1] % 2, wide)
        largest = tf.argmax(nn.embedding(x[:, 0], rows)[:, :3], 1)
        c = nn.embedding(largest, late) * tf.gather(late, [1], axis=1)[0]
        weights = tf.reduce_sum(a, 1) + tf.reduce_sum(b, 1) + tf.reduce_sum(c, 1)
        return weights + tf.reduce_mean(tied) ** 2

    return Model(
        name="tables",
        blocks=(("product", product),),
        inputs=Pairs(num_classes=(23, 23), num_examples=60),
        recipe=Recipe(batch_size=4, schedule=Schedule((0.1,))),
        loss=lambda outputs, labels: tf.square(outputs - tf.cast(labels, tf.float32)),
        metrics=lambda outputs, labels: {"output": outputs},
    )


def source() -> SyntheticSource:
    """Pairs of ids that `model` has rows for."""
    request = Request(shape=(2,), num_classes=(23, 23), kind="pairs", num_examples=500)
    return SyntheticSource(request)


def tied() -> Model:
    """An embedding whose table is the classifier, too."""

    def embedding(x, nn):
        return nn.embedding(x, nn.shared("embedding/tokens", [11, 6]))

    def hidden(x, nn):
        return nn.dense(x, 6, activation=tf.nn.tanh)

    def logits(x, nn):
        return nn.unembed(x, nn.shared("embedding/tokens", [11, 6]))

    return Model(
        name="tied",
        blocks=(("embedding", embedding), ("hidden", hidden), ("logits", logits)),
        inputs=Tokens(length=5, num_classes=11),
        recipe=Recipe(batch_size=4, schedule=Schedule(rates=(0.1,))),
        loss=language.mean_cross_entropy,
        metrics=language.bits_per_token,
        layers=SequenceLayers,
    )


def untied() -> Model:
    """The same with a classifier of its own."""

    def embedding(x, nn):
        return nn.embedding(x, nn.variable("tokens", [11, 6]))

    def logits(x, nn):
        return nn.dense(x, 11)

    blocks = dict(tied().blocks) | {"embedding": embedding, "logits": logits}
    return dataclasses.replace(tied(), blocks=tuple(blocks.items()))


def tokens() -> SyntheticSource:
    """Windows of the token ids that `tied` and `untied` have rows for."""
    request = Request(shape=(5,), num_classes=11, num_examples=70, kind="tokens")
    return SyntheticSource(request)
