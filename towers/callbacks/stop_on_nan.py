"""Ends a run at the first loss that is not finite."""

import math

import numpy as np
import tensorflow as tf

from towers.callbacks.base import (
    NEVER,
    Callback,
    RunArgs,
    RunContext,
    RunValues,
    TrainingError,
)
from towers.checkpoints.checkpoint import FiniteCheck
from towers.graph import TrainGraph

v1 = tf.compat.v1


class NanLossError(TrainingError):
    """The loss of a step, or a variable after it, is not finite.

    Attributes:
      step: the global step.
      advice: the part of the sentence that says what to do if the data are right.
    """

    def __init__(self, text: str, step: int, advice: str):
        super().__init__(text, advice)
        self.step, self.advice = step, advice


class StopOnNan(Callback):
    """Stops the run at the first step whose loss is not finite.

    The loss of a step is computed from the variables before its update.  After the last
    step the variables themselves are checked.

    Args:
      train: the graph.
      finite: checks its variables.
    """

    def __init__(self, train: TrainGraph, finite: FiniteCheck):
        self._fetches = (train.loss, train.step)
        self._global_step = train.global_step
        self._finite = finite
        # A dynamic loss scale adapts by itself.
        fixed_scale = train.loss_scale is not None and train.skipped is None
        self._advice = "lower `init_learning_rate`" + (
            " or `fp16_loss_scale`" if fixed_scale else ""
        )
        self._first = 1

    def after_create_session(self, session: v1.Session, coord: object) -> None:
        """Reads the first global step."""
        self._first = int(session.run(self._global_step)) + 1

    def next_due(self, step: int) -> int:
        """Never: `after_steps` gets the losses of steps that run in one call."""
        return NEVER

    def before_run(self, run_context: RunContext) -> RunArgs | None:
        """Asks for the loss."""
        return v1.train.SessionRunArgs(self._fetches)

    def after_run(self, run_context: RunContext, run_values: RunValues) -> None:
        """Raises NanLossError."""
        loss, step = run_values.results
        self._check(loss, step)

    def after_steps(self, step: int, losses: np.ndarray, seconds: float) -> None:
        """Raises NanLossError for the first step whose loss is not finite."""
        for index, loss in enumerate(losses):
            self._check(loss, step - len(losses) + 1 + index)

    def end(self, session: v1.Session) -> None:
        """Raises NanLossError with the variable's name if one is not finite."""
        if broken := self._finite.broken(session):
            step = int(session.run(self._global_step))
            raise NanLossError(
                f"variable {broken} is not finite after step {step}", step, self._advice
            )

    def _check(self, loss: float, step: int) -> None:
        if not math.isfinite(loss):
            advice = self._advice
            if step == self._first:  # no update of this run came before it
                advice = (
                    "it is that of the initial values: look at the model or the data"
                    if step == 1
                    else "it is that of the checkpoint's values: go on from an earlier "
                    "one, by moving that away"
                )
            raise NanLossError(f"the loss of step {step} is {loss}", int(step), advice)
