"""The display of a run's steps: lines in a log, a bar on a terminal, the speed."""

import contextlib
import errno
import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TextIO

import numpy as np
import tensorflow as tf
import tqdm

from flags.problem import with_flags
from towers.callbacks.base import NEVER, Callback, RunArgs, RunContext, RunValues
from towers.cluster.sessions import Sessions
from towers.compute import flops
from towers.errors.collected import discard, print_line
from towers.errors.side_outputs import SideOutputs
from towers.graph import TrainGraph
from towers.planning import Plan
from towers.session import report
from towers.session.input_share import NOTED, InputShare

v1 = tf.compat.v1

# Shortest time over which a speed of asynchronous towers is measured.
_FREE_SECONDS = 0.01


class Console:
    """Prints lines, above a progress bar if there is one.

    Args:
      stream: to print to; None in a process that has no standard output.
      show: shows the settings that a line has in backquotes.

    Attributes:
      side: writes the other outputs, and notes the lines that cannot be printed.
    """

    def __init__(self, stream: TextIO | None, show: Callable[[str], str] = with_flags):
        self.side = SideOutputs()
        self._show = show
        self._stream = stream
        self._bar: tqdm.tqdm | None = None
        self._closed: Callable[[], None] | None = None

    @contextlib.contextmanager
    def during(self, closed: Callable[[], None]) -> Iterator[None]:
        """In this block, `closed` is called when the reader of the lines has left.

        At its end, outputs that could not be written are named.
        """
        self._closed = closed
        try:
            yield
        finally:
            self._closed = None
            self.side.report()

    @contextlib.contextmanager
    def _printing(self) -> Iterator[None]:
        """In this block, errors of printing do not end the run.

        Raises:
          BrokenPipeError: the reader has left, and there is no run to end.
        """
        try:
            yield
        except OSError as error:
            if error.errno != errno.EPIPE or self._stream is None:
                self.side.leave_out("lines", "standard output", error)
                return
            if self._closed is None:
                raise
            discard(self._stream)
            self._closed()

    @property
    def is_watched(self) -> bool:
        """Whether a person is watching: on a terminal, or in a notebook."""
        notebook = type(self._stream).__module__.startswith("ipykernel.")
        terminal = self._stream is not None and self._stream.isatty()
        return notebook or terminal

    def __call__(self, line: str) -> None:
        """Prints one line at once."""
        line = self._show(line)
        with self._printing():
            if self._bar is not None:
                self._bar.write(line, file=self._stream)
            else:
                print_line(line, self._stream)

    def open_bar(self, step: int, last_step: int) -> None:
        """Shows a bar from step 0 to the last one, filled up to `step`."""
        with self._printing():
            self._bar = tqdm.tqdm(
                total=last_step,
                initial=step,
                unit="step",
                dynamic_ncols=True,
                file=self._stream,
            )

    def advance(self, steps: int, text: str = "") -> None:
        """Advances the bar, if there is one, and shows a text beside it."""
        if self._bar is not None:
            if text:
                self._bar.set_postfix_str(text, refresh=False)
            with self._printing():
                self._bar.update(steps)

    def close(self) -> None:
        """Ends the bar, if there is one; later lines are printed below it."""
        bar, self._bar = self._bar, None
        if bar is not None:
            with self._printing():
                bar.close()


class Display(NamedTuple):
    """What step lines show, and when they are printed."""

    every: int = 10  # steps between lines, from the end of the warm-up on
    warmup: int = 0  # global steps that are not timed and get no line
    total_loss: bool = True  # whether the loss holds the weight decay's penalty
    metrics: bool = False  # whether accuracies are shown
    unit: report.Unit = report.IMAGES  # of speeds
    ewma: float = 0.0  # as `report.Speed` has it


