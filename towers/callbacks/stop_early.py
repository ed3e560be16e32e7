"""Ends training when a metric no longer improves."""

from towers.callbacks.base import RunContext
from towers.callbacks.best_so_far import BestSoFar, Standing


class StopEarly(BestSoFar):
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
        super().__init__("StopEarly", metric, best, min_change)
        self._patience = patience

    def compare(
        self, run_context: RunContext, step: int, standing: Standing, value: float
    ) -> None:
        """Counts the evaluation; requests a stop after `patience` of them."""
        if step > standing.step:
            if self.is_better(value, standing.best):
                standing = Standing(value, 0, step, 0)
            else:
                since = standing.since + 1
                standing = standing._replace(since=since, step=step)
            self.write(run_context.session, standing)
        if standing.since >= self._patience:
            self.log(
                f"StopEarly: {self.metric} was best at {standing.best:.6g}, "
                f"{standing.since:.0f} evaluations ago; training ends"
            )
            run_context.request_stop()
