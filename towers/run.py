"""A run from its parts: training with all that goes on around it."""

import math
import os
import signal
import time
from typing import Any

import tensorflow as tf

from towers import evaluations
from towers.compute import flops
from towers.errors import failure, folders
from towers.graph import TrainGraph
from towers.plan import Plan
from towers.session import (
    describe,
    device_loop,
    diagnose,
    hooks,
    loop,
    probe,
    replicas,
    report,
    summary,
    traffic,
)
from towers.session.pipeline_report import ReportPipeline
from towers.session.progress import Console, Display, Progress
from towers.session.stop import StopOnSignal
from towers.tasks.sessions import Local, Sessions, session_config
from towers.updates import checkpoint

v1 = tf.compat.v1


def train(
    parts: Plan,
    console: Console,
    sessions: Sessions = Local(),  # noqa: B008 - it holds nothing
) -> int:
    """Trains, saves, evaluates, reports.

    Args:
      parts: of the run.
      console: takes lines for the user.
      sessions: where sessions come from.

    Returns:
      the exit status: 0, or 130 after SIGINT and 129 after SIGHUP.

    Raises:
      ValueError: model and data, or model and checkpoint, do not fit, or the mode does
        not take the mean of gradients.
      hooks.TrainingError, folders.OutputError: the run had to stop.
    """
    with StopOnSignal() as stop:
        with stop.at_once():
            training = _Training(parts, console, sessions, stop)
        if stop.received is None:
            resumes = parts.config.output.train_dir
            status = sessions.keep(training.run, stop, resumes=resumes)
            if status is not None:
                return status
        console(f"Stopped by {signal.Signals(stop.received).name}.")
        return stop.status


