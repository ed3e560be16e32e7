"""Reduces the learning rate when a metric no longer improves."""

from collections.abc import Mapping

from towers.callbacks.base import NEVER, Callback, RunContext, TrainingRun
from towers.callbacks.best_so_far import BestSoFar, Standing
from towers.callbacks.rate_adjustment import RateAdjustment


class ReduceRate(Callback):
    """Reduces the learning rate on a plateau, as Keras's ReduceLROnPlateau does.

    After `patience` evaluations in a row without a new best value, the schedule's rate
    is multiplied by `factor` from then on.  Its state is saved in checkpoints, so a run
    that was stopped and continued equals one that was not.

    Args:
      metric: name of a metric of the evaluations, as `loss`.
      best: `min` or `max`, whichever is better.
      factor: above 0 and below 1.
      patience: number of evaluations to wait.
      min_change: a value counts as better only if it differs by more than this.
      cooldown: number of evaluations after a reduction that do not count.

    Raises:
      ValueError: the factor is not between 0 and 1.
    """

    def __init__(
        self,
        metric: str,
        *,
        best: str,
        factor: float = 0.1,
        patience: int = 10,
        min_change: float = 0.0,
        cooldown: int = 0,
    ):
        if not 0.0 < factor < 1.0:
            raise ValueError(
                f"ReduceRate: factor is {factor:g}, and must be above 0 and below 1"
            )
        self._best = BestSoFar("ReduceRate", metric, best, min_change)
        self._factor = factor
        self._patience, self._cooldown = patience, cooldown

    def set_up(self, run: TrainingRun) -> None:
        """Adds its state to the graph."""
        self._best.set_up(run)
        self._rate = RateAdjustment(run)
        self._log = run.log

    def next_due(self, step: int) -> int:
        """Never: it acts only after evaluations."""
        return NEVER

    def after_evaluation(
        self, run_context: RunContext, step: int, metrics: Mapping[str, float]
    ) -> None:
        """Counts the evaluation; reduces the rate after `patience` of them."""
        session = run_context.session
        last, value = self._best.read(session), self._best.value(metrics)
        if step <= last.step:
            return
        paused = max(last.paused - 1, 0)
        if self._best.is_better(value, last.best):
            standing = Standing(value, 0, step, paused)
        elif paused:
            standing = Standing(last.best, 0, step, paused)
        else:
            # After a cooldown the count begins again at 1.
            since = (0 if last.paused else last.since) + 1
            standing = Standing(last.best, since, step, 0)
            if since >= self._patience:
                self._reduce(run_context, step)
                standing = Standing(last.best, 0, step, self._cooldown)
        self._best.write(session, standing)

    def _reduce(self, run_context: RunContext, step: int) -> None:
        session = run_context.session
        factor = self._rate.factor(session) * self._factor
        self._rate.write(session, factor)
        self._log(
            f"ReduceRate: {self._best.metric} is on a plateau at step {step}; the "
            f"learning rate is now {factor:.6g} x the schedule's"
        )
