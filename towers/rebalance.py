"""`--rebalance`: towers that stay slow get fewer examples per step.

The graph adds up how long each tower takes (`tower_times`).  When other batch sizes
would have made the steps of two intervals in a row shorter, the session ends.  The next
one, in a graph of these sizes, goes on from the state in memory, at the same example.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from towers import run_state
from towers.callbacks.base import RunContext
from towers.callbacks.every import Every
from towers.graph import TrainGraph
from towers.layout import batch_sizes
from towers.run_state import RunState
from towers.session import tower_speeds

# Steps of a session before the first interval; in the first one kernels are made.
_FIRST = 2

# By what factor a step is to become shorter, as a new graph costs seconds.  Smaller
# differences of towers may be others in the next run.
_GAIN = 1.1


class NewBatchSizesError(Exception):
    """The last step has ended with these batch sizes; the message says why.

    Attributes:
      sizes: of the steps from now on, per round of accumulation.
      state: after that step.
    """

    def __init__(self, text: str, sizes: tuple[int, ...], state: RunState):
        super().__init__(text)
        self.sizes = sizes
        self.state = state


def better_sizes(
    sizes: Sequence[int], intervals: Any, *, multiple: int = 1
) -> tuple[int, ...] | None:
    """Batch sizes with which the steps of every interval would have been shorter.

    A tower's time is taken as in proportion to its examples.

    Args:
      sizes: the examples of each tower now.
      intervals: array-like [intervals, towers], the mean times.
      multiple: every size is a multiple of it, as with micro-batches.

    Returns:
      the sizes, of the same sum; None if there are no better ones.
    """
    each = np.array(intervals) / sizes  # [intervals, towers], for one example
    if each.min() <= 0:  # somebody has set the clock
        return None
    # Who is slow in one of them only is not slow.
    speeds = tower_speeds.speeds(each.min(0).tolist())
    wanted = batch_sizes.divide(sum(sizes), speeds, multiple=multiple)
    now, then = (each * sizes).max(1), (each * wanted).max(1)
    return wanted if all(then * _GAIN < now) else None


class Rebalance(Every):
    """Ends the session when the towers' times ask for other batch sizes.

    Args:
      train: the graph, which times its towers.
      steps: of an interval.
      begin: the global step from which the session goes on.
      last_step: the global step at which the run ends.
    """

    def __init__(self, train: TrainGraph, *, steps: int, begin: int, last_step: int):
        super().__init__(train)
        self._train = train
        self._interval = steps
        self._due = begin + _FIRST
        self._last_step = last_step
        self._summed: np.ndarray | None = None  # seconds [towers] at the last due step
        self._intervals: list[np.ndarray] = []

    def next_due(self, step: int) -> int:
        """The end of the interval."""
        return self._due

    def act(self, run_context: RunContext, step: int) -> None:
        """Notes the interval; raises `NewBatchSizesError` if other sizes are better."""
        self._due = step + self._interval
        seconds = run_context.session.run(self._train.tower_seconds)
        before, self._summed = self._summed, seconds
        if before is None:
            return
        interval = (seconds - before) / self._interval
        self._intervals = [*self._intervals[-1:], interval]
        over = run_context.stop_requested or step >= self._last_step
        if over or len(self._intervals) < 2:
            return
        options = self._train.options
        sizes, multiple = options.sizes(len(interval)), options.multiple
        wanted = better_sizes(sizes, self._intervals, multiple=multiple)
        if wanted is None:
            return
        state = run_state.read(self._train, run_context.session)
        if state is None:  # a task is lost, which the next step shows
            return
        new, old = (", ".join(map(str, batches)) for batches in (wanted, sizes))
        took = ", ".join(f"{1e3 * s:.1f}" for s in interval)
        words = f"Batch sizes from step {step} on: {new}, as {old} took {took} ms"
        raise NewBatchSizesError(words, wanted, state)