class _Training:
    """One training run; each method is one act of it."""

    def __init__(
        self,
        parts: Plan,
        console: Console,
        sessions: Sessions,
        stop: StopOnSignal,
    ):
        self._parts = parts
        self._sessions = sessions
        self._stop = stop
        self._flags = parts.config
        self._console = console
        self._evaluated_step, self._accuracy = -1, math.nan
        inputs = parts.model.inputs
        self._unit = report.Unit(inputs.unit, inputs.units_per_example)
        if parts.placement.notice:
            console(parts.placement.notice)
        console("Generating training model")
        self._built = parts.build()
        self._check_metrics()
        with self._built.graph.as_default():
            self._finish_graph()
        self._log = report.BenchmarkLog(self._flags.output.benchmark_log_dir)
        for line in report.header(describe.header(parts, self._built)):
            console(line)
        self._log.run(describe.facts(parts, self._built))

    def _check_metrics(self) -> None:
        metrics, asked = self._built.template.metrics, self._flags.evaluation
        if asked.stop_at_top_1_accuracy is not None and "top_1_accuracy" not in metrics:
            raise ValueError(
                f"--stop_at_top_1_accuracy={asked.stop_at_top_1_accuracy}: "
                f"{self._parts.model.name} has no accuracy, only {', '.join(metrics)}"
            )

    def _finish_graph(self) -> None:
        """What is in the graph beside the step: evaluation, saver, summaries, loop."""
        parts, built, output = self._parts, self._built, self._flags.output
        self._evaluation = evaluations.attach(parts, built)
        self._summary = summary.build(built, output.summary_verbosity)
        if self._flags.variables.check_replicas_every:
            self._same = replicas.same(built.mode)
        if self._flags.training.steps_per_loop > 1:
            inner = device_loop.build(built.train_op, built.step, built.loss)
            self._built = built = built._replace(loop=inner)
        self._finite, self._checkpoints = checkpoint.Finite(built.saved), None
        if output.train_dir:
            with tf.device(parts.placement.master):  # whose disk holds the files
                self._checkpoints = checkpoint.Checkpoints(
                    output.train_dir,
                    built.saved,
                    max_to_keep=output.max_ckpts_to_keep,
                    finite=self._finite,
                    log=self._console,
                )
        if output.graph_file:
            _write_graph(output.graph_file, parts, built)
        built.graph.finalize()

    def run(self) -> int:
        """Initialises, trains and ends; may be called again after a failure."""
        begun = time.monotonic()
        try:
            return self._attempt()
        except (hooks.NanLossError, checkpoint.NotFiniteError) as error:
            run, lasted = (self._parts, self._sessions), time.monotonic() - begun
            found = diagnose.explain(
                *run,
                self._console,
                last_step=error.step,
                seconds=lasted,
                stop=self._stop,
            )
            error.args = (f"{found}; {error}",)
            raise

    def _attempt(self) -> int:
        self._console("Initializing graph")
        parts, sessions, stop = self._parts, self._sessions, self._stop
        config = session_config(parts.placement, parts.config.devices)
        probe.check(parts.options, parts.placement, config, sessions)
        with sessions.open(self._built.graph, config) as session:
            loop.start(self._built, session, self._restore)
            begin = int(session.run(self._built.global_step))
            last_step = self._last_step(session, begin)
            progress = self._progress()
            progress.begin_at(begin, last_step)
            around = [progress, *self._hooks(progress, begin, last_step), stop]
            over = self._was_over(session, progress, begin)
            step = self._loop(session, around, begin if over else last_step)
            if step < last_step and stop.received is None:  # accurate enough
                failure.leave_end(parts.config.output.train_dir, step)
            saved = self._checkpoints and self._checkpoints.save(session, step)
            fresh = step != self._evaluated_step
            last = self._evaluation is not None and evaluations.at_end(parts)
            if stop.received is None and fresh and last:
                self._evaluate(session, step)
            self._report_speed(progress, step)
            if stop.received is not None:
                self._report_stop(stop.received, step, saved)
                return stop.status
            if saved:
                self._console(f"Checkpoints are in {self._where()}.")
            return 0

    def _was_over(self, session: v1.Session, progress: Progress, begin: int) -> bool:
        """Whether a run that goes on has no step to take.

        What is due after a step comes behind its checkpoint, so the evaluation of the
        one that was restored may be lost, and with it that it was accurate enough.
        """
        every, at = evaluations.steps(self._parts)
        if not hooks.is_due(begin, steps=every, at=at):
            return False
        if begin != self._evaluated_step:
            with progress.paused():
                self._evaluate(session, begin)
        goal = self._flags.evaluation.stop_at_top_1_accuracy
        enough = goal is not None and self._accuracy >= goal
        return enough or self._stop.received is not None

    def _loop(self, session: v1.Session, around: list, last_step: int) -> int:
        try:
            return loop.run(
                self._built,
                session,
                around,
                last_step=last_step,
                steps_per_loop=self._flags.training.steps_per_loop,
            )
        except hooks.TrainingError as error:
            directory = self._flags.output.train_dir
            kept = directory and checkpoint.latest(directory)
            where = f"the last checkpoint is {kept}" if kept else "nothing was saved"
            error.args = (f"{error}; {where}",)
            raise
        finally:
            self._console.close()

    def _restore(self, session: v1.Session) -> None:
        path = self._checkpoints and self._checkpoints.restore(session)
        if path:
            self._console(f"Resuming from {path}")

    def _last_step(self, session: v1.Session, step: int) -> int:
        if self._parts.num_batches is not None:
            return self._parts.num_steps
        return step + loop.steps_left(self._built, session)

    def _progress(self) -> Progress:
        output = self._flags.output
        display = Display(
            every=output.display_every,
            warmup=self._parts.num_warmup,
            total_loss=output.loss_type_to_report == "total_loss",
            metrics=output.print_training_accuracy,
            unit=self._unit,
        )
        return Progress(self._built, self._console, self._log, display)

    def _hooks(self, progress: Progress, begin: int, last_step: int) -> list:
        """What the flags ask for around the steps, in the order of their acts."""
        built, output, flags = self._built, self._flags.output, self._flags.evaluation
        found: list[Any] = [hooks.StopOnNan(built, self._finite)]
        if built.skipped is not None:
            found.append(hooks.ReportSkips(built, self._console))
        if every := self._flags.variables.check_replicas_every:
            found.append(replicas.CheckReplicas(built, self._same, steps=every))
        # The second last warm-up step, as in tf_cnn_benchmarks, or if it is past the
        # second of this process: the first makes the kernels.
        step = min(max(self._parts.num_warmup - 1, begin + 2), last_step)
        told = {"step": step, "say": self._console}
        if output.trace_file:
            found.append(hooks.TraceStep(built, output.trace_file, **told))
        if folder := self._flags.stages.pipeline_report:
            found.append(ReportPipeline(built, folder, **told))
        if self._summary is not None:
            found.append(
                hooks.WriteSummaries(
                    built,
                    self._summary,
                    output.train_dir,
                    steps=output.save_summaries_steps,
                )
            )
        if output.save_model_steps or output.save_model_secs:
            found.append(
                hooks.SaveCheckpoints(
                    built,
                    self._checkpoints,
                    steps=output.save_model_steps or 0,
                    seconds=output.save_model_secs,
                )
            )
        every, at = evaluations.steps(self._parts)
        if every or at:

            def act(session: v1.Session, step: int) -> float:
                with progress.paused():
                    return self._evaluate(session, step)

            stop_at = flags.stop_at_top_1_accuracy
            found.append(
                hooks.Evaluate(built, act, stop_at=stop_at, steps=every, at=at)
            )
        return found

    def _evaluate(self, session: v1.Session, step: int) -> float:
        """Evaluates and reports; returns the top-1 accuracy, or NaN if unknown."""
        evaluator = evaluations.Evaluator(
            self._parts, self._evaluation, self._console, self._log
        )
        result = evaluator(session, step, lambda: self._stop.received)
        # Not before: the attempt after a lost task begins behind this step's update.
        means = result.means if result else {}
        self._evaluated_step = step
        self._accuracy = means.get("top_1_accuracy", math.nan)
        return self._accuracy

    def _report_speed(self, progress: Progress, step: int) -> None:
        if not len(progress.speed):
            self._console("Done with training: no step was timed")
            return
        rate, unit = progress.examples_per_second, self._unit
        for line in report.total_lines(rate * unit.per_example, unit=unit):
            self._console(line)
        if self._built.loop is not None:
            for line in self._built.loop.report():
                self._console(line)
        work = self._built.template.flops
        work /= self._parts.options.batch_size
        peak = flops.measure_peak(
            self._parts.placement,
            self._parts.options.dtype,
            self._sessions,
            at_least=rate * work,
        )
        self._console(report.utilization_line(rate, work, peak, unit=unit))
        self._log.metric("average_examples_per_sec", rate, step)
        self._log.metric("flops_per_sec", rate * work, step, unit="FLOP/s")
        if rate * work <= peak:
            self._log.metric("mfu", rate * work / peak, step, peak_flops_per_sec=peak)

    def _report_stop(self, received: int, step: int, saved: str | None) -> None:
        name = signal.Signals(received).name
        where = f"saved to {saved}" if saved else "not saved: there is no --train_dir"
        self._console(f"Stopped by {name} after step {step}, {where}.")

    def _where(self) -> str:
        directory = self._flags.output.train_dir
        return f"{directory}, summaries too" if self._summary is not None else directory


def _write_graph(path: str, parts: Plan, built: TrainGraph) -> None:
    """Its nodes, or what lies on each device and crosses between them."""
    folder, name = os.path.split(os.path.abspath(path))
    with folders.writing("nodes of the graph", path):
        if name.endswith(".svg"):
            os.makedirs(folder, exist_ok=True)
            title = describe.in_short(parts, built)
            with open(path, "w", encoding="utf-8") as file:
                file.write(traffic.picture(traffic.of(built), title))
        else:
            text = name.endswith("txt")
            tf.io.write_graph(built.graph, folder, name, as_text=text)
