"""A model and data sets as users write them, for `--model=` and `--data_name=`."""

import numpy as np
import tensorflow as tf

from models import Inputs, Model, Recipe, Schedule
from tests.squares import Squares
from towers.data import from_arrays, from_files, from_source


def net():
    """A model that reads the `i` of a `Squares`, and is to tell its label."""
    return Model(
        name="own",
        blocks=(("value", lambda x, nn: nn.dense(x["i"] / 2500, 1)[:, 0]),),
        inputs=Inputs(
            features={"i": tf.TensorSpec([2]), "n": tf.TensorSpec([], tf.int16)},
            labels=tf.TensorSpec([], tf.int32),
        ),
        loss=lambda outputs, label: tf.square(outputs - tf.cast(label, tf.float32)),
        metrics=lambda outputs, label: {"error": outputs - tf.cast(label, tf.float32)},
        recipe=Recipe(batch_size=8, schedule=Schedule(rates=(0.01,)), num_epochs=2),
    )


def arrays(split):
    """What `source` has, in arrays; an epoch is a whole number of steps."""
    rows = [Squares(50)[i] for i in range({"train": 48, "validation": 21}[split])]
    names = ("i", "n")
    features = {name: np.array([row[0][name] for row in rows]) for name in names}
    return from_arrays(features, np.arange(len(rows), dtype=np.int32))


def source(split):
    """Examples that two processes read."""
    return from_source(Squares({"train": 48, "validation": 21}[split]), workers=2)


def python_in_files(split):
    """A file, whose parsing calls Python."""
    del split

    def parse(path):
        (row,) = tf.numpy_function(lambda _: np.zeros([2], "f4"), [path], [tf.float32])
        return {"i": tf.ensure_shape(row, [2]), "n": tf.constant(0, tf.int16)}, 0

    return from_files([__file__], parse)


def damaged(split):
    """Examples of which one cannot be had."""
    del split
    return from_source(Squares(50, raises=33))


def broken(split):
    """Examples of which one ends the process that reads it."""
    del split
    return from_source(Squares(48, exits=33), workers=2)


def other(split):
    """Examples that the model does not read."""
    return from_arrays({"i": np.zeros([5, 2]), "n": np.zeros([5])}, np.arange(5))
