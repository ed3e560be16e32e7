"""Trains on numpy arrays of your own, with four towers.

    python examples/own_arrays.py

The arrays stand for whatever you have: uint8 or float images
[examples, height, width, channels], and an integer class for each.
"""

import numpy as np
import tensorflow as tf

import models
from towers import graph
from towers.data import inputs
from towers.layout import placement
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.optimizer import Update
from towers.session import loop

STEPS = 60


def squares(num_examples: int) -> tuple[np.ndarray, np.ndarray]:
    """Noise with a bright square in one of four corners, and which corner it is."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 80, (num_examples, 16, 16, 1), np.uint8)
    corners = rng.integers(0, 4, num_examples)
    for image, corner in zip(images, corners):
        row, column = 8 * (corner // 2), 8 * (corner % 2)
        image[row : row + 8, column : column + 8] += 25
    return images, corners


def main() -> None:
    """Trains LeNet on the arrays, and prints the loss as it falls."""
    images, corners = squares(1024)
    devices = placement.local(4, kind="cpu")
    train = graph.build(
        models.get("lenet"),
        inputs.from_arrays(images, corners, num_classes=4),
        Update("momentum", Piecewise((0.01,))),
        placement=devices,
        options=graph.Options(batch_size=8),
    )
    config = placement.session_config(devices)
    with tf.compat.v1.Session(graph=train.graph, config=config) as session:
        loop.start(train, session, restore=lambda session: None)
        for last_step in range(10, STEPS + 1, 10):
            step = loop.run(train, session, hooks=[], last_step=last_step)
            loss = session.run(train.loss)
            print(f"step {step}: loss {loss:.3f}")


if __name__ == "__main__":
    main()
