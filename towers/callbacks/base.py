"""The interface of a callback: TensorFlow's `SessionRunHook` with two methods more."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from towers.errors.side_outputs import SideOutputs
from towers.graph import TrainGraph

v1 = tf.compat.v1

RunContext: TypeAlias = v1.train.SessionRunContext
RunArgs: TypeAlias = v1.train.SessionRunArgs
RunValues: TypeAlias = v1.train.SessionRunValues


NEVER = 2**62  # a step that no run reaches


class TrainingError(RuntimeError):
    """Training cannot go on."""


class TrainingRun(NamedTuple):
    """The run that a callback is part of.

    Attributes:
      train: its graph: the loss, the learning rate, the global step, the variables.
      train_dir: the folder of its checkpoints, or None.
      evaluates: whether it evaluates while it trains.
      log: prints a line.
      side: what the callback writes beside the checkpoints.
    """

    train: TrainGraph
    train_dir: str | None = None
    evaluates: bool = False
    log: Callable[[str], None] = print
    side: SideOutputs = SideOutputs()


class Callback(v1.train.SessionRunHook):
    """A `SessionRunHook` that knows its run, its evaluations and the steps it needs.

    The methods are called in this order, those without text here as TensorFlow has
    them: `set_up` and `begin`, once, while the graph can be added to; then in each
    session `after_create_session`, around each step that is due `before_run` and
    `after_run`, after each evaluation `after_evaluation`, and at last `end`.

    A variable that `set_up` or `begin` adds to the graph is in the checkpoints.  Where
    a task of a cluster is lost, a new session goes on from the last checkpoint.
    """

    def set_up(self, run: TrainingRun) -> None:
        """Called before `begin`, with the run's graph as the default."""

    def next_due(self, step: int) -> int:
        """The first global step after `step` that this callback must see by itself.

        A plain `SessionRunHook` sees every step.  With a `Callback` the loop may run
        the steps between inside the graph (`steps_per_loop`) and report them together.
        """
        return step + 1

    def after_steps(self, step: int, losses: np.ndarray, seconds: float) -> None:
        """Called for steps that ran inside the graph.

        Args:
          step: the global step after them.
          losses: float32 [steps].
          seconds: how long they took together.
        """

    def after_evaluation(
        self, run_context: RunContext, step: int, metrics: Mapping[str, float]
    ) -> None:
        """Called after each evaluation.

        It comes after `after_run` and the checkpoint of its step, and once more where a
        run goes on from that checkpoint.

        Args:
          run_context: has the session; a request to stop ends the training.
          step: the global step that was evaluated.
          metrics: `loss`, the model's metrics and what it derives from them, by name.
        """
