"""What happens around the steps: lines, checkpoints, summaries, evaluation, stops."""

import contextlib
import math
import os
import signal
import time
from collections.abc import Callable, Sequence

import tensorflow as tf
import tqdm

from towers import report, trace
from towers.checkpoint import Checkpoints
from towers.graph import TrainGraph
from towers.loop import Hook

v1 = tf.compat.v1

NEVER = 2**62


class NanLossError(RuntimeError):
    """The loss of a step was not a number."""


class Console:
    """Prints lines, above a progress bar if there is one."""

    def __init__(self, stream):
        self._stream = stream
        self.bar: tqdm.tqdm | None = None

    @property
    def is_terminal(self) -> bool:
        """Whether a person is watching."""
        return self._stream.isatty()

    def __call__(self, line: str) -> None:
        """Prints one line at once."""
        if self.bar is not None:
            self.bar.write(line, file=self._stream)
        else:
            print(line, file=self._stream, flush=True)


class Progress(Hook):
    """Step lines in a log, a bar on a terminal, and the speed of the timed steps.

    Args:
      train: the graph.
      console: where lines go.
      every: steps between lines.
      warmup: global steps that are not timed.
      total: whether the reported loss holds the weight decay's penalty.
      metrics: whether accuracies are reported.
      log: gets the numbers of each line.
    """

    def __init__(
        self,
        train: TrainGraph,
        console: Console,
        log: report.BenchmarkLog,
        *,
        every: int,
        warmup: int,
        total_loss: bool = True,
        metrics: bool = False,
    ):
        self._train = train
        self._console = console
        self._log = log
        self._every = every
        self._warmup = warmup
        self._loss_name = "total_loss" if total_loss else "base_loss"
        names = sorted(train.metrics) if metrics else []
        self._metrics = names
        self._shown = {
            "step": train.step,
            "loss": train.total_loss if total_loss else train.loss,
            "rate": train.learning_rate,
            "metrics": [train.metrics[name] for name in names],
        }
        self._step = 0
        self._last_step = 0
        self._first_timed = 0
        self.speed = report.Speed(train.examples_per_step)
        self._begun = self._wall = self._paused = 0.0
        self.last_loss = math.nan
        self._resumed = False

    def begin_at(self, step: int, last_step: int) -> None:
        """Says where the loop starts and ends; prints the title."""
        self._step, self._last_step = step, last_step
        # The first step of a process makes kernels and is never timed.
        self._first_timed = max(self._warmup, step + 1)
        self._resumed = step > 0
        if self._console.is_terminal:
            self._console.bar = tqdm.tqdm(
                total=last_step, initial=step, unit="step", dynamic_ncols=True
            )
        elif step < self._warmup:
            self._console("Running warm up")
        self._begin_wall()

    def _begin_wall(self) -> None:
        if self._step >= self._first_timed or self._warmup <= self._step:
            self._wall = time.perf_counter()

    @contextlib.contextmanager
    def paused(self):
        """Time inside is not training time."""
        begun = time.perf_counter()
        yield
        self._paused += time.perf_counter() - begun

    def next_due(self, step: int) -> int:
        """The next step that gets a line."""
        shown = step - self._warmup
        if shown < 0:
            return self._warmup if step + 1 < self._warmup else self._warmup + 1
        if shown == 0:
            return step + 1
        return self._warmup + (shown // self._every + 1) * self._every

    def before_run(self, run_context):
        """Asks for the loss and the rest when this step gets a line."""
        self._begun = time.perf_counter()
        due = self._line_due(self._step + 1)
        return v1.train.SessionRunArgs(self._shown) if due else None

    def after_run(self, run_context, run_values):
        """Times the step, prints its line."""
        self._after(time.perf_counter() - self._begun, 1)
        if run_values.results is not None:
            self._print_line(run_values.results)

    def after_steps(self, step, losses, seconds):
        """Times steps that ran inside the graph."""
        self._after(seconds, len(losses))

    def _line_due(self, step: int) -> bool:
        shown = step - self._warmup
        return shown == 1 or (shown > 0 and shown % self._every == 0)

    def _after(self, seconds: float, steps: int) -> None:
        before, self._step = self._step, self._step + steps
        if before >= self._first_timed:
            self.speed.add(seconds, steps)
        elif self._step >= self._first_timed:
            self._wall = time.perf_counter()
            self._paused = 0.0
        if before < self._warmup <= self._step and self._console.bar is None:
            self._console("Done warm up")
        if self._console.bar is not None:
            self._console.bar.update(steps)

    def _print_line(self, values) -> None:
        self.last_loss = float(values["loss"])
        step = self._step
        if not len(self.speed):
            return
        speed = self.speed.statistics()
        if self._console.bar is not None:
            self._console.bar.set_postfix_str(
                f"{self._loss_name} {self.last_loss:.3f}, {speed[0]:.0f} images/s"
            )
        else:
            if len(self.speed) == 1 or step - self._warmup == 1:
                self._console(report.step_title(self._loss_name, self._metrics))
            self._console(
                report.step_line(
                    step - self._warmup, speed, self.last_loss, values["metrics"]
                )
            )
        self._log.metric("current_examples_per_sec", speed[0], step)
        self._log.metric("loss", self.last_loss, step)
        self._log.metric("learning_rate", values["rate"], step)
        for name, value in zip(self._metrics, values["metrics"]):
            self._log.metric(name, value, step)

    def end(self, session):
        """Closes the bar."""
        self._elapsed = time.perf_counter() - self._wall - self._paused
        if self._console.bar is not None:
            self._console.bar.close()
            self._console.bar = None

    @property
    def images_per_second(self) -> float:
        """Examples of all timed steps over the wall time they took, pauses excluded."""
        if not len(self.speed):
            return 0.0
        return len(self.speed) * self._train.examples_per_step / self._elapsed


class StopOnNan(Hook):
    """Stops the run at the first step whose loss is not finite."""

    def __init__(self, train: TrainGraph):
        self._loss, self._step = train.loss, train.step
        self._fetches = (train.loss, train.step)

    def next_due(self, step: int) -> int:
        """Losses of steps inside the graph arrive by `after_steps`."""
        return NEVER

    def before_run(self, run_context):
        """Asks for the loss."""
        return v1.train.SessionRunArgs(self._fetches)

    def after_run(self, run_context, run_values):
        """Raises NanLossError."""
        loss, step = run_values.results
        self._check(loss, step)

    def after_steps(self, step, losses, seconds):
        """Raises NanLossError, with the step in the middle that was at fault."""
        for index, loss in enumerate(losses):
            self._check(loss, step - len(losses) + 1 + index)

    def _check(self, loss: float, step: int) -> None:
        if not math.isfinite(loss):
            raise NanLossError(f"the loss of step {step} is {loss}")


class StopOnSignal(Hook):
    """SIGTERM and SIGINT end the loop after the step under way.

    Attributes:
      received: the signal, or None.
    """

    def __init__(self):
        self.received: int | None = None
        self._previous = {}

    def __enter__(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *error):
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number, frame):
        del frame
        self.received = number

    def next_due(self, step: int) -> int:
        """At once when there was a signal."""
        return step + 1 if self.received else NEVER

    def after_run(self, run_context, run_values):
        """Asks the loop to stop."""
        if self.received:
            run_context.request_stop()


