"""Finds the first gradient that was not finite, by replaying a failed run.

A run checks only the loss of each step, which takes no time.  When a loss is not
finite, the graph is built again, with a check of every tower's loss and gradients, and
takes the steps from the last checkpoint, or from the start, again, at the learning
rates of the run.  Runs repeat bit for bit, so the same step fails; a gradient may have
failed some steps before the loss.
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from towers import graph
from towers.callbacks.base import TrainingRun
from towers.callbacks.rate_adjustment import RateAdjustment
from towers.checkpoints import checkpoint, warm_start
from towers.cluster.sessions import Sessions, Stop, session_config
from towers.compute import sufficient_factors
from towers.compute.tower import Tower
from towers.data import inputs
from towers.data.examples import leaves
from towers.data.source import Batch
from towers.errors.explain import cause
from towers.planning import Plan
from towers.session import loop
from towers.session.make_hooks import RunParts
from towers.session.progress import Console

v1 = tf.compat.v1

_LEAST_SECONDS, _MOST_SECONDS = 10.0, 300.0  # of looking
_PROGRESS_SECONDS = 5.0
_NAMES = 3  # at most, of variables in a sentence


class Diagnosis(NamedTuple):
    """What a replay shows.

    Attributes:
      sentence: what was not finite, or why that is not known, as its beginning.
      of_data: whether the data are at fault.
    """

    sentence: str
    of_data: bool = False


def diagnose_failure(
    run: RunParts,
    sessions: Sessions,
    *,
    last_step: int,
    seconds: float,
    stop: Stop,
) -> Diagnosis:
    """Takes the steps again until a tower's gradient or loss is not finite.

    Args:
      run: that failed.
      sessions: opens sessions.
      last_step: the step at which the run failed.
      seconds: how long the run took; the search may take as long, within limits.
      stop: set by signals, which end the search, too.

    Returns:
      what was not finite, or why that is not known.
    """
    plan, console = run.plan, run.console
    train = graph.build(**plan.parts)
    if not train.mode.together:
        return Diagnosis(
            "which gradient was the first to fail cannot be told, as the steps of "
            "towers that do not wait for one another do not repeat"
        )
    if plan.placement.clients > 1:
        return Diagnosis(
            "which gradient was the first to fail cannot be told, as this client sees "
            "those of its own towers only"
        )
    with train.graph.as_default():
        fine = [_finite(tower) for tower in train.towers]
        spoilt = [_spoilt(batch) for batch in train.feed.batches]
        restore = _restorer(plan, train, console)
        again = TrainingRun(train, rate_factors=run.rate_factors)
        rate = RateAdjustment(again) if run.rate_factors else None
        config = session_config(plan.placement, plan.config.devices)
        try:
            with sessions.open(train.graph, config) as session:
                loop.start(train, session, restore)
                seconds = min(max(seconds, _LEAST_SECONDS), _MOST_SECONDS)
                search = _Search(
                    train, session, fine, spoilt, rate=rate, console=console
                )
                finding = search(last_step, time.monotonic() + seconds, stop)
                data = _of_data(plan, search)
                return Diagnosis(data + finding, of_data=bool(data))
        except tf.errors.OpError as error:
            return Diagnosis(f"taking the steps again failed ({cause(error)})")


def _finite(tower: Tower) -> tf.Tensor:
    """Bool [1 + variables]: whether the tower's loss and each gradient are finite."""
    finite = []
    for value in (tower.loss, *tower.gradients):
        value = sufficient_factors.dense(getattr(value, "values", value))
        if value is None:
            finite.append(tf.constant(True))
            continue
        with tf.device(value.device):
            finite.append(tf.reduce_all(tf.math.is_finite(value)))
    with tf.device(tower.device):
        return tf.stack(finite)


def _spoilt(batch: Batch) -> dict[str, tf.Tensor]:
    """Name of a feature or label -> the index in the stream of the first example where
    it is not finite, int64 scalar, or -1."""
    rows = {}
    for name, value in leaves((batch.features, batch.labels)):
        if value.dtype.is_floating:
            with tf.device(value.device):
                finite = tf.math.is_finite(tf.reshape(value, [value.shape[0], -1]))
                fine = tf.reduce_all(finite, axis=1)
                row = batch.first + tf.argmin(tf.cast(fine, tf.int32))
                rows[name] = tf.where(
                    tf.reduce_all(fine), tf.constant(-1, tf.int64), row
                )
    return rows


