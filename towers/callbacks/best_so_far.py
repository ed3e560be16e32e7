"""The base of callbacks that act after evaluations, by a metric's best value."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from flags.field import did_you_mean
from towers.callbacks.base import NEVER, Callback, RunContext, TrainingRun
from towers.checkpoints.contents import CALLBACKS
from towers.layout import graph_names

v1 = tf.compat.v1

_SIGNS = {"min": 1.0, "max": -1.0}


class Standing(NamedTuple):
    """The results of the evaluations so far.

    Attributes:
      best: the best value of the metric.
      since: number of evaluations since then.
      step: the global step of the last evaluation counted.
      paused: number of the next evaluations that do not count.
    """

    best: float
    since: float
    step: float
    paused: float


class BestSoFar(Callback):
    """Compares a metric with its best value so far, after each evaluation.

    A subclass has `compare`.  The state, a `Standing`, is saved in checkpoints.

    Args:
      owner: name of the callback, for messages and in checkpoints.
      metric: name of a metric of the evaluations, as `loss`.
      best: `min` or `max`, whichever is better.
      min_change: a value counts as better only if it differs by more than this.

    Raises:
      ValueError: `best` is neither.

    Attributes:
      metric: its name.
      log: prints a line, as soon as the callback is set up.
    """

    def __init__(self, owner: str, metric: str, best: str, min_change: float = 0.0):
        if best not in _SIGNS:
            raise ValueError(f"{owner}: best is {best!r}, and must be 'min' or 'max'")
        self.metric = metric
        self._owner = owner
        self._sign = _SIGNS[best]
        self._min_change = min_change

    def set_up(self, run: TrainingRun) -> None:
        """Adds its state to the graph.

        Raises:
          ValueError: the run does not evaluate while it trains.
        """
        if not run.evaluates:
            raise ValueError(
                f"{self._owner} needs evaluations: set "
                "eval_during_training_every_n_epochs, or another setting of evaluation "
                "during training"
            )
        nothing = Standing(self._sign * math.inf, 0, -1, 0)
        with v1.name_scope(graph_names.VARIABLES):
            variable = v1.Variable(  # a second one of a name gets a number
                np.array(nothing, np.float64),
                trainable=False,
                use_resource=True,
                name=f"{CALLBACKS}{self._owner}/{self.metric}",
            )
            self._value = variable.read_value()
            self._given = v1.placeholder(tf.float64, [len(nothing)])
            self._assign = variable.assign(self._given, read_value=False)
        self.log = run.log

    def next_due(self, step: int) -> int:
        """Never: it acts only after evaluations."""
        return NEVER

    def after_evaluation(
        self, run_context: RunContext, step: int, metrics: Mapping[str, float]
    ) -> None:
        """Calls `compare`."""
        standing = Standing(*run_context.session.run(self._value).tolist())
        self.compare(run_context, step, standing, self.value(metrics))

    def compare(
        self, run_context: RunContext, step: int, standing: Standing, value: float
    ) -> None:
        """What the callback does after an evaluation.

        Args:
          run_context: has the session.
          step: the global step that was evaluated.
          standing: the state before it.
          value: of the metric.
        """
        raise NotImplementedError

    def write(self, session: v1.Session, standing: Standing) -> None:
        """Replaces the state."""
        session.run(self._assign, {self._given: standing})

    def value(self, metrics: Mapping[str, float]) -> float:
        """The metric's value in an evaluation.

        Raises:
          ValueError: the evaluation has no metric of that name.
        """
        if self.metric not in metrics:
            every = f"there are {', '.join(metrics)}"
            hint = did_you_mean(self.metric, metrics) or every
            raise ValueError(
                f"{self._owner}: no metric is called {self.metric!r}; {hint}"
            )
        return float(metrics[self.metric])

    def is_better(self, value: float, best: float) -> bool:
        """Whether a value is better than another by more than `min_change`."""
        return self._sign * (best - value) > self._min_change
