"""Evaluations during training."""

from collections.abc import Callable, Sequence

from towers.callbacks.base import RunContext
from towers.callbacks.every import Every
from towers.graph import TrainGraph


class Evaluate(Every):
    """Evaluates during training.

    Args:
      train: the graph.
      evaluate: evaluates and reports: (run context, step) -> top-1 accuracy.
      stop_at: the accuracy at which training stops, or None.
      steps, at, since: as in `Every`.
    """

    def __init__(
        self,
        train: TrainGraph,
        evaluate: Callable[[RunContext, int], float],
        *,
        stop_at: float | None,
        steps: float = 0,
        at: Sequence[int] = (),
        since: float = 0.0,
    ):
        super().__init__(train, steps=steps, at=at, since=since)
        self._evaluate = evaluate
        self._stop_at = stop_at

    def act(self, run_context: RunContext, step: int) -> None:
        """Evaluates; asks to stop when the accuracy is reached."""
        accuracy = self._evaluate(run_context, step)
        if self._stop_at is not None and accuracy >= self._stop_at:
            run_context.request_stop()