class Every(Hook):
    """Something to do after some global steps; the base of the hooks below.

    Args:
      train: the graph.
      steps: between two times, or 0 for never.
      at: single steps, besides.
      seconds: between two times, or 0; looked at after each step.
    """

    def __init__(
        self,
        train: TrainGraph,
        *,
        steps: int = 0,
        at: Sequence[int] = (),
        seconds: float = 0.0,
    ):
        self._fetches = train.step
        self._steps = steps
        self._at = sorted(at)
        self._seconds = seconds
        self._last_time = time.monotonic()

    def next_due(self, step: int) -> int:
        """The next step to act after."""
        due = [s for s in self._at if s > step][:1]
        if self._steps:
            due.append((step // self._steps + 1) * self._steps)
        if self._seconds and time.monotonic() >= self._last_time + self._seconds:
            due.append(step + 1)
        return min(due, default=NEVER)

    def before_run(self, run_context):
        """Asks for the global step."""
        return v1.train.SessionRunArgs(self._fetches)

    def after_run(self, run_context, run_values):
        """Acts if this step is due."""
        step = int(run_values.results)
        if self.next_due(step - 1) == step:
            self._last_time = time.monotonic()
            self.act(run_context, step)

    def act(self, run_context, step: int) -> None:
        """What there is to do."""
        raise NotImplementedError


class SaveCheckpoints(Every):
    """Writes a checkpoint every so many steps or seconds."""

    def __init__(self, train, checkpoints: Checkpoints, *, steps=0, seconds=0.0):
        super().__init__(train, steps=steps, seconds=seconds)
        self._checkpoints = checkpoints

    def act(self, run_context, step):
        """Saves."""
        self._checkpoints.save(run_context.session, step)


class Evaluate(Every):
    """Evaluates during training.

    Args:
      train: the graph.
      evaluate: (session, step) -> top-1 accuracy; reports it.
      stop_at: the accuracy at which training stops, or None.
      steps, at: as `Every` has them.
    """

    def __init__(
        self,
        train: TrainGraph,
        evaluate: Callable[[v1.Session, int], float],
        *,
        stop_at: float | None,
        steps: int = 0,
        at: Sequence[int] = (),
    ):
        super().__init__(train, steps=steps, at=at)
        self._evaluate = evaluate
        self._stop_at = stop_at

    def act(self, run_context, step):
        """Evaluates; asks to stop when the accuracy is reached."""
        accuracy = self._evaluate(run_context.session, step)
        if self._stop_at is not None and accuracy >= self._stop_at:
            run_context.request_stop()


class WriteSummaries(Every):
    """Writes TensorBoard summaries."""

    def __init__(self, train, summary: tf.Tensor, directory: str, *, steps: int):
        super().__init__(train, steps=steps)
        self._writer = v1.summary.FileWriter(directory, train.graph)
        self._fetch = (train.step, summary)
        self._step_before = None

    def after_create_session(self, session, coord):
        """Notes where the loop starts."""
        self._step_before = None

    def before_run(self, run_context):
        """Asks for the summary when this step is due."""
        before = self._step_before
        due = before is not None and self.next_due(before) == before + 1
        return v1.train.SessionRunArgs(self._fetch if due else (self._fetches, ()))

    def after_run(self, run_context, run_values):
        """Writes it."""
        step, summary = run_values.results
        self._step_before = int(step)
        if summary != ():
            self._writer.add_summary(summary, step)

    def after_steps(self, step, losses, seconds):
        """Notes where the loop is."""
        self._step_before = step

    def end(self, session):
        """Closes the file."""
        self._writer.close()


class TraceStep(Hook):
    """Writes a Chrome trace of one global step.

    Args:
      path: of the JSON file; `chrome://tracing` and Perfetto read it.
      step: which.
    """

    def __init__(self, train: TrainGraph, path: str, *, step: int):
        self._path = path
        self._wanted = step
        self._fetches = train.step
        self._step = None

    def after_create_session(self, session, coord):
        """Makes the file's folder."""
        os.makedirs(os.path.dirname(os.path.abspath(self._path)), exist_ok=True)

    def next_due(self, step: int) -> int:
        """The wanted step, or the one after the next if it is past."""
        return self._wanted if step < self._wanted else NEVER

    def before_run(self, run_context):
        """Asks TensorFlow to record the step."""
        due = self._step is not None and self._step + 1 == self._wanted
        options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE) if due else None
        return v1.train.SessionRunArgs(self._fetches, options=options)

    def after_run(self, run_context, run_values):
        """Writes the file."""
        self._step = int(run_values.results)
        if self._step == self._wanted:
            trace.write(self._path, run_values.run_metadata)

    def after_steps(self, step, losses, seconds):
        """Notes where the loop is."""
        self._step = step
