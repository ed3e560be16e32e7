"""Ends training when a metric no longer improves."""

from collections.abc import Mapping

from towers.callbacks.base import NEVER, Callback, RunContext, TrainingRun
from towers.callbacks.best_so_far import BestSoFar, Standing


class StopEarly(Callback):
    """Ends training when a metric of the evaluations no longer improves.

    The run ends after `patience` evaluations in a row without a new best value.  The
    same command run again trains no further.

    Args:
      metric: name of a metric of the evaluations, as `loss`.
      best: `min` or `max`, whichever is better.
      patience: number of evaluations to wait.
      min_change: a value counts as better only if it differs by more than this.
    """

    def __init__(
        self, metric: str, *, best: str, patience: int = 1, min_change: float = 0.0
    ):
        self._best = BestSoFar("StopEarly", metric, best, min_change)
        self._patience = patience

    def set_up(self, run: TrainingRun) -> None:
        """Adds its state to the graph."""
        self._best.set_up(run)
        self._log = run.log

    def next_due(self, step: int) -> int:
        """Never: it acts only after evaluations."""
        return NEVER

    def after_evaluation(
        self, run_context: RunContext, step: int, metrics: Mapping[str, float]
    ) -> None:
        """Counts the evaluation; requests a stop after `patience` of them."""
        session = run_context.session
        standing, value = self._best.read(session), self._best.value(metrics)
        if step > standing.step:
            if self._best.is_better(value, standing.best):
                standing = Standing(value, 0, step, 0)
            else:
                since = standing.since + 1
                standing = standing._replace(since=since, step=step)
            self._best.write(session, standing)
        if standing.since >= self._patience:
            self._log(
                f"StopEarly: {self._best.metric} was best at {standing.best:.6g}, "
                f"{standing.since:.0f} evaluations ago; training ends"
            )
            run_context.request_stop()
