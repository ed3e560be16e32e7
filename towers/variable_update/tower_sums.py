"""The sums over the towers of a step, and the means that they become."""

from typing import Any, NamedTuple

import tensorflow as tf

from towers.data.source import divisor
from towers.gradients import sparse


class TowerSums(NamedTuple):
    """The sums over the towers of a step."""

    gradients: list[list[Any]]  # [copies][variables]
    statistics: list[tf.Tensor]  # the mean of each batch statistic; of states the sum
    loss: tf.Tensor  # float32 scalar, mean over the step's examples
    metrics: dict[str, tf.Tensor]  # float32 scalars, means over the step's examples
    # `Feed.exchanged_weight`, by which the sums are still to be divided, or None.
    weight: tf.Tensor | None = None
    damaged: tf.Tensor | None = None  # `DamagedCount.of_batches`, if any may be
    # Float32 scalar, the share of the towers whose statistics are in the sums, by which
    # these are still to be divided; None if all are.
    share: tf.Tensor | None = None

    def means(self) -> "TowerSums":
        """The sums, divided by the weight and the share, if they are not yet."""
        sums = self
        if self.share is not None:
            statistics = _divided(self.statistics, self.share)
            sums = sums._replace(statistics=statistics, share=None)
        if self.weight is None:
            return sums
        weight = divisor(self.weight)
        gradients = [_divided(copy, weight) for copy in self.gradients]
        loss, *metrics = _divided([self.loss, *self.metrics.values()], weight)
        return sums._replace(
            gradients=gradients,
            loss=loss,
            metrics=dict(zip(self.metrics, metrics)),
            weight=None,
        )


def _divided(values: list[Any], by: tf.Tensor) -> list[Any]:
    """The values, divided on their own devices."""

    def divide(values: tf.Tensor) -> tf.Tensor:
        with tf.device(values.device):
            return values / by

    return [sparse.map_values(value, divide) for value in values]
