"""Synchronized batch norm: statistics over the batches of towers or micro-batches.

A tower is traced alone.  For each exchange with others the traced graph has the tensor
that the tower sends, and a placeholder for the one that it receives, which is the same
for all towers.  `copy_tower`, or `pipeline`, replaces the placeholders by a join, a
function of all the tensors sent.

Batch norm sends its batch's mean and variance in one tensor, and receives those of all
batches together (Chan et al. 1979).  Each variance is about its own batch's mean, so
large means do not reduce precision.  The gradient of a join is another join, a mean.
So each batch norm synchronizes once in the forward and once in the backward pass.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from models.layers import BatchStatistics
from towers.compute.own_gradient import with_gradient

v1 = tf.compat.v1


class StatisticsScope(NamedTuple):
    """Which batches share batch statistics; a row of `BATCH_NORM`.

    Attributes:
      towers: whether all towers share them.
      micro_batches: whether all micro-batches of a tower share them.
    """

    towers: bool
    micro_batches: bool


# --batch_norm -> which batches share statistics.
BATCH_NORM: dict[str, StatisticsScope] = {
    "micro_batch": StatisticsScope(towers=False, micro_batches=False),
    "tower": StatisticsScope(towers=False, micro_batches=True),
    "sync_micro_batch": StatisticsScope(towers=True, micro_batches=False),
    "sync": StatisticsScope(towers=True, micro_batches=True),
}


class SharedStatistics(NamedTuple):
    """How many batches share batch statistics.

    Attributes:
      towers: how many share them; 1 if each tower has its own.
      micro_batches: how many of a tower share them; 1 if each has its own.
      relative_size: of the tower's batch, divided by the mean of those of all towers.
    """

    towers: int = 1
    micro_batches: int = 1
    relative_size: float = 1.0

    @property
    def count(self) -> int:  # type: ignore[override]
        """Number of batches that share statistics."""
        return self.towers * self.micro_batches


def shared_statistics(
    batch_norm: str, *, towers: int, micro_batches: int, rounds: int
) -> SharedStatistics:
    """How many batches share batch statistics in a run.

    Args:
      batch_norm: a row of `BATCH_NORM`.
      towers: how many can exchange statistics in a step; 0 if they cannot.
      micro_batches: of each tower.
      rounds: of gradient accumulation.

    Raises:
      ValueError: the batches cannot share them; the message says what to write.
    """
    reach = BATCH_NORM[batch_norm]
    if reach.towers and not towers:
        raise ValueError(
            f"batch_norm={batch_norm}: the towers must step together on one model, and "
            "not be compiled; write batch_norm=micro_batch or tower"
        )
    if reach.micro_batches and rounds > 1:
        raise ValueError(
            f"batch_norm={batch_norm}: of the {rounds} rounds of accumulate_steps one "
            "ends before the next begins; write micro-batches, which can wait for one "
            "another, or batch_norm=micro_batch or sync_micro_batch"
        )
    return SharedStatistics(
        towers if reach.towers else 1, micro_batches if reach.micro_batches else 1
    )


def mean(tensors: Sequence[tf.Tensor], sizes: Sequence[int] = ()) -> tf.Tensor:
    """The mean of float32 tensors of one shape; a batch's size makes no difference."""
    del sizes
    return tf.reduce_mean(tf.stack(tensors), 0)


def moments(tensors: Sequence[tf.Tensor], sizes: Sequence[int] = ()) -> tf.Tensor:
    """Mean and variance of batches together, from those of each.

    Args:
      tensors: float32 [2, channels]: a mean, and a variance about it.
      sizes: of the batches; empty if all are equal.
    """
    means, variances = tf.unstack(tf.stack(tensors), axis=1)

    def over_all(values: tf.Tensor) -> tf.Tensor:
        if len(set(sizes)) < 2:
            return tf.reduce_mean(values, 0)
        shares = tf.constant([[size / sum(sizes)] for size in sizes])
        return tf.reduce_sum(shares * values, 0)

    whole = over_all(means)
    return tf.stack([whole, over_all(variances + (means - whole) ** 2)])


# Name -> function: (tensors sent by all, sizes of their batches) -> the tensor that
# each receives.
JOINS: dict[str, Callable[[Sequence[tf.Tensor], Sequence[int]], tf.Tensor]] = {
    "mean": mean,
    "moments": moments,
}


class SentStatistics(NamedTuple):
    """A tensor that a tower sends.

    Attributes:
      tensor: float32, of the traced graph.
      join: a row of `JOINS`.
    """

    tensor: tf.Tensor
    join: str


class StatisticsExchanges:
    """The exchanges with other batches in a tower that is being traced.

    Attributes:
      sent: name of the placeholder of what is received -> what is sent for it.
    """

    def __init__(self) -> None:
        self.sent: dict[str, SentStatistics] = {}
        self._relative_size = 1.0

    def joined(self, joint: SharedStatistics) -> BatchStatistics | None:
        """The exchange for batch norm; None if each batch has its own statistics."""
        if joint.count == 1:
            return None
        size = self._relative_size = joint.relative_size
        count = joint.count if size == 1 else joint.count / size
        return BatchStatistics(count, self._mean, self._moments)

    def _receive(self, tensor: tf.Tensor, join: str) -> tf.Tensor:
        sent = tf.identity(tensor)
        received = v1.placeholder(tensor.dtype, tensor.shape, "exchange")
        self.sent[received.op.name] = SentStatistics(sent, join)
        return received

    def _mean(self, tensor: tf.Tensor) -> tf.Tensor:
        """The mean over all batches.

        Every batch receives the mean, and the loss is the sum of the batches' shares;
        so the gradient by a batch's tensor is the mean of all upstream gradients.
        """

        received = self._receive(tensor, "mean")
        [joined] = with_gradient([received], [tensor], lambda dy: [self._mean(dy)])
        return joined

    def _moments(self, tower_moments: tf.Tensor) -> tf.Tensor:
        """The joint mean and variance, [2, channels].

        A batch's mean enters the joint variance, too: its gradient has a second term.
        Both moments enter with the batch's share of the examples.
        """

        received = self._receive(tower_moments, "moments")

        def back(upstream: tf.Tensor) -> list[tf.Tensor]:
            by_mean, by_variance = tf.unstack(self._mean(upstream))
            more = 2.0 * (tower_moments[0] - received[0]) * by_variance
            by_moments = tf.stack([by_mean + more, by_variance])
            size = self._relative_size
            return [by_moments if size == 1 else by_moments * size]

        [joined] = with_gradient([received], [tower_moments], back)
        return joined
