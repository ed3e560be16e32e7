"""The base of callbacks that act at intervals of steps or seconds."""

import math
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from towers.callbacks.base import (
    NEVER,
    Callback,
    RunArgs,
    RunContext,
    RunValues,
    TrainingRun,
)
from towers.graph import TrainGraph

v1 = tf.compat.v1

_ROUNDING = 1e-6  # of a step, more than the rounding errors of floats


class Due(NamedTuple):
    """The steps after which something is due; as `next_time` takes them.

    Attributes:
      steps: interval, or 0; it need not be a whole number, as epochs need not be.
      at: single steps.
      since: the step from which intervals are counted.
    """

    steps: float = 0.0
    at: Sequence[int] = ()
    since: float = 0.0


def next_time(step: int, *, steps: float, at: Sequence[int], since: float = 0.0) -> int:
    """The first due step after `step`: `since` and a multiple of `steps`, or one of
    `at`."""
    due = [s for s in at if s > step]
    if steps:
        times = math.floor((step - since + _ROUNDING) / steps) + 1
        due.append(math.ceil(since + times * steps - _ROUNDING))
    return min(due, default=NEVER)


def is_due(step: int, *, steps: float, at: Sequence[int], since: float = 0.0) -> bool:
    """Whether a step was due; the arguments are those of `next_time`."""
    before = step - 1
    return step > 0 and next_time(before, steps=steps, at=at, since=since) == step


class Every(Callback):
    """Base class of callbacks that act at intervals of steps or seconds.

    Args:
      train: the graph.
      steps: interval in steps, 0 for none; fractions are rounded up to whole steps.
      at: further single steps.
      since: the step from which intervals are counted.
      seconds: interval in seconds, 0 for none; checked after each step.
    """

    def __init__(
        self,
        train: TrainGraph,
        *,
        steps: float = 0,
        at: Sequence[int] = (),
        since: float = 0.0,
        seconds: float = 0.0,
    ):
        self._fetches = train.step
        self._steps = steps
        self._at = at
        self._since = since
        self._seconds = seconds
        self._last_time = time.monotonic()

    def next_due(self, step: int) -> int:
        """The next step to act after."""
        if self._seconds and time.monotonic() >= self._last_time + self._seconds:
            return step + 1
        return next_time(step, steps=self._steps, at=self._at, since=self._since)

    def before_run(self, run_context: RunContext) -> RunArgs | None:
        """Asks for the global step."""
        return v1.train.SessionRunArgs(self._fetches)

    def after_run(self, run_context: RunContext, run_values: RunValues) -> None:
        """Acts if this step is due."""
        step = int(run_values.results)
        if self.next_due(step - 1) == step:
            self._last_time = time.monotonic()
            self.act(run_context, step)

    def act(self, run_context: RunContext, step: int) -> None:
        """Called after each due step."""
        raise NotImplementedError


class Recorder(Callback):
    """Base class of callbacks that fetch values only every `every` steps.

    Args:
      every: interval in steps.

    Attributes:
      wanted: name -> tensor to fetch; filled by `set_up`.
      step: the current global step.
    """

    def __init__(self, every: int):
        if every < 1:
            raise ValueError(
                f"{type(self).__name__}: every is {every}, and must be at least 1"
            )
        self._every = every
        self.wanted: dict[str, tf.Tensor] = {}
        self.step = 0

    def set_up(self, run: TrainingRun) -> None:
        """Keeps the tensor of the global step."""
        self._global_step, self._after = run.train.global_step, run.train.step

    def after_create_session(self, session: v1.Session, coord: object) -> None:
        """Reads the first global step."""
        self.step = int(session.run(self._global_step))

    def next_due(self, step: int) -> int:
        """The next multiple of the interval."""
        return next_time(step, steps=self._every, at=())

    def before_run(self, run_context: RunContext) -> RunArgs | None:
        """Asks for the values if the step is due."""
        due = self.next_due(self.step) == self.step + 1
        values = self.wanted if due else {}
        return v1.train.SessionRunArgs((self._after, values))

    def after_run(self, run_context: RunContext, run_values: RunValues) -> None:
        """Records the values, if they were asked for."""
        step, values = run_values.results
        self.step = int(step)
        if values:
            self.record(self.step, values)

    def after_steps(self, step: int, losses: np.ndarray, seconds: float) -> None:
        """Updates the global step."""
        self.step = step

    def record(self, step: int, values: Mapping[str, np.ndarray]) -> None:
        """Called after each due step with its values."""
        raise NotImplementedError
