"""A whole run, from its plan: builds the graph, then trains in a session."""

import contextlib
import dataclasses
import functools
import math
import signal
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import tensorflow as tf

from towers import run_state
from towers.callbacks import user_callbacks
from towers.callbacks.base import Callback, RunContext, TrainingError
from towers.callbacks.every import Due, is_due
from towers.callbacks.stop_on_nan import NanLossError
from towers.callbacks.user_callbacks import CallbackError
from towers.checkpoints import checkpoint, run_status
from towers.cluster.sessions import Local, Sessions, session_config
from towers.errors import crash
from towers.errors.lock import Lock
from towers.evaluation import evaluator
from towers.membership import Membership
from towers.planning import Plan
from towers.prepared import Prepared, prepare
from towers.rebalance import NewBatchSizesError, Rebalance
from towers.run_state import RunState
from towers.session import diagnose, loop, mean_check, tower_speeds
from towers.session.make_hooks import Attempt, make_hooks
from towers.session.progress import Console, Progress
from towers.session.stop import StopOnSignal

v1 = tf.compat.v1


class RunResult(NamedTuple):
    """The result of a run.

    Attributes:
      step: the global step after the last step.
      metrics: name -> mean of the loss and the metrics in the last evaluation; {} if
        there was none.
      examples_per_second: of all towers; NaN if no step was timed.
    """

    step: int
    metrics: dict[str, float]
    examples_per_second: float


def train(
    plan: Plan,
    console: Console,
    sessions: Sessions = Local(),  # noqa: B008 - it holds nothing
    *,
    lock: Lock | None = None,
    ended: Callable[[RunResult], object] = bool,
) -> int:
    """Trains, saves, evaluates, reports.

    Args:
      plan: of the run.
      console: takes lines for the user.
      sessions: opens sessions.
      lock: of `train_dir`; it is locked again if another folder takes its place.
      ended: is called with the result.

    Returns:
      the exit status: 0, or that of the signal that ended the run early.

    Raises:
      ValueError: model and data, or model and checkpoint, do not fit, or the mode does
        not take the mean of gradients.
      TrainingError, output_paths.OutputError: the run had to stop.
      Interrupted: a signal ended it before the first step, or while it waited, or it
        could not save.
    """
    with StopOnSignal() as stop, console.during(stop.reader_left):
        with stop.at_once():
            plan = tower_speeds.settled(plan, console, sessions, stop)
            run = crash.during("building the graph")(
                lambda: prepare(plan, console, lock)
            )
            training = _Training(run, sessions, stop, ended, lock=lock)
        flags = plan.config
        resumes = bool(
            flags.output.train_dir
            or (plan.options.elastic and flags.cluster.memory_copy_steps)
        )
        return sessions.keep(training.attempt, stop, resumes=resumes)


