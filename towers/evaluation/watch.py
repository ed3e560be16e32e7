"""Evaluates the checkpoints of a folder, once or as they appear."""

import contextlib
import signal
import time
from collections.abc import Callable

import tensorflow as tf

from flags.problem import wrong_setting
from towers.callbacks.base import TrainingError
from towers.checkpoints import checkpoint, run_status
from towers.cluster.sessions import Local, Sessions, session_config
from towers.errors import lock
from towers.errors.interrupts import Interrupted
from towers.evaluation import evaluator
from towers.evaluation.saved_variables import SavedVariables
from towers.planning import Plan
from towers.session import report
from towers.session.progress import Console
from towers.session.stop import StopOnSignal

v1 = tf.compat.v1

# Seconds without a run in a folder after which the evaluator stops waiting for one.
DESERTED_SECONDS = 30.0


def evaluate_checkpoints(
    plan: Plan,
    console: Console,
    sessions: Sessions = Local(),  # noqa: B008 - it holds nothing
    *,
    absent: Callable[[], str] | None = None,
) -> int:
    """Evaluates the newest checkpoint of `--train_dir`, and later ones as they come.

    With `--eval_interval_secs` it continues until the checkpoint of the run's end was
    evaluated, a signal comes, or the training fails.

    Args:
      plan: of the run.
      console: takes lines for the user.
      sessions: opens sessions.
      absent: returns why there will be no more checkpoints, or ""; None if that is to
        be seen in `--train_dir` only.

    Returns:
      the exit status: 0, or that of the signal that ended it early.

    Raises:
      ValueError: there is no checkpoint, or it is of another model.
      TrainingError: the training failed, or does not run any more.
      Interrupted: a signal came before the graph was built.
    """
    directory = plan.config.output.train_dir
    assert directory is not None  # flags say so
    lookout = run_status.Lookout(directory)
    interval = plan.config.evaluation.eval_interval_secs
    if checkpoint.latest(directory) is None and not interval:
        raise wrong_setting(
            "eval", True, f"there is no checkpoint in `train_dir={directory}`"
        )
    if plan.placement.notice:
        console(plan.placement.notice)

    with StopOnSignal() as stop, console.during(stop.reader_left):
        with stop.at_once():
            evaluator = _Evaluator(plan, console)

        def lost() -> str:
            return lookout() or (absent() if absent else "")

        def attempt() -> int:
            with sessions.open(evaluator.graph, evaluator.config) as session:
                while stop.received is None:
                    # Before looking, so that no checkpoint before a failure is missed.
                    reason = interval and lost()
                    if evaluator.look(session, lambda: stop.received):
                        return 0
                    if not interval:
                        break
                    if reason:
                        raise TrainingError(f"no more checkpoints will come: {reason}")
                    _wait(interval, lambda: stop.received or lost())
            return 0 if evaluator.step >= 0 and not interval else stop.status

        # A signal also ends the waiting for lost tasks.
        with contextlib.suppress(Interrupted):
            if sessions.keep(attempt, stop, resumes=True) == 0:
                return 0
        assert stop.received is not None
        done = f"step {evaluator.step}" if evaluator.step >= 0 else "nothing"
        console(
            f"Stopped by {signal.Signals(stop.received).name}: {done} was evaluated "
            "last; the same command begins with the newest checkpoint."
        )
        return stop.status


class Desertion:
    """Each call returns why there will be no run in a folder again, or "".

    A run that was killed leaves no note, but its lock is free.  It may be started
    again, so this waits for a while.  If there is no checkpoint and there was no run
    yet, training may not have begun.

    Args:
      directory: of the run.
      seconds: to wait for a run.
      console: takes a line when half of the time is over.
    """

    def __init__(
        self, directory: str, *, seconds: float, console: Callable[[str], None]
    ):
        self._directory = directory
        self._seconds = seconds
        self._console = console
        self._met = self._named = False
        self._free_since: float | None = None  # time of the first call with a free lock

    def __call__(self) -> str:
        """Why there will be no run; "" while there may be one."""
        if lock.is_held(self._directory):
            self._met, self._named, self._free_since = True, False, None
            return ""
        if not self._met and checkpoint.latest(self._directory) is None:
            return ""
        now = time.monotonic()
        if self._free_since is None:
            self._free_since = now
            return ""
        left = self._seconds - (now - self._free_since)
        where = f"nobody trains in {self._directory}, whose lock is free"
        if left <= 0:
            return f"{where}; start the training again, and then this"
        if left <= self._seconds / 2 and not self._named:
            self._named = True
            self._console(f"N{where[1:]}: waiting {left:.0f} s for a run to go on.")
        return ""


class _Evaluator:
    """Evaluates each checkpoint of a directory once.

    Args:
      plan: of the run.
      console: takes lines for the user.

    Attributes:
      graph, config: of the sessions that it needs.
    """

    def __init__(self, plan: Plan, console: Console):
        self._plan = plan
        assert plan.eval_source is not None  # of the program that evaluates
        assert plan.config.output.train_dir is not None
        self._directory = plan.config.output.train_dir
        # The files of evaluated checkpoints, and of those that could not be read, which
        # may be incomplete yet or be written again.
        self._done: set[tuple] = set()
        self.config = session_config(plan.placement, plan.config.devices)
        with tf.Graph().as_default() as self.graph:
            self._variables = SavedVariables(plan)
            towers = evaluator.attach_to(plan, self._variables.mode)
            self._variables.made(console)
        log = report.BenchmarkLog(plan.config.output.benchmark_log_dir, console.side)
        self._evaluate = evaluator.Evaluator(plan, towers, console, log)

    @property
    def step(self) -> int:
        """The global step that was evaluated last; -1 before."""
        return self._evaluate.step

    def look(self, session: v1.Session, stopped: Callable[[], object]) -> bool:
        """Evaluates the newest checkpoint; returns whether it is the run's last."""
        newest = checkpoint.latest(self._directory)
        if not newest or (files := checkpoint.files(newest)) in self._done:
            return self._ended()  # training writes its end after the last checkpoint
        try:
            return self._evaluate_newest(session, files, stopped)
        except ValueError as error:  # of the first checkpoint a refusal, else a failure
            if self.step < 0:
                raise
            raise TrainingError.of(error) from error

    def _evaluate_newest(
        self, session: v1.Session, files: tuple, stopped: Callable[[], object]
    ) -> bool:
        """`look`, if the newest checkpoint has new files."""
        # It may load another: a later one, or the one before a damaged one.
        loaded = self._variables.restore(session)
        if not loaded or (loaded_files := checkpoint.files(loaded)) in self._done:
            self._done.add(files)
            return False
        counted = session.run(self._variables.counters)
        if self._evaluate(session, int(counted["global_step"]), stopped) is None:
            return False
        self._done |= {files, loaded_files}
        return self._ended() or _is_the_end(self._plan, **counted)

    def _ended(self) -> bool:
        """Whether the run ended early, with the checkpoint that was evaluated last."""
        return self._evaluate.step >= run_status.end(self._directory)


def _is_the_end(plan: Plan, *, global_step: int, position: int) -> bool:
    """Whether the planned run, on any number of towers, ends at this step."""
    if plan.num_batches is not None:
        return global_step >= plan.num_steps
    assert plan.options.limit is not None  # then it ends the run
    return position >= plan.options.limit


def _wait(seconds: float, over: Callable[[], object]) -> None:
    until = time.monotonic() + seconds
    while not over() and time.monotonic() < until:
        time.sleep(max(0.0, min(0.5, until - time.monotonic())))
