"""Images and draws for tests of preprocessing, and a graph of their own."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from models.uniform import example_uniform
from towers.data.preprocessing import DRAWS

v1 = tf.compat.v1


def run(make: Callable[[], Any]) -> Any:
    """The value of what `make()` adds to a graph of its own."""
    with tf.Graph().as_default(), v1.Session() as session:
        return session.run(make())


def draws_of(examples: int, first: int = 0, seed: int = 7) -> tf.Tensor:
    """The draws of so many examples."""
    return example_uniform((examples, DRAWS), seed=seed, first=first)


def random_images(count: int, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Images of random bytes."""
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), np.uint8)


def coordinates(count: int, height: int, width: int) -> np.ndarray:
    """Images whose channels say the row, the column and 1."""
    row, column = np.mgrid[:height, :width]
    image = np.stack([row, column, np.ones_like(row)], -1)
    return np.repeat(image[None], count, 0)
