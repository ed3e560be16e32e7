"""Reports steps that were skipped because the loss scale was too large."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from towers.callbacks.base import NEVER, Callback, RunArgs, RunContext, RunValues
from towers.graph import TrainGraph

v1 = tf.compat.v1


class ReportSkips(Callback):
    """Prints when steps were skipped because a float16 gradient was not finite.

    Args:
      train: the graph, with `skipped`.
      log: takes lines for the user.
    """

    def __init__(self, train: TrainGraph, log: Callable[[str], None]):
        self._skipped = train.skipped
        assert train.loss_scale is not None
        self._now = (train.skipped, train.loss_scale.value)
        self._after_step = train.skips
        self._log = log
        self._session: v1.Session
        self._known = 0

    def after_create_session(self, session: v1.Session, coord: object) -> None:
        """Reads how many steps were skipped before."""
        self._session = session
        self._known = int(session.run(self._skipped))

    def next_due(self, step: int) -> int:
        """Never: steps inside the graph are checked together."""
        return NEVER

    def before_run(self, run_context: RunContext) -> RunArgs | None:
        """Asks for the count."""
        return v1.train.SessionRunArgs(self._after_step)

    def after_run(self, run_context: RunContext, run_values: RunValues) -> None:
        """Checks the step."""
        self._look(*run_values.results)

    def after_steps(self, step: int, losses: np.ndarray, seconds: float) -> None:
        """Checks the steps together."""
        self._look(*self._session.run(self._now))

    def _look(self, skipped: int, value: float) -> None:
        if skipped > self._known:
            steps = skipped - self._known
            count = "A step was" if steps == 1 else f"{steps} steps were"
            self._log(
                f"{count} skipped: a gradient is not finite in float16; the loss scale "
                f"is now {value:g} ({skipped} skipped in all)"
            )
        self._known = skipped
