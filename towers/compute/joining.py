"""Batch norm over several batches: what towers, or micro-batches, make together.

While a tower is traced it is alone.  What it shall make with others is a pair in the
graph: the tensor that it sends, and a placeholder for what it receives, which is the
same for all of them.  Who stamps the towers puts a join of all that is sent in place of
the placeholders.

Batch norm sends its batch's mean and variance at once, and gets those of all batches
as one (Chan et al. 1979): each variance is about the mean of its own batch, so no
digits are lost that large means have in common.  What goes back is a mean, so a batch
norm waits for the others once on the way forward, and once on the way back.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

v1 = tf.compat.v1


class Reach(NamedTuple):
    """Which batches batch norm takes as one; a row of `BATCH_NORM`.

    Attributes:
      towers: whether those of all towers.
      pieces: whether those of all pieces, micro-batches, that a tower's batch is in.
    """

    towers: bool
    pieces: bool


# --batch_norm -> how far it reaches.
BATCH_NORM: dict[str, Reach] = {
    "micro_batch": Reach(towers=False, pieces=False),
    "tower": Reach(towers=False, pieces=True),
    "sync_micro_batch": Reach(towers=True, pieces=False),
    "sync": Reach(towers=True, pieces=True),
}


class Joint(NamedTuple):
    """How many batches batch norm takes as one.

    Attributes:
      towers: whose batches it joins; 1 for each by itself.
      micro_batches: of a tower; 1 for each by itself.
    """

    towers: int = 1
    micro_batches: int = 1

    @property
    def count(self) -> int:
        """Batches that are one."""
        return self.towers * self.micro_batches


def joint(batch_norm: str, *, towers: int, micro_batches: int, rounds: int) -> Joint:
    """Which batches batch norm takes as one.

    Args:
      batch_norm: a row of `BATCH_NORM`.
      towers: that can meet; 0 if they cannot.
      micro_batches: of each.
      rounds: that each takes its batch in.

    Raises:
      ValueError: they cannot meet; the sentence says what to write.
    """
    reach = BATCH_NORM[batch_norm]
    if reach.towers and not towers:
        raise ValueError(
            f"batch_norm={batch_norm}: the towers must step together on one model, and "
            "not be compiled; write batch_norm=micro_batch or tower"
        )
    if reach.pieces and rounds > 1:
        raise ValueError(
            f"batch_norm={batch_norm}: of the {rounds} rounds of accumulate_steps one "
            "ends before the next begins; write micro-batches, which can wait for one "
            "another, or batch_norm=micro_batch or sync_micro_batch"
        )
    return Joint(towers if reach.towers else 1, micro_batches if reach.pieces else 1)


def mean(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """The mean of float32 tensors of one shape."""
    return tf.reduce_mean(tf.stack(tensors), 0)


def moments(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """Mean and variance of batches of one size together, from those of each.

    Args:
      tensors: float32 [2, channels]: a mean, and a variance about it.
    """
    means, variances = tf.unstack(tf.stack(tensors), axis=1)
    whole = tf.reduce_mean(means, 0)
    return tf.stack([whole, tf.reduce_mean(variances + (means - whole) ** 2, 0)])


# Name -> from what all send to what each receives.
JOINS: dict[str, Callable[[Sequence[tf.Tensor]], tf.Tensor]] = {
    "mean": mean,
    "moments": moments,
}


class Joined(NamedTuple):
    """What batch norm needs of the other batches, as `models.layers` has it."""

    count: int
    mean: Callable[[tf.Tensor], tf.Tensor]
    moments: Callable[[tf.Tensor], tf.Tensor]


class Sent(NamedTuple):
    """What a tower sends while it is traced."""

    tensor: tf.Tensor
    join: str  # a row of `JOINS`


class Exchanges:
    """Placeholders for what several batches make together.

    Attributes:
      sent: placeholder's name -> what is sent for it.
    """

    def __init__(self):
        self.sent: dict[str, Sent] = {}

    def joined(self, joint: Joint) -> Joined | None:
        """What batch norm needs; None if there is nothing to join."""
        if joint.count == 1:
            return None
        return Joined(joint.count, self._mean, self._moments)

    def _receive(self, tensor: tf.Tensor, join: str) -> tf.Tensor:
        sent = tf.identity(tensor)
        received = v1.placeholder(tensor.dtype, tensor.shape, "exchange")
        self.sent[received.op.name] = Sent(sent, join)
        return received

    def _mean(self, tensor: tf.Tensor) -> tf.Tensor:
        """The batches' shares of the loss add up, and each has its tensor in the mean
        that every one gets: so its gradient is the mean of what they send back."""

        @tf.custom_gradient
        def exchanged(tensor):
            return self._receive(tensor, "mean"), self._mean

        return exchanged(tensor)

    def _moments(self, own: tf.Tensor) -> tf.Tensor:
        """As of a mean; the mean is also what the variance is about."""

        @tf.custom_gradient
        def exchanged(own):
            received = self._receive(own, "moments")

            def back(upstream):
                by_mean, by_variance = tf.unstack(self._mean(upstream))
                more = 2.0 * (own[0] - received[0]) * by_variance
                return tf.stack([by_mean + more, by_variance])

            return received, back

        return exchanged(own)
