"""The learning-rate range test: the loss while the rate grows."""

import os
import tempfile
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from towers.callbacks.base import NEVER, Callback, TrainingRun
from towers.callbacks.line_chart import line_chart
from towers.callbacks.rate_adjustment import RateAdjustment
from towers.layout import graph_names

v1 = tf.compat.v1

_SMOOTHING = 0.9  # what a smoothed loss keeps of the one before
_DIVERGED = 4.0  # times the lowest smoothed loss


class RateFinder(Callback):
    """Finds a learning rate before the first step (Smith 2017, arXiv:1506.01186).

    It takes steps at rates that grow from `lowest` to `highest` by the same factor,
    until the loss is 4 times the lowest one.  Then it draws the smoothed losses, says
    at which rate they fall fastest, and puts everything back: the training begins as if
    there had been no test, at the schedule's rate.  A run that goes on has no test.

    Args:
      path: of the picture, an SVG file; `rates.svg` in the run's `train_dir` by
        default, or in the current folder.
      lowest: rate of the first step.
      highest: rate of the last step.
      steps: how many; no more than the training has.

    Attributes:
      rates: of the steps that were taken.
      losses: smoothed, after each.
      suggestion: the rate at which the loss falls fastest; None where it never falls.

    Raises:
      ValueError: there is no range, or too few steps.
    """

    def __init__(
        self,
        path: str | None = None,
        *,
        lowest: float = 1e-6,
        highest: float = 10.0,
        steps: int = 100,
    ):
        if not 0.0 < lowest < highest:
            raise ValueError(
                f"RateFinder: lowest is {lowest:g} and highest {highest:g}; write two "
                "rates above 0, the lower one first"
            )
        if steps < 3:
            raise ValueError(f"RateFinder: steps is {steps}, and must be at least 3")
        self._path = path
        self._range, self._steps = (lowest, highest), steps
        self.rates: list[float] = []
        self.losses: list[float] = []
        self.suggestion: float | None = None

    def set_up(self, run: TrainingRun) -> None:
        """Adds what saves and restores to the graph.

        Raises:
          ValueError: clients with graphs of their own train together.
        """
        placement = run.train.placement
        if placement.clients > 1:
            raise ValueError(
                "RateFinder cannot take back steps of several clients; leave out "
                "replication=between_graph"
            )
        self._run = run
        self._rate = RateAdjustment(run)
        with tf.device(placement.master), v1.name_scope(graph_names.CHECKPOINT):
            self._saver = v1.train.Saver(run.train.saved)

    def next_due(self, step: int) -> int:
        """It needs to see no step of the training."""
        return NEVER

    def after_create_session(self, session: v1.Session, coord: object) -> None:
        """Takes the steps, and takes them back."""
        train = self._run.train
        if session.run(train.global_step):
            return
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "start")
            options = dict(write_meta_graph=False, write_state=False)
            self._saver.save(session, path, **options)
            self._take_steps(session)
            self._saver.restore(session, path)
        session.run(train.sync)
        session.run(train.feed.initializer)
        self._report()

    def _take_steps(self, session: v1.Session) -> None:
        train, limit = self._run.train, self._run.train.options.limit
        steps = self._steps
        if limit is not None:  # later examples weigh nothing
            steps = min(steps, max(limit // train.examples_per_step, 1))
        take = session.make_callable([train.loss, train.step])
        mean, lowest = 0.0, np.inf
        for rate in np.geomspace(*self._range, steps).tolist():
            self._rate.write(session, 0.0, rate)
            loss, _ = take()
            mean = _SMOOTHING * mean + (1.0 - _SMOOTHING) * float(loss)
            smooth = mean / (1.0 - _SMOOTHING ** (len(self.losses) + 1))
            if not smooth <= _DIVERGED * lowest:
                break
            lowest = min(lowest, smooth)
            self.rates.append(rate)
            self.losses.append(smooth)

    def _report(self) -> None:
        log, path = self._run.log, self._path
        path = path or os.path.join(self._run.train_dir or "", "rates.svg")
        if len(self.rates) < 3:
            log(f"RateFinder: the loss diverges from {self._range[0]:g} on")
            return
        self.suggestion = _steepest(self.rates, self.losses)
        best = self.rates[int(np.argmin(self.losses))]
        finding = "the loss never falls"
        if self.suggestion is not None:
            finding = f"the loss falls fastest at a rate of {self.suggestion:.3g}"
        log(f"RateFinder: {finding}, and is lowest at {best:.3g}; {path} shows it")
        chart = line_chart(
            self.rates,
            self.losses,
            title="Loss while the learning rate grows",
            labels=("learning rate", "loss, smoothed"),
            mark=self.suggestion,
        )
        self._run.side.write("pictures of learning rates", path, chart)


def _steepest(rates: Sequence[float], losses: Sequence[float]) -> float | None:
    """The rate at which the loss falls fastest by its logarithm; None if it never does.

    The first smoothed losses are of few steps, and the last ones rise: neither counts.
    """
    end = int(np.argmin(losses)) + 1
    begin = min(len(losses) // 10, end - 1)
    if end - begin < 3:
        return None
    slopes = np.gradient(losses[begin:end])
    return rates[begin + int(np.argmin(slopes))] if slopes.min() < 0 else None
