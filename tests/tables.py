"""A model of tables that are looked up, and pairs of numbers that it has rows for."""

import tensorflow as tf

from models.model import Model, Pairs, Recipe, Schedule
from towers.data.feed import Request
from towers.data.synthetic import SyntheticSource

v1 = tf.compat.v1


def model() -> Model:
    """Tables that are only looked up, also read as a whole, cut otherwise, or by
    numbers that depend on a variable."""

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
    """Of the numbers that the model has rows for."""
    request = Request(shape=(2,), num_classes=(23, 23), kind="pairs", num_examples=500)
    return SyntheticSource(request)