def _of_data(plan: Plan, search: "_Search") -> str:
    """The beginning of a sentence on examples that are not finite, or ""."""
    for rows in search.spoilt:
        for name, index in rows.items():
            if index >= 0:
                example = inputs.example_at(plan.source, int(index))
                return (
                    f"{name} of {example} is not finite in the data, so replace what "
                    "is missing or leave the example out; "
                )
    return ""


def _restorer(
    plan: Plan, train: graph.TrainGraph, console: Console
) -> Callable[[v1.Session], object]:
    """A function that gives the variables the values with which the run began."""
    given, variables = plan.config.training.init_checkpoint, train.mode.whole_variables
    start = warm_start.of(given, variables, train.averages)
    directory, checkpoints = plan.config.output.train_dir, None
    if directory:
        with tf.device(plan.placement.master):
            saved = train.saved | train.constants
            checkpoints = checkpoint.Checkpoints(directory, saved, log=console)

    def restore(session: v1.Session) -> None:
        path = checkpoints and checkpoints.restore(session)
        if start and not path:
            start.load(session, console)

    return restore


class _Search:
    """Takes steps until one is not finite.

    Args:
      train: the graph.
      session: on it, started.
      fine: of each tower, as `_finite` has it.
      spoilt: of each batch, as `_spoilt` has it.
      rate: sets the learning rates of the run; None if no callback changed them.
      console: takes lines for the user.
    """

    def __init__(
        self,
        train: graph.TrainGraph,
        session: v1.Session,
        fine: Sequence[tf.Tensor],
        spoilt: Sequence[dict[str, tf.Tensor]],
        *,
        rate: RateAdjustment | None,
        console: Console,
    ):
        self._session, self._rate = session, rate
        self._names = train.template.trainable
        # With a dynamic loss scale, steps whose gradients are not finite are skipped.
        self._skips = train.skipped is not None
        self._first = int(session.run(train.global_step))
        self._run = session.make_callable([train.step, fine, spoilt])
        self._console = console
        self.spoilt: Sequence[dict[str, np.ndarray]] = ()  # of the last step

    def __call__(self, last_step: int, deadline: float, stop: Stop) -> str:
        step, due = self._first, time.monotonic() + _PROGRESS_SECONDS
        self._console(
            f"Taking the steps from {step + 1} to {last_step} again, to find the first "
            "gradient that is not finite"
        )
        while step < last_step:
            if self._rate:
                self._rate.repeat(self._session, step)
            step, per_tower, self.spoilt = self._run()
            fine = np.stack(per_tower)
            if not (fine[:, :1] if self._skips else fine).all():
                return _sentence(int(step), fine[:, 0], fine[:, 1:], self._names)
            now = time.monotonic()
            if now >= due:
                due = now + _PROGRESS_SECONDS
                self._console(f"Step {step} of {last_step}: all gradients are finite")
            if stop.received is not None or now >= deadline:
                return (
                    "the first gradient to fail was not found: all are finite from "
                    f"step {self._first + 1} to {step}, where time was up"
                )
        return f"all gradients are finite up to step {step}, when it is taken again"


def _sentence(
    step: int, losses: np.ndarray, gradients: np.ndarray, names: Sequence[str]
) -> str:
    """Describes what was not finite in a step.

    Args:
      step: its number.
      losses: bool [towers], whether each is finite.
      gradients: bool [towers, variables], whether each is finite.
      names: of the variables.
    """
    count = len(losses)
    if gradients.all():
        towers = _towers(np.flatnonzero(~losses), count)
        return f"the loss {towers} is not finite at step {step}, its gradients are"
    failed = np.flatnonzero(~np.all(gradients, axis=1))
    bad = [name for name, fine in zip(names, np.all(gradients, axis=0)) if not fine]
    shown = bad[:_NAMES]
    if bad[_NAMES:]:
        shown.append(f"{len(bad) - _NAMES} others")
    finite = "finite" if losses[failed].all() else "not finite, too"
    return (
        f"the gradient of {_and(shown)} {_towers(failed, count)} is not finite at step "
        f"{step}, and the loss there is {finite}"
    )


def _towers(which: np.ndarray, count: int) -> str:
    if len(which) == count > 1:
        return "in every tower"
    return f"in tower{'s' if len(which) > 1 else ''} {_and(list(map(str, which)))}"


def _and(parts: Sequence[str]) -> str:
    *leading, last = parts
    return f"{', '.join(leading)} and {last}" if leading else last
