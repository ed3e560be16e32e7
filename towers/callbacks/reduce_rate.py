"""Reduces the learning rate when a metric no longer improves."""

from towers.callbacks.base import RunContext, TrainingRun
from towers.callbacks.best_so_far import BestSoFar, Standing
from towers.callbacks.rate_adjustment import RateAdjustment


class ReduceRate(BestSoFar):
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
        super().__init__("ReduceRate", metric, best, min_change)
        self._factor = factor
        self._patience, self._cooldown = patience, cooldown

    def set_up(self, run: TrainingRun) -> None:
        """Adds its state to the graph."""
        super().set_up(run)
        self._rate = RateAdjustment(run)

    def compare(
        self, run_context: RunContext, step: int, standing: Standing, value: float
    ) -> None:
        """Counts the evaluation; reduces the rate after `patience` of them."""
        if step <= standing.step:
            return
        paused = max(standing.paused - 1, 0)
        if self.is_better(value, standing.best):
            following = Standing(value, 0, step, paused)
        elif paused:
            following = Standing(standing.best, 0, step, paused)
        else:
            # After a cooldown the count begins again at 1.
            since = (0 if standing.paused else standing.since) + 1
            following = Standing(standing.best, since, step, 0)
            if since >= self._patience:
                self._reduce(run_context, step)
                following = Standing(standing.best, 0, step, self._cooldown)
        self.write(run_context.session, following)

    def _reduce(self, run_context: RunContext, step: int) -> None:
        session = run_context.session
        factor = self._rate.factor(session) * self._factor
        self._rate.change(session, step, factor)
        self.log(
            f"ReduceRate: {self.metric} is on a plateau at step {step}; the "
            f"learning rate is now {factor:.6g} x the schedule's"
        )
