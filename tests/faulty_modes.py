"""Variable updates with a fault that checks must find."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from towers.variable_update import synchronous


def scaled(gradient: Any, by: float) -> Any:
    """A gradient, dense or sparse, times a number."""
    if isinstance(gradient, tf.IndexedSlices):
        values = gradient.values * by
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return gradient * by


class Sums(synchronous.Replicated):
    """Adds the towers' gradients where it should take their mean."""

    def reduce(self, towers: Any, names: Sequence[str]) -> Any:
        """As if no tower had divided."""
        means, count = super().reduce(towers, names), float(len(towers))
        return [[scaled(g, count) for g in gradients] for gradients in means]


class Stale(synchronous.Replicated):
    """Leaves the last tower's replica as it is."""

    def update(self, gradients: Any, names: Any, update: Any, rate: Any) -> list:
        """All but the last."""
        return super().update(gradients, names, update, rate)[:-1]
