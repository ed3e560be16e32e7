"""The interface of a callback: TensorFlow's `SessionRunHook` with two methods more."""

from typing import TypeAlias

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1

RunContext: TypeAlias = v1.train.SessionRunContext
RunArgs: TypeAlias = v1.train.SessionRunArgs
RunValues: TypeAlias = v1.train.SessionRunValues


NEVER = 2**62  # a step that no run reaches


class TrainingError(RuntimeError):
    """Training cannot go on."""


class Callback(v1.train.SessionRunHook):
    """A `SessionRunHook` that says before which step it must be called next.

    A plain `SessionRunHook` is called in every step.  For a `Callback` the loop may run
    the steps in between inside the graph (`steps_per_loop`), and report them together.
    """

    def next_due(self, step: int) -> int:
        """The first global step after `step` in which this must be called."""
        return step + 1

    def after_steps(self, step: int, losses: np.ndarray, seconds: float) -> None:
        """Called for steps that ran inside the graph.

        Args:
          step: the global step after them.
          losses: float32 [steps].
          seconds: how long they took together.
        """