class Progress(Callback):
    """Step lines in a log, a bar on a terminal, and the speed of the timed steps.

    Steps are numbered from the end of the warm-up.  The warm-up is not timed, nor is
    the first step of a process, in which kernels are created.

    Args:
      train: the graph.
      console: prints the lines.
      log: writes the numbers of each line.
      display: what lines show and when.

    Attributes:
      speed: of the timed steps.
      unit: of speeds.
      last_loss: the latest loss that was reported.
    """

    def __init__(
        self,
        train: TrainGraph,
        console: Console,
        log: report.BenchmarkLog,
        display: Display,
    ):
        self._train = train
        self._console = console
        self._log = log
        self._every, self._warmup = display.every, display.warmup
        self._loss_name = "total_loss" if display.total_loss else "base_loss"
        names = sorted(train.metrics) if display.metrics else []
        self._metrics = names
        self._shown = {
            "loss": train.total_loss if display.total_loss else train.loss,
            "rate": train.learning_rate,
            "metrics": [train.metrics[name] for name in names],
        }
        # Asynchronous towers do not stop for a line that shows only losses.
        self._free = train.loop is not None and train.loop.free and not names
        self._beside = {"rate": train.learning_rate}
        if display.total_loss:
            self._beside["penalty"] = train.penalty
        self._input = InputShare(train.input_wait)
        self._shown |= self._input.fetches
        self._beside |= self._input.fetches_now
        self._session: v1.Session
        self._step = self._first_timed = 0
        self._titled = False
        self._latest = math.nan  # seconds of the latest step
        self._begun = self._wall = self._paused = self._elapsed = 0.0
        self.unit = display.unit
        self._units_per_step = train.examples_per_step * display.unit.per_example
        least = _FREE_SECONDS if self._free else 0.0
        self.speed = report.Speed(self._units_per_step, least, display.ewma)
        self.last_loss = math.nan

    @classmethod
    def of(
        cls, plan: Plan, train: TrainGraph, console: Console, log: report.BenchmarkLog
    ) -> "Progress":
        """That of a run.

        Args:
          plan: of the run.
          train: its graph.
          console: where lines go.
          log: gets the numbers of each line.
        """
        output, inputs = plan.config.output, plan.model.inputs
        display = Display(
            every=output.display_every,
            warmup=plan.num_warmup,
            total_loss=output.loss_type_to_report == "total_loss",
            metrics=output.print_training_accuracy or plan.options.forward_only,
            unit=report.Unit(inputs.unit, inputs.units_per_example),
            ewma=output.display_perf_ewma,
        )
        return cls(train, console, log, display)

    def begin_at(self, step: int, last_step: int) -> None:
        """Sets the steps at which the loop starts and ends."""
        self._step = step
        self._first_timed = max(self._warmup, step + 1)
        if step >= last_step:
            self._console(
                f"Step {step} is reached and this run ends at {last_step}: none is "
                "left to train"
            )
        elif self._console.is_watched:
            self._console.open_bar(step, last_step)
        elif step < self._warmup:
            self._console("Running warm up")

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Time inside does not count as training time."""
        begun = time.perf_counter()
        yield
        self._paused += time.perf_counter() - begun

    def after_create_session(self, session: v1.Session, coord: object) -> None:
        """Keeps the session, to read values that are not fetched in a step."""
        self._session = session

    def next_due(self, step: int) -> int:
        """The end of the warm-up, then the next step that gets a line."""
        shown = step - self._warmup
        if shown < 0:
            return self._warmup
        if self._free:
            return NEVER
        if shown == 0:
            return step + 1
        return self._warmup + (shown // self._every + 1) * self._every

    def before_run(self, run_context: RunContext) -> RunArgs | None:
        """Asks for the values that a line shows, if this step gets a line.

        The last untimed step asks for them, too: TensorFlow prepares each new set of
        fetches once, and that must not be timed.
        """
        step = self._step + 1
        due = self._line_due(step) or step == self._first_timed
        self._begun = time.perf_counter()
        return v1.train.SessionRunArgs(self._shown) if due else None

    def after_run(self, run_context: RunContext, run_values: RunValues) -> None:
        """Times the step, prints its line."""
        self._after(time.perf_counter() - self._begun, 1)
        if self._line_due(self._step):
            self._print_line(run_values.results)

    def after_steps(self, step: int, losses: np.ndarray, seconds: float) -> None:
        """Times steps without hooks between them; prints a line if one is due."""
        before = self._step
        self._after(seconds, len(losses))
        first, last = before - self._warmup, self._step - self._warmup
        if first // self._every < last // self._every and last > 0:
            values = self._session.run(self._beside)
            values["loss"] = losses[-1] + values.pop("penalty", 0.0)
            self._print_line({**values, "metrics": []})

    def _line_due(self, step: int) -> bool:
        shown = step - self._warmup
        return shown == 1 or (shown > 0 and shown % self._every == 0)

    def _after(self, seconds: float, steps: int) -> None:
        before, self._step = self._step, self._step + steps
        self._latest = seconds / steps
        if before >= self._first_timed:
            self.speed.add(seconds, steps)
            self._input.add(seconds)
        elif self._step >= self._first_timed:
            self._input.begin(self._session)
            self._wall = time.perf_counter()
            self._paused = 0.0
        if before < self._warmup <= self._step and not self._console.is_watched:
            self._console("Done warm up")
        self._console.advance(steps)

    def _print_line(self, values: Mapping[str, Any]) -> None:
        step, self.last_loss = self._step, float(values["loss"])
        # Before any step was timed, only the speed of this step is known.
        speed = (self._units_per_step / self._latest, 0.0, 0.0)
        if len(self.speed):
            speed = self.speed.statistics()
        latest = self.speed.interval() or speed[0]
        waited = self._input.since_last(values) or 0.0
        noted = [report.input_line(waited)] if waited >= NOTED else []
        if self._console.is_watched:
            metrics = zip(self._metrics, values["metrics"])
            beside = [
                f"{self._loss_name} {self.last_loss:.3f}",
                *(f"{name} {value:.3f}" for name, value in metrics),
                f"{latest:.0f} {self.unit.name}/s, mean {speed[0]:.0f}",
                *noted,
            ]
            self._console.advance(0, ", ".join(beside))
        else:
            if not self._titled:
                self._console(
                    report.step_title(self._loss_name, self._metrics, unit=self.unit)
                )
                self._titled = True
            line = report.step_line(
                step - self._warmup,
                speed,
                self.last_loss,
                values["metrics"],
                unit=self.unit,
            )
            for text in (line, *noted):
                self._console(text)
        for name, rate in (("current", speed[0]), ("interval", latest)):
            examples = rate / self.unit.per_example
            self._log.metric(f"{name}_examples_per_sec", examples, step)
        self._log.metric("loss", self.last_loss, step)
        self._log.metric("learning_rate", values["rate"], step)
        if self._input.fetches:
            self._log.metric("input_wait", waited, step)
        for name, value in zip(self._metrics, values["metrics"]):
            self._log.metric(name, value, step)

    def end(self, session: v1.Session) -> None:
        """Closes the bar."""
        self._elapsed = time.perf_counter() - self._wall - self._paused
        self._input.end(session)
        self._console.close()

    def report(self, sessions: Sessions) -> None:
        """Prints the total line, the report of a loop inside the graph, and the MFU.

        Args:
          sessions: opens the session in which the device's peak is measured.
        """
        if not len(self.speed):
            self._console("Done with training: no step was timed")
            return
        rate, train, step = self.examples_per_second, self._train, self._step
        for line in report.total_lines(rate * self.unit.per_example, unit=self.unit):
            self._console(line)
        if train.loop is not None:
            for line in train.loop.report():
                self._console(line)
        if (waited := self._input.total) is not None:
            self._console(report.input_line(waited))
            self._log.metric("average_input_wait", waited, step)
        work = train.template.flops / train.options.batch_size
        self._log.metric("average_examples_per_sec", rate, step)
        if not work:  # as of input alone
            return
        done = rate * work
        self._log.metric("flops_per_sec", done, step, unit="FLOP/s")
        try:
            peak = flops.measure_peak(
                train.placement, train.options.dtype, sessions, at_least=done
            )
        except tf.errors.ResourceExhaustedError:
            self._console("MFU: not measured, as no memory is left to do so")
            return
        self._console(report.utilization_line(rate, work, peak, unit=self.unit))
        if done <= peak:
            self._log.metric("mfu", done / peak, step, peak_flops_per_sec=peak)

    @property
    def examples_per_second(self) -> float:
        """Examples of all timed steps divided by their wall time without pauses."""
        if not len(self.speed):
            return 0.0
        return len(self.speed) * self._train.examples_per_step / self._elapsed
