"""How long the steps wait for their batches: seconds, added up in the graph.

A step that asks for a batch which is not there waits from its start on.  A step that
reads the next batch while it computes waits only for what is left of the reading at its
end.  Each client of a cluster adds to its own element of one variable.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from towers.data.source import Feed
from towers.layout import graph_names
from towers.layout.placement import Placement

v1 = tf.compat.v1


class WaitReads(NamedTuple):
    """The seconds that steps have waited so far.

    Attributes:
      after_step: float64 [clients], after the step that is run with it.
      now: float64 [clients].
      waiting: how many towers of a client wait by themselves.
    """

    after_step: tf.Tensor
    now: tf.Tensor
    waiting: int


class InputWait:
    """Adds up the waiting of all steps of a graph.

    Args:
      feed: of the towers.
      placement: of the counters, which the sum is beside.

    Attributes:
      seconds: float64 [clients], on the counters' device.
    """

    def __init__(self, feed: Feed, placement: Placement):
        self._feed = feed
        self._client, self._clients = placement.client, placement.clients
        self._device = placement.counters
        with tf.device(self._device), v1.name_scope(graph_names.VARIABLES):
            self.seconds = v1.Variable(
                tf.zeros([self._clients], tf.float64),
                trainable=False,
                collections=[],
                use_resource=True,
                name="waited",  # the same variable in the graphs of all clients
            )

    @classmethod
    def of(cls, feed: Feed, placement: Placement) -> "InputWait | None":
        """That of a feed; None if it does not say how long towers wait."""
        return cls(feed, placement) if feed.waits or feed.staged else None

    def of_batches(self, towers: Sequence[int]) -> list[tf.Operation]:
        """Adds how long a step of these towers waits at its start."""
        waits = {id(w): w for w in (self._feed.waits[index] for index in towers)}
        with self._place():
            return [self._add(tf.reduce_max(tf.stack(list(waits.values()))))]

    def of_refills(
        self, done: Sequence[tf.Operation], refills: Sequence[tf.Operation]
    ) -> list[tf.Operation]:
        """Adds how long a step waits at its end for the batch of the next step.

        Args:
          done: the rest of the step.
          refills: read that batch.
        """
        with self._place():
            with tf.control_dependencies([tf.group(*done)]):
                begun = tf.timestamp()
            with tf.control_dependencies([begun, *refills]):
                return [self._add(tf.timestamp() - begun)]

    def reads(self, steps: Sequence[Any]) -> WaitReads:
        """The sums, after a step and by themselves.

        Args:
          steps: the `TrainStep` of all towers, or of each if they step apart.
        """
        with self._place():
            now = self.seconds.read_value()
            with tf.control_dependencies([steps[0].train_op]):
                return WaitReads(self.seconds.read_value(), now, len(steps))

    def _add(self, seconds: tf.Tensor) -> tf.Operation:
        mine = tf.one_hot(self._client, self._clients, dtype=tf.float64)
        return self.seconds.assign_add(seconds * mine, read_value=False)

    @contextlib.contextmanager
    def _place(self) -> Iterator[None]:
        with tf.device(self._device), v1.name_scope(graph_names.INPUT):
            yield