class _Training:
    """Trains a prepared run in a session, and in another if tasks are lost.

    So it does when the batch sizes change.
    """

    def __init__(
        self,
        run: Prepared,
        sessions: Sessions,
        stop: StopOnSignal,
        ended: Callable[[RunResult], object],
        *,
        lock: Lock | None,
    ):
        self._run = run
        self._sessions = sessions
        self._membership = Membership(run.plan, sessions, run.console)
        self._state: RunState | None = None  # from which the next session goes on
        self._stop = stop
        self._ended = ended
        self._lock = lock
        self._due = Due()

    def attempt(self) -> int:
        """Initializes, trains and finishes; may be called again after a failure."""
        begun = time.monotonic()
        if plan := self._membership.plan(self._run.plan):
            self._run = prepare(plan, self._run.console, self._lock, again=True)
        self._run.console("Initializing graph")
        try:
            while True:
                try:
                    return self._train()
                except NewBatchSizesError as change:
                    self._take_sizes(change)
        except (NanLossError, checkpoint.NotFiniteError) as error:
            diagnosis = diagnose.diagnose_failure(
                self._run,
                self._sessions,
                last_step=error.step,
                seconds=time.monotonic() - begun,
                stop=self._stop,
            )
            parts = list(error.args)
            if diagnosis.of_data:  # which no other learning rate would mend
                parts = [part for part in parts if part != getattr(error, "advice", "")]
            error.args = ("; ".join([diagnosis.sentence, *parts]),)
            raise

    def _take_sizes(self, change: NewBatchSizesError) -> None:
        """Makes the graph of other batch sizes for the next session."""
        console, plan = self._run.console, self._run.plan
        console(str(change))
        options = dataclasses.replace(plan.options, tower_batch_sizes=change.sizes)
        plan = dataclasses.replace(plan, options=options)
        self._run = prepare(plan, console, self._lock, again=True)
        self._state = change.state

    def _train(self) -> int:
        run, goes_on = self._run, self._state is not None
        config = session_config(run.plan.placement, run.plan.config.devices)
        # The iterators of a graph for other batch sizes have other shapes.
        config.isolate_session_state = run.plan.options.times_towers
        if run.plan.config.variables.check_mean:
            mean_check.check(
                run.plan.options, run.plan.placement, config, self._sessions
            )
        with self._sessions.open(run.built.graph, config) as session:
            crash.during("initializing variables and data")(
                lambda: loop.start(run.built, session, self._restore),
            )
            # Not before: a session that is lost while values are loaded has some of
            # them, and initial values for the others.
            with self._membership.carried(run.built, session):
                return self._train_in(session, goes_on=goes_on)

    def _train_in(self, session: v1.Session, *, goes_on: bool) -> int:
        """Trains in a session whose variables have their values.

        Args:
          session: on the run's graph.
          goes_on: whether the run has changed its batch sizes.
        """
        run, stop = self._run, self._stop
        counters = run.built.global_step, run.built.position
        begin, position = map(int, session.run(counters))
        self._due = evaluator.steps(run.plan, begin, position)
        self._membership.begin_at(run, session, begin)
        last_step = _last_step(run, session, begin)
        progress = Progress.of(run.plan, run.built, run.console, run.log)
        progress.begin_at(begin, last_step)

        def evaluate(context: RunContext, step: int) -> float:
            with progress.paused():
                return self._evaluate(context, step)

        around = make_hooks(Attempt(run, begin, last_step, evaluate, self._due))
        kept = user_callbacks.saved_on_failure(run.checkpoints, run.built, session)
        with _under_way(run), kept, run.built.graph.as_default():
            for callback in run.callbacks:
                callback.start(session)
            over = not goes_on and self._was_over(session, begin, evaluate)
            until = begin if over else last_step
            if begin < until:  # a note on how an earlier run ended is out of date
                run_status.clear(run.plan.config.output.train_dir)
            around = [progress, *around, stop, *self._membership.hooks(run)]
            around += _rebalancing(run, begin, until)
            owed = functools.partial(loop.owed_steps, run.built, session)
            step = self._steps(session, around, until, None if over else owed)
            last_step = max(last_step, step + owed())
            return self._end(session, step, last_step, progress)

    def _restore(self, session: v1.Session) -> None:
        path = self._run.checkpoints and self._run.checkpoints.restore(session)
        state, self._state = self._state, None
        if state:
            run_state.load(self._run.built, session, state)
            return
        if self._membership.load(self._run.built, session):
            return
        if path:
            self._run.console(f"Resuming from {path}")
        elif self._run.warm_start:
            self._run.warm_start.load(session, self._run.console)

    def _was_over(
        self,
        session: v1.Session,
        begin: int,
        evaluate: Callable[[RunContext, int], float],
    ) -> bool:
        """Whether a resumed run has no step left to take.

        A step's evaluation comes after its checkpoint.  So the run may have ended
        before the evaluation of the restored step, which may reach the target accuracy.
        """
        run = self._run
        if not self._is_due(begin):
            return False
        assert run.evaluator is not None
        context = v1.train.SessionRunContext(None, session)
        if begin != run.evaluator.step:
            evaluate(context, begin)
        stopped = context.stop_requested or self._stop.received is not None
        return stopped or self._is_accurate_enough()

    def _is_due(self, step: int) -> bool:
        """Whether there is an evaluation after this step, while training."""
        return is_due(step, **self._due._asdict())

    def _is_accurate_enough(self) -> bool:
        goal = self._run.plan.config.evaluation.stop_at_top_1_accuracy
        if goal is None:
            return False
        assert self._run.evaluator is not None
        return self._run.evaluator.accuracy >= goal

    def _steps(
        self,
        session: v1.Session,
        around: list,
        last_step: int,
        more: Callable[[], int] | None,
    ) -> int:
        run, flags = self._run, self._run.plan.config
        try:
            doing = "training; if memory ran out, lower the batch size"
            with run.checkpoints or contextlib.nullcontext():
                return crash.during(doing)(
                    lambda: loop.run(
                        run.built,
                        session,
                        around,
                        last_step=last_step,
                        steps_per_loop=flags.training.steps_per_loop,
                        more=more,
                    ),
                )
        except TrainingError as error:
            error.args = (*error.args, checkpoint.left(flags.output.train_dir))
            raise
        finally:
            run.console.close()

    def _end(
        self, session: v1.Session, step: int, last_step: int, progress: Progress
    ) -> int:
        """Saves, evaluates and reports after the last step; the exit status."""
        run, stop = self._run, self._stop
        directory = run.plan.config.output.train_dir
        saved = run.checkpoints and run.checkpoints.save(session, step)
        # Without a signal, what ends it early is the accuracy or a callback.
        enough = stop.received is None or self._is_accurate_enough()
        if step < last_step and enough:
            run_status.leave_end(directory, step)
        last = evaluator.at_end(run.plan) or self._is_due(step)
        missing = bool(run.evaluator and last and step != run.evaluator.step)
        if run.evaluator and missing and stop.received is None:
            self._evaluate(v1.train.SessionRunContext(None, session), step)
            missing = step != run.evaluator.step
        progress.report(self._sessions)
        metrics = run.evaluator.means if run.evaluator else {}
        speed = progress.examples_per_second if len(progress.speed) else math.nan
        self._ended(RunResult(step, metrics, speed))
        complete = (step >= last_step or enough) and not missing
        if stop.received is not None and not complete:
            name = signal.Signals(stop.received).name
            where = (
                f"saved to {saved}; the same command goes on from there"
                if saved
                else "not saved: there is no `train_dir` to go on from"
            )
            run.console(f"Stopped by {name} after step {step}, {where}.")
            return stop.status
        if saved:
            summaries = ", summaries too" if run.summary is not None else ""
            run.console(f"Checkpoints are in {directory}{summaries}.")
        return 0

    def _evaluate(self, context: RunContext, step: int) -> float:
        evaluator = self._run.evaluator
        assert evaluator is not None
        if evaluator(context.session, step, lambda: self._stop.received):
            for callback in self._run.callbacks:
                callback.after_evaluation(context, step, evaluator.means)
        return evaluator.accuracy


@contextlib.contextmanager
def _under_way(run: Prepared) -> Iterator[None]:
    """Turns ValueErrors into `TrainingError`: in this block the run has begun."""
    try:
        yield
    except CallbackError as error:
        run_status.leave(run.plan.config.output.train_dir, str(error))
        raise
    except ValueError as error:
        raise TrainingError.of(error) from error


def _rebalancing(run: Prepared, begin: int, last_step: int) -> list[Callback]:
    """What changes batch sizes; last, as it may end the session."""
    steps = run.plan.config.variables.rebalance
    every = {"steps": steps, "begin": begin, "last_step": last_step}
    return [Rebalance(run.built, **every)] if steps else []


def _last_step(run: Prepared, session: v1.Session, begin: int) -> int:
    if run.plan.num_batches is not None:
        return run.plan.num_steps
    return begin + loop.steps_left(run.built, session)
