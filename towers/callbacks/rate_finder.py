"""The learning-rate range test: the loss at growing learning rates."""

import os
import tempfile
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from models import pictures
from towers.callbacks.base import NEVER, Callback, TrainingRun
from towers.callbacks.line_chart import line_chart
from towers.callbacks.rate_adjustment import RateAdjustment
from towers.layout import graph_names

v1 = tf.compat.v1

_SMOOTHING = 0.9  # weight of the previous smoothed loss
_DIVERGED = 4.0  # the test ends at this multiple of the lowest smoothed loss


class RateFinder(Callback):
    """Finds a learning rate before the first step (Smith 2017, arXiv:1506.01186).

    It trains at rates that grow from `lowest` to `highest`, each step by the same
    factor, until the loss exceeds 4 times the lowest one.  Then it draws the smoothed
    losses, reports at which rate they fall fastest, and restores all variables: the
    training begins as if without a test, at the schedule's rate.  A run that continues
    from a checkpoint has no test.

    Args:
      path: of the picture, an SVG file, or a PNG file if it ends in `.png`, which needs
        matplotlib; `rates.svg` in the run's `train_dir` by default, or in the current
        folder.
      lowest: rate of the first step.
      highest: rate of the last step.
      steps: number of steps, at most that of the training.

    Attributes:
      rates: the rate of each step taken.
      losses: the smoothed loss of each step taken.
      suggestion: the rate at which the loss falls fastest; None if it never falls.

    Raises:
      ValueError: not 0 < lowest < highest, `steps` is below 3, or there is no
        matplotlib for a PNG file.
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
        self._chart: Callable[..., str | bytes] = line_chart
        if path and path.endswith(".png"):
            if not pictures.has_matplotlib():
                raise ValueError(
                    f"RateFinder: {path} needs matplotlib (the extra `plot`); "
                    "install it, or write a path that ends in .svg"
                )
            self._chart = pictures.line_chart_png
        self._path = path
        self._range, self._steps = (lowest, highest), steps
        self.rates: list[float] = []
        self.losses: list[float] = []
        self.suggestion: float | None = None

    def set_up(self, run: TrainingRun) -> None:
        """Adds a saver to the graph.

        Raises:
          ValueError: several clients train together (between-graph replication).
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
        """Never: the test ends before the first step."""
        return NEVER

    def after_create_session(self, session: v1.Session, coord: object) -> None:
        """Runs the test and restores the variables."""
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
        if limit is not None:  # examples from there on have weight 0
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
        chart = self._chart(
            self.rates,
            self.losses,
            title="Loss while the learning rate grows",
            labels=("learning rate", "loss, smoothed"),
            mark=self.suggestion,
        )
        self._run.side.write("pictures of learning rates", path, chart)


def _steepest(rates: Sequence[float], losses: Sequence[float]) -> float | None:
    """The rate at which log(loss) falls fastest; None if it never falls.

    Ignores the first losses, smoothed over few steps, and the last, which rise.
    """
    end = int(np.argmin(losses)) + 1
    begin = min(len(losses) // 10, end - 1)
    if end - begin < 3:
        return None
    slopes = np.gradient(losses[begin:end])
    return rates[begin + int(np.argmin(slopes))] if slopes.min() < 0 else None
