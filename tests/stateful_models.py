"""Stateful models whose outputs are easy to compute, and their data."""

import numpy as np
import tensorflow as tf

from models.model import Inputs, Model, Recipe, Schedule
from towers.data.arrays import from_arrays
from towers.data.example_source import ExampleSource
from towers.data.source import Request

EXAMPLES, ROWS = 50, 8  # six steps in an epoch, and two examples left out


def summed(x, nn):
    """What its row has had in the epoch so far, added up, times a weight."""
    total = nn.initial_state("total", x.shape) + tf.cast(x, tf.float32)
    nn.final_state("total", total)
    start = tf.compat.v1.zeros_initializer()
    return nn.variable("weight", [], start) * tf.cast(total, nn.dtype)


def model(*blocks, **parts) -> Model:
    """A model of numbers, whose output is its loss."""
    return Model(
        name="summed",
        blocks=blocks,
        inputs=Inputs(features={"x": tf.TensorSpec([1])}),
        recipe=Recipe(ROWS, Schedule((1.0,)), optimizer="sgd"),
        loss=lambda outputs, labels: outputs[:, 0],
        metrics=lambda outputs, labels: {"output": outputs[:, 0]},
        **{"stateful": True, **parts},
    )


def one() -> Model:
    """A single block."""

    def first(x, nn):
        return summed(x["x"], nn)

    return model(("first", first))


def two() -> Model:
    """Two blocks, of which the first lets through what it gets."""

    def first(x, nn):
        return x["x"] + summed(x["x"], nn)

    return model(("first", first), ("second", summed))


def values() -> np.ndarray:
    """The numbers of the examples, float32 [examples, 1], whole."""
    rng = np.random.default_rng(2)
    return rng.integers(1, 9, (EXAMPLES, 1)).astype(np.float32)


def source(*, training: bool = True) -> ExampleSource:
    """The examples."""
    request = Request(shape=(), kind="examples", features=one().inputs.features)
    return ExampleSource(from_arrays({"x": values()}), request, training=training)


def totals(steps: int) -> np.ndarray:
    """The total of each row after each step, [steps, rows]."""
    per_epoch = EXAMPLES // ROWS
    rows = values()[: per_epoch * ROWS].reshape(ROWS, per_epoch).T
    epochs = [np.cumsum(rows, 0)] * (steps // per_epoch + 1)
    return np.concatenate(epochs)[:steps]
