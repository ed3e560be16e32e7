"""The interface of a callback: TensorFlow's `SessionRunHook`, and a little more."""

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
    """A `SessionRunHook` that can say when it next wants to see a step.

    A plain `SessionRunHook` sees every step.  With a `Callback` the loop may run the
    steps between inside the graph (`steps_per_loop`) and report them in one call.
    """

    def next_due(self, step: int) -> int:
        """The first global step after `step` that this callback must see by itself."""
        return step + 1

    def after_steps(self, step: int, losses: np.ndarray, seconds: float) -> None:
        """Called for steps that ran inside the graph.

        Args:
          step: the global step after them.
          losses: float32 [steps].
          seconds: how long they took together.
        """
