"""How long each tower takes: seconds, added up in the graph.

A tower's time lasts from the start of a step until its loss and gradients are there,
by the clock of the counters' device.  So it contains whatever a slow worker does: wait
for its batch, get the variables, compute.
"""

from collections.abc import Sequence

import tensorflow as tf

from towers.compute.copy_tower import end_of
from towers.compute.tower import Tower
from towers.data.source import Feed
from towers.data.stream import unsaved
from towers.layout.graph_names import REDUCTION

v1 = tf.compat.v1

_SCOPE = f"{REDUCTION}tower_times/"


class TowerTimes:
    """Adds up the times of all steps of a graph.

    Args:
      towers: how many.
      device: of the counters.

    Attributes:
      seconds: float64 [towers], on that device, in no checkpoint.
    """

    def __init__(self, towers: int, device: str):
        self._device = device
        with tf.device(device), v1.name_scope(_SCOPE):
            self.seconds = unsaved(tf.zeros([towers], tf.float64))
            self._begun = tf.timestamp()

    def after_begin(self, feed: Feed) -> Feed:
        """The feed, whose features are there once the step's start has been noted.

        Nothing else would make TensorFlow read the clock before the towers compute.
        """

        def held(tensor: tf.Tensor) -> tf.Tensor:
            with tf.device(tensor.device), tf.control_dependencies([self._begun]):
                return tf.identity(tensor)

        with v1.name_scope(_SCOPE):
            batches = [
                batch._replace(features=tf.nest.map_structure(held, batch.features))
                for batch in feed.batches
            ]
        return feed._replace(batches=batches)

    def add(self, group: Sequence[Tower]) -> tf.Operation:
        """Adds the times of a step of all towers."""
        with tf.device(self._device), v1.name_scope(_SCOPE):
            ended = []
            for tower in group:
                with tf.control_dependencies([end_of(tower, "end")]):
                    ended.append(tf.timestamp())
            seconds = tf.stack(ended) - self._begun
            return self.seconds.assign_add(seconds, read_value=False)
