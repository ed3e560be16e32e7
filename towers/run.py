"""A run from its plan: training with all that goes on around it."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator

import tensorflow as tf

from towers import run_hooks
from towers.checkpoints import checkpoint, run_status
from towers.cluster.sessions import Local, Sessions, session_config
from towers.compute import flops
from towers.errors import crash
from towers.errors.interrupts import Interrupted
from towers.errors.lock import Lock
from towers.evaluation import evaluator
from towers.planning import Plan
from towers.preparation import Prepared, prepare
from towers.session import diagnose, hooks, loop, mean_check, report
from towers.session.progress import Console, Display, Progress
from towers.session.stop import StopOnSignal

v1 = tf.compat.v1


def train(
    plan: Plan,
    console: Console,
    sessions: Sessions = Local(),  # noqa: B008 - it holds nothing
    *,
    lock: Lock | None = None,
) -> int:
    """Trains, saves, evaluates, reports.

    Args:
      plan: of the run.
      console: takes lines for the user.
      sessions: where sessions come from.
      lock: of `--train_dir`, locked again where another folder takes its place.

    Returns:
      the exit status: 0, or that of the signal that ended the run before its time.

    Raises:
      ValueError: model and data, or model and checkpoint, do not fit, or the mode does
        not take the mean of gradients.
      hooks.TrainingError, folders.OutputError: the run had to stop.
      Interrupted: a signal ended it before the first step, or while it waited.
    """
    with StopOnSignal() as stop, console.during(stop.reader_left):
        with stop.at_once():
            run = crash.during(
                "building the graph", lambda: prepare(plan, console, lock)
            )
            training = _Training(run, sessions, stop)
        resumes = plan.config.output.train_dir
        status = sessions.keep(training.attempt, stop, resumes=resumes)
        if status is None:
            raise Interrupted(stop.received)
        return status


class _Training:
    """A prepared run in sessions: one after another where tasks are lost."""

    def __init__(self, run: Prepared, sessions: Sessions, stop: StopOnSignal):
        self._run = run
        self._sessions = sessions
        self._stop = stop

    def attempt(self) -> int:
        """Initialises, trains and ends; may be called again after a failure."""
        begun = time.monotonic()
        try:
            return self._train()
        except (hooks.NanLossError, checkpoint.NotFiniteError) as error:
            diagnosis = diagnose.diagnose_failure(
                self._run.plan,
                self._sessions,
                self._run.console,
                last_step=error.step,
                seconds=time.monotonic() - begun,
                stop=self._stop,
            )
            error.args = (f"{diagnosis}; {error}",)
            raise

    def _train(self) -> int:
        run, stop = self._run, self._stop
        run.console("Initializing graph")
        config = session_config(run.plan.placement, run.plan.config.devices)
        mean_check.check(run.plan.options, run.plan.placement, config, self._sessions)
        with self._sessions.open(run.built.graph, config) as session:
            crash.during(
                "initializing variables and data",
                lambda: loop.start(run.built, session, self._restore),
            )
            begin = int(session.run(run.built.global_step))
            last_step = _last_step(run, session, begin)
            progress = _progress(run)
            progress.begin_at(begin, last_step)

            def evaluate(session: v1.Session, step: int) -> float:
                with progress.paused():
                    return self._evaluate(session, step)

            around = run_hooks.make_hooks(
                run_hooks.Attempt(run, begin, last_step, evaluate)
            )
            over = self._was_over(session, begin, evaluate)
            until = begin if over else last_step
            if begin < until:  # what says how an earlier run ended is true no longer
                run_status.clear(run.plan.config.output.train_dir)
            with _under_way():
                step = self._steps(session, [progress, *around, stop], until)
                return self._end(session, step, last_step, progress)

    def _restore(self, session: v1.Session) -> None:
        path = self._run.checkpoints and self._run.checkpoints.restore(session)
        if path:
            self._run.console(f"Resuming from {path}")

    def _was_over(
        self,
        session: v1.Session,
        begin: int,
        evaluate: Callable[[v1.Session, int], float],
    ) -> bool:
        """Whether a run that goes on has no step to take.

        Evaluations follow the checkpoint of their step, so that of the restored step
        may have been lost, and with it that the target accuracy was reached.
        """
        run = self._run
        if not self._is_due(begin):
            return False
        if begin != run.evaluator.step:
            evaluate(session, begin)
        return self._is_accurate_enough() or self._stop.received is not None

    def _is_due(self, step: int) -> bool:
        """Whether there is an evaluation after this step, while training."""
        every, at = evaluator.steps(self._run.plan)
        return hooks.is_due(step, steps=every, at=at)

    def _is_accurate_enough(self) -> bool:
        goal = self._run.plan.config.evaluation.stop_at_top_1_accuracy
        return goal is not None and self._run.evaluator.accuracy >= goal

    def _steps(self, session: v1.Session, around: list, last_step: int) -> int:
        run, flags = self._run, self._run.plan.config
        try:
            return crash.during(
                "training; if memory ran out, lower --batch_size",
                lambda: loop.run(
                    run.built,
                    session,
                    around,
                    last_step=last_step,
                    steps_per_loop=flags.training.steps_per_loop,
                ),
            )
        except hooks.TrainingError as error:
            directory = flags.output.train_dir
            kept = directory and checkpoint.latest(directory)
            where = f"the last checkpoint is {kept}" if kept else "nothing was saved"
            error.args = (f"{error}; {where}",)
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
        enough = self._is_accurate_enough()
        if step < last_step and enough:
            run_status.leave_end(directory, step)
        last = evaluator.at_end(run.plan) or self._is_due(step)
        missing = bool(run.evaluator and last and step != run.evaluator.step)
        if missing and stop.received is None:
            self._evaluate(session, step)
            missing = step != run.evaluator.step
        _report_speed(run, self._sessions, progress, step)
        complete = (step >= last_step or enough) and not missing
        if stop.received is not None and not complete:
            name = signal.Signals(stop.received).name
            where = (
                f"saved to {saved}; the same command goes on from there"
                if saved
                else "not saved: there is no --train_dir to go on from"
            )
            run.console(f"Stopped by {name} after step {step}, {where}.")
            return stop.status
        if saved:
            summaries = ", summaries too" if run.summary is not None else ""
            run.console(f"Checkpoints are in {directory}{summaries}.")
        return 0

    def _evaluate(self, session: v1.Session, step: int) -> float:
        evaluator = self._run.evaluator
        evaluator(session, step, lambda: self._stop.received)
        return evaluator.accuracy


@contextlib.contextmanager
def _under_way() -> Iterator[None]:
    """From here on nothing is refused: what is wrong has failed."""
    try:
        yield
    except ValueError as error:
        raise hooks.TrainingError(str(error)) from error


def _last_step(run: Prepared, session: v1.Session, begin: int) -> int:
    if run.plan.num_batches is not None:
        return run.plan.num_steps
    return begin + loop.steps_left(run.built, session)


def _progress(run: Prepared) -> Progress:
    output = run.plan.config.output
    display = Display(
        every=output.display_every,
        warmup=run.plan.num_warmup,
        total_loss=output.loss_type_to_report == "total_loss",
        metrics=output.print_training_accuracy,
        unit=run.unit,
    )
    return Progress(run.built, run.console, run.log, display)


def _report_speed(
    run: Prepared, sessions: Sessions, progress: Progress, step: int
) -> None:
    """Prints the total line, the report of a loop inside the graph, and the MFU."""
    if not len(progress.speed):
        run.console("Done with training: no step was timed")
        return
    rate, unit, options = progress.examples_per_second, run.unit, run.plan.options
    for line in report.total_lines(rate * unit.per_example, unit=unit):
        run.console(line)
    if run.built.loop is not None:
        for line in run.built.loop.report():
            run.console(line)
    work = run.built.template.flops / options.batch_size
    done = rate * work
    run.log.metric("average_examples_per_sec", rate, step)
    run.log.metric("flops_per_sec", done, step, unit="FLOP/s")
    try:
        peak = flops.measure_peak(
            run.plan.placement, options.dtype, sessions, at_least=done
        )
    except tf.errors.ResourceExhaustedError:
        run.console("MFU: not measured, as no memory is left to do so")
        return
    run.console(report.utilization_line(rate, work, peak, unit=unit))
    if done <= peak:
        run.log.metric("mfu", done / peak, step, peak_flops_per_sec=peak)
