"""The number of damaged examples in the epoch that a training run is in.

The count of a step is the sum over its towers and clients, and is saved in the
checkpoints.  So it belongs to the position in the stream, however often the run was
resumed and on however many hosts.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from towers.data.examples import required
from towers.data.source import Feed
from towers.layout import graph_names

v1 = tf.compat.v1

NAME = "damaged_examples"  # of the count in a checkpoint, an int64 scalar


def too_many(most: int) -> str:
    """The sentence that ends a run.

    Args:
      most: damaged examples that are allowed in an epoch.
    """
    return (
        f"more than max_damaged_examples={most} examples of an epoch are damaged, and "
        "were named above; mend them, or allow more"
    )


class DamagedCount:
    """Counts the damaged examples of an epoch.

    Args:
      feed: with `left_out`.
      position: int64 scalar, the position in the stream before the step.
      examples: of a step of all clients.
      device: of the count.
    """

    def __init__(self, feed: Feed, position: tf.Tensor, examples: int, device: str):
        assert feed.left_out
        self._feed, self._left_out, self._position = feed, feed.left_out, position
        # A step that begins with the last example of an epoch ends in the last of them.
        self._epochs = (examples - 1) // self._left_out.num_examples + 2
        with tf.device(device), graph_names.variable_scope():
            self._count = v1.get_variable(
                NAME, initializer=np.int64(0), trainable=False
            )

    def of_batches(self, towers: Sequence[int]) -> tf.Tensor:
        """The damaged examples of these towers, float32 [epochs] of the step."""
        n, counts = self._left_out.num_examples, []
        for tower in towers:
            damaged = self._left_out.of_towers[tower]
            with tf.device(damaged.device):
                first = self._feed.batches[tower].first
                indices = first + tf.range(damaged.shape[0], dtype=tf.int64)
                # Asynchronous towers may be ahead of the position, or behind it.
                epoch = indices // n - self._position // n
                epoch = tf.clip_by_value(epoch, 0, self._epochs - 1)
                ones = tf.cast(damaged, tf.float32)
                counts.append(tf.math.unsorted_segment_sum(ones, epoch, self._epochs))
        return tf.add_n(counts)

    def add(self, counts: tf.Tensor, consumed: tf.Tensor) -> tf.Operation:
        """Adds the counts of a step; fails where an epoch has too many.

        Args:
          counts: float32 [epochs], from `of_batches`, of all towers and clients.
          consumed: int64 scalar, examples by which the step advances the position.
        """
        n, most = self._left_out.num_examples, self._left_out.most
        before = self._count.read_value()
        begun = tf.one_hot(0, self._epochs, tf.maximum(before, 0), dtype=tf.int64)
        totals = begun + tf.cast(counts, tf.int64)
        fine = tf.reduce_all(totals <= most)
        totals = required(totals, fine, too_many(most))
        ended = (self._position + consumed) // n - self._position // n
        # A sum, as asynchronous towers may add theirs between the two.
        change = tf.gather(totals, ended) - before
        return self._count.assign_add(change, read_value=False)
