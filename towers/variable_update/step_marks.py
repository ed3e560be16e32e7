"""Counts steps that have begun to change variables, and those that have ended.

A task may be lost in the middle of a step.  The step changes no variable before all
means are there; then it counts itself as begun, and at its end as done.  Who reads
`done`, then the variables, then `begun`, and finds both counts equal, has read the
variables between two steps.
"""

from typing import Any

import tensorflow as tf

from towers.data.stream import unsaved
from towers.gradients import sparse

v1 = tf.compat.v1


class StepMarks:
    """The counts of a graph's steps.

    Args:
      device: that has them; it must not be lost.

    Attributes:
      begun, done: int64 scalars, in no checkpoint.
    """

    def __init__(self, device: str):
        with tf.device(device), v1.name_scope("step_marks"):
            self.begun, self.done = (unsaved(tf.zeros([], tf.int64)) for _ in "bd")

    def begin(self, sums: Any) -> Any:
        """The same sums, once all are there and the step is counted as begun.

        Args:
          sums: the `TowerSums` of a step, from which all of its changes follow.
        """
        tensors = [
            tensor
            for value in tf.nest.flatten([sums.gradients, sums.statistics, sums.loss])
            if value is not None
            for tensor in tf.nest.flatten(value, expand_composites=True)
        ]
        with v1.name_scope("step_marks"):
            with tf.device(self.begun.device):
                # `tf.group` groups by device first: one message from each task.
                with tf.control_dependencies([tf.group(*tensors)]):
                    begun = self.begun.assign_add(1, read_value=False)
            go: dict[str, tf.Operation] = {}

            def held(value: tf.Tensor) -> tf.Tensor:
                if value.device not in go:
                    with tf.device(value.device), tf.control_dependencies([begun]):
                        go[value.device] = tf.no_op()
                with tf.device(value.device):
                    with tf.control_dependencies([go[value.device]]):
                        return tf.identity(value)

            return sums._replace(
                gradients=[
                    [sparse.map_values(gradient, held) for gradient in copy]
                    for copy in sums.gradients
                ],
                statistics=[held(value) for value in sums.statistics],
                loss=held(sums.loss),
            )

    def end(self, step: tf.Operation) -> tf.Operation:
        """The step, then its count as done."""
        with tf.control_dependencies([step]):
            return self.done.assign_add(1, read_value=False)
