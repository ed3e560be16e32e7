"""The examples of clients whose gradients a step did not use.

`skip`: a step takes the next examples of the stream for all clients.  Those of a client
that was dropped are left out, and counted.

`replay`: each client has its own position in its part of the stream, which moves on
when its gradients were used.  So it takes the same examples until they were.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from towers.checkpoints.contents import CLIENT_OFFSETS, SKIPPED
from towers.layout import graph_names
from towers.layout.placement import Placement
from towers.variable_update.train_steps import Counters

v1 = tf.compat.v1


class DroppedExamples:
    """Counts the examples of clients that were dropped.

    Args:
      counters: of the graph.
      where: of this client.
      sizes: examples per step of each tower of all clients.
      limit: examples of the stream to train on; None for all.
      replay: whether clients take their examples again.

    Attributes:
      position: int64 scalar, index in the stream of the next step of this client.
      skipped: int64 scalar, the examples that were left out; None with `replay`.
      shares: float32 [clients], each client's share of the examples of a step.
      left: int64 [clients], each client's examples in this step up to the limit.
    """

    def __init__(
        self,
        counters: Counters,
        where: Placement,
        sizes: Sequence[int],
        *,
        limit: int | None,
        replay: bool,
    ):
        rows = np.reshape(sizes, [where.clients, -1]).sum(1).astype(np.int64)
        self._device, self._before = where.counters, counters.position_before
        self._step = int(rows.sum())
        self.skipped: tf.Variable | None = None
        self._offsets: tf.Variable | None = None  # of their positions
        with tf.device(where.counters):
            with graph_names.variable_scope():
                if replay:
                    zeros = np.zeros([where.clients], np.int64)
                    self._offsets = _variable(CLIENT_OFFSETS, zeros)
                else:
                    self.skipped = _variable(SKIPPED, np.zeros([], np.int64))
            with v1.name_scope(graph_names.READ):
                positions = tf.fill([where.clients], self._before)
                if self._offsets is not None:
                    positions += self._offsets.read_value()
                self._read = positions
                self.position = positions[where.client]
                self.shares = tf.constant(rows / self._step, tf.float32)
                self.left = tf.constant(rows)
                if limit is not None:
                    left = limit - positions - (np.cumsum(rows) - rows)
                    self.left = tf.clip_by_value(left, 0, rows)

    def consumed(
        self, examples: tf.Tensor, used: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Operation]]:
        """As `SingleClient.consumed` has it.

        Args:
          examples: int64 scalar, those of all clients in this step.
          used: bool [clients], whose gradients the step uses.
        """
        with tf.device(self._device), tf.control_dependencies([self._read]):
            taken = tf.reduce_sum(tf.where(used, self.left, 0))
            if self.skipped is not None:
                more = self.skipped.assign_add(examples - taken, read_value=False)
                return examples, [more]
            assert self._offsets is not None
            # The position moves on by `taken`, each client's own by a step or not.
            change = tf.where(used, tf.constant(self._step, tf.int64), 0) - taken
            return taken, [self._offsets.assign_add(change, read_value=False)]


def _variable(name: str, value: np.ndarray) -> tf.Variable:
    """A saved variable that counts."""
    return v1.get_variable(name, initializer=value, trainable=False)
