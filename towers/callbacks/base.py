"""The interface of a callback, an extension of TensorFlow's `SessionRunHook`."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from flags.problem import in_python, problems_of, with_flags
from towers.errors.side_outputs import SideOutputs
from towers.graph import TrainGraph

v1 = tf.compat.v1

RunContext: TypeAlias = v1.train.SessionRunContext
RunArgs: TypeAlias = v1.train.SessionRunArgs
RunValues: TypeAlias = v1.train.SessionRunValues


NEVER = 2**62  # a step that no run reaches


class TrainingError(RuntimeError):
    """Training cannot go on.

    The arguments are the parts of the sentence.  They name settings in backquotes, as
    `flags.problem` has it.
    """

    @classmethod
    def of(cls, error: ValueError) -> "TrainingError":
        """The error of settings or data that ends a run."""
        return cls("\n".join(problem.text for problem in problems_of(error)))

    def __str__(self) -> str:
        """The sentence, with settings as Python names them."""
        return in_python(self._text)

    @property
    def sentence(self) -> str:
        """The sentence, with settings as flags."""
        return with_flags(self._text)

    @property
    def _text(self) -> str:
        return "; ".join(map(str, self.args))


class TrainingRun(NamedTuple):
    """The run of a callback.

    Attributes:
      train: its graph: the loss, the learning rate, the global step, the variables.
      train_dir: the folder of its checkpoints, or None.
      evaluates: whether it evaluates during training.
      log: prints a line.
      side: writes the callback's files; a failure to write does not end the run.
      rate_factors: gets the factors of the learning rate that callbacks set, by the
        step after which they hold; None if nobody asks.
    """

    train: TrainGraph
    train_dir: str | None = None
    evaluates: bool = False
    log: Callable[[str], None] = print
    side: SideOutputs = SideOutputs()
    rate_factors: dict[int, float] | None = None


class Callback(v1.train.SessionRunHook):
    """A `SessionRunHook` that also gets its run and the results of evaluations.

    The methods are called in this order; those not described here are TensorFlow's:
    `set_up` and `begin` once, while the graph can still be extended; then in each
    session `after_create_session`, `before_run` and `after_run` around each due step,
    `after_evaluation` after each evaluation, and finally `end`.

    Variables that `set_up` or `begin` adds to the graph are saved in checkpoints.  When
    a task of a cluster is lost, a new session continues from the last checkpoint.
    """

    def set_up(self, run: TrainingRun) -> None:
        """Called before `begin`, with the run's graph as the default."""

    def next_due(self, step: int) -> int:
        """The first global step after `step` that must be a session call of its own.

        A plain `SessionRunHook` sees every step.  With a `Callback` the loop may run
        the steps before it in one session call (`steps_per_loop`) and report them
        together to `after_steps`.
        """
        return step + 1

    def after_steps(self, step: int, losses: np.ndarray, seconds: float) -> None:
        """Called for several steps that ran in one session call.

        Args:
          step: the global step after them.
          losses: float32 [steps].
          seconds: duration of all of them.
        """

    def after_evaluation(
        self, run_context: RunContext, step: int, metrics: Mapping[str, float]
    ) -> None:
        """Called after each evaluation.

        The call comes after `after_run` and after the checkpoint of the same step, and
        is repeated when a run continues from that checkpoint.

        Args:
          run_context: has the session; `request_stop()` ends the training.
          step: the global step that was evaluated.
          metrics: `loss`, the model's metrics and what it derives from them, by name.
        """
