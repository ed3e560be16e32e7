"""Evaluations during training."""

from collections.abc import Callable, Sequence

import tensorflow as tf

from towers.callbacks.base import RunContext
from towers.callbacks.every import Every
from towers.graph import TrainGraph

v1 = tf.compat.v1


class Evaluate(Every):
    """Evaluates during training.

    Args:
      train: the graph.
      evaluate: (session, step) -> top-1 accuracy; reports it.
      stop_at: the accuracy at which training stops, or None.
      steps, at: as in `Every`.
    """

    def __init__(
        self,
        train: TrainGraph,
        evaluate: Callable[[v1.Session, int], float],
        *,
        stop_at: float | None,
        steps: float = 0,
        at: Sequence[int] = (),
    ):
        super().__init__(train, steps=steps, at=at)
        self._evaluate = evaluate
        self._stop_at = stop_at

    def act(self, run_context: RunContext, step: int) -> None:
        """Evaluates; asks to stop when the accuracy is reached."""
        accuracy = self._evaluate(run_context.session, step)
        if self._stop_at is not None and accuracy >= self._stop_at:
            run_context.request_stop()
