"""What happens around the steps: checkpoints, summaries, evaluation, stops."""

import math
import time
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from towers.checkpoints.checkpoint import FiniteCheck
from towers.checkpoints.saving import Saving
from towers.errors.side_outputs import SideOutputs
from towers.graph import TrainGraph
from towers.session import summary, trace
from towers.session.loop import NEVER, Hook, RunArgs, RunContext, RunValues

v1 = tf.compat.v1

_ROUNDING = 1e-6  # of a step, more than floats are off

_RETRY_SECONDS = 10.0  # after a checkpoint that could not be written


class TrainingError(RuntimeError):
    """Training cannot go on."""


class NanLossError(TrainingError):
    """The loss of a step, or a variable after it, was not a number.

    Attributes:
      step: the global step.
    """

    def __init__(self, text: str, step: int):
        super().__init__(text)
        self.step = step


class StopOnNan(Hook):
    """Stops the run at the first step whose loss is not finite.

    The loss of a step is computed from the variables before its update.  After the last
    step the variables themselves are checked.

    Args:
      train: the graph.
      finite: of its variables.
    """

    def __init__(self, train: TrainGraph, finite: FiniteCheck):
        self._fetches = (train.loss, train.step)
        self._global_step = train.global_step
        self._finite = finite
        # A scale that moves finds one that fits by itself.
        fixed_scale = train.loss_scale is not None and train.skipped is None
        self._advice = "lower --init_learning_rate" + (
            " or --fp16_loss_scale" if fixed_scale else ""
        )
        self._first = 1

    def after_create_session(self, session: v1.Session, coord: object) -> None:
        """Notes the first step."""
        self._first = int(session.run(self._global_step)) + 1

    def next_due(self, step: int) -> int:
        """Losses of steps inside the graph arrive by `after_steps`."""
        return NEVER

    def before_run(self, run_context: RunContext) -> RunArgs | None:
        """Asks for the loss."""
        return v1.train.SessionRunArgs(self._fetches)

    def after_run(self, run_context: RunContext, run_values: RunValues) -> None:
        """Raises NanLossError."""
        loss, step = run_values.results
        self._check(loss, step)

    def after_steps(self, step: int, losses: np.ndarray, seconds: float) -> None:
        """Raises NanLossError for the first step inside that failed."""
        for index, loss in enumerate(losses):
            self._check(loss, step - len(losses) + 1 + index)

    def end(self, session: v1.Session) -> None:
        """Raises NanLossError, with the variable."""
        if broken := self._finite.broken(session):
            step = int(session.run(self._global_step))
            raise NanLossError(
                f"variable {broken} is not finite after step {step}; {self._advice}",
                step,
            )

    def _check(self, loss: float, step: int) -> None:
        if not math.isfinite(loss):
            advice = self._advice
            if step == self._first:  # this run's learning rate had no effect on it
                advice = (
                    "it is that of the initial values: look at the model or the data"
                    if step == 1
                    else "it is that of the checkpoint's values: go on from an earlier "
                    "one, by moving that away"
                )
            raise NanLossError(
                f"the loss of step {step} is {loss}; {advice}", int(step)
            )


class ReportSkips(Hook):
    """Says when steps were skipped because a float16 gradient was not finite.

    Args:
      train: the graph, with `skipped`.
      log: takes lines for the user.
    """

    def __init__(self, train: TrainGraph, log: Callable[[str], None]):
        self._skipped = train.skipped
        assert train.loss_scale is not None
        self._now = (train.skipped, train.loss_scale.value)
        self._after_step = train.skips
        self._log = log
        self._session: v1.Session
        self._known = 0

    def after_create_session(self, session: v1.Session, coord: object) -> None:
        """Notes how many there were before."""
        self._session = session
        self._known = int(session.run(self._skipped))

    def next_due(self, step: int) -> int:
        """Steps inside the graph are looked at together."""
        return NEVER

    def before_run(self, run_context: RunContext) -> RunArgs | None:
        """Asks for the count."""
        return v1.train.SessionRunArgs(self._after_step)

    def after_run(self, run_context: RunContext, run_values: RunValues) -> None:
        """Looks at the step."""
        self._look(*run_values.results)

    def after_steps(self, step: int, losses: np.ndarray, seconds: float) -> None:
        """Looks at them together."""
        self._look(*self._session.run(self._now))

    def _look(self, skipped: int, value: float) -> None:
        if skipped > self._known:
            steps = skipped - self._known
            count = "A step was" if steps == 1 else f"{steps} steps were"
            self._log(
                f"{count} skipped: a gradient is not finite in float16; the loss scale "
                f"is now {value:g} ({skipped} skipped in all)"
            )
        self._known = skipped


def next_time(step: int, *, steps: float, at: Sequence[int]) -> int:
    """The first due step after `step`: a multiple of `steps`, or one of `at`."""
    due = [s for s in at if s > step]
    if steps:
        times = math.floor((step + _ROUNDING) / steps) + 1
        due.append(math.ceil(times * steps - _ROUNDING))
    return min(due, default=NEVER)


def is_due(step: int, *, steps: float, at: Sequence[int]) -> bool:
    """Whether a step that was taken was due; arguments as for `next_time`."""
    return step > 0 and next_time(step - 1, steps=steps, at=at) == step


class Every(Hook):
    """Base class of hooks that act every so many steps or seconds.

    Args:
      train: the graph.
      steps: between two acts, or 0 for never; fractions are rounded up to whole steps.
      at: further single steps.
      seconds: between two acts, or 0 for never; checked after each step.
    """

    def __init__(
        self,
        train: TrainGraph,
        *,
        steps: float = 0,
        at: Sequence[int] = (),
        seconds: float = 0.0,
    ):
        self._fetches = train.step
        self._steps = steps
        self._at = at
        self._seconds = seconds
        self._last_time = time.monotonic()

    def next_due(self, step: int) -> int:
        """The next step to act after."""
        if self._seconds and time.monotonic() >= self._last_time + self._seconds:
            return step + 1
        return next_time(step, steps=self._steps, at=self._at)

    def before_run(self, run_context: RunContext) -> RunArgs | None:
        """Asks for the global step."""
        return v1.train.SessionRunArgs(self._fetches)

    def after_run(self, run_context: RunContext, run_values: RunValues) -> None:
        """Acts if this step is due."""
        step = int(run_values.results)
        if self.next_due(step - 1) == step:
            self._last_time = time.monotonic()
            self.act(run_context, step)

    def act(self, run_context: RunContext, step: int) -> None:
        """Called after each due step."""
        raise NotImplementedError


class SaveCheckpoints(Every):
    """Writes a checkpoint every so many steps or seconds."""

    def __init__(
        self,
        train: TrainGraph,
        saving: Saving,
        *,
        steps: float = 0,
        seconds: float = 0.0,
    ):
        super().__init__(train, steps=steps, seconds=seconds)
        self._saving = saving
        self._failed = False

    def next_due(self, step: int) -> int:
        """As `Every` has it; after a failure the next step, when it is time."""
        if not self._failed:
            return super().next_due(step)
        waited = time.monotonic() - self._last_time
        return step + 1 if waited >= _RETRY_SECONDS else NEVER

    def act(self, run_context: RunContext, step: int) -> None:
        """Saves, or notes that it failed."""
        self._failed = not self._saving.attempt(run_context.session, step)


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
        steps: float = 0,
        at: Sequence[int] = (),
    ):
        super().__init__(train, steps=steps, at=at)
        self._evaluate = evaluate
        self._stop_at = stop_at

    def act(self, run_context: RunContext, step: int) -> None:
        """Evaluates; asks to stop when the accuracy is reached."""
        accuracy = self._evaluate(run_context.session, step)
        if self._stop_at is not None and accuracy >= self._stop_at:
            run_context.request_stop()


class WriteSummaries(Every):
    """Writes TensorBoard summaries."""

    def __init__(
        self,
        train: TrainGraph,
        text: tf.Tensor,
        file: summary.EventFile,
        *,
        steps: int,
    ):
        super().__init__(train, steps=steps)
        self._file = file
        self._fetch = (train.step, text)
        self._global_step = train.global_step
        self._step = 0

    def after_create_session(self, session: v1.Session, coord: object) -> None:
        """Opens the file, notes where the loop starts."""
        self._step = int(session.run(self._global_step))
        self._file.open(self._step)

    def before_run(self, run_context: RunContext) -> RunArgs | None:
        """Asks for the summary when this step is due."""
        due = self.next_due(self._step) == self._step + 1
        return v1.train.SessionRunArgs(self._fetch) if due else None

    def after_run(self, run_context: RunContext, run_values: RunValues) -> None:
        """Writes it."""
        self._step += 1
        if run_values.results is not None:
            step, text = run_values.results
            self._file.add(v1.Summary.FromString(text), step)

    def after_steps(self, step: int, losses: np.ndarray, seconds: float) -> None:
        """Notes where the loop is."""
        self._step = step

    def end(self, session: v1.Session) -> None:
        """Closes the file."""
        self._file.close()


class TraceStep(Hook):
    """Writes a Chrome trace of one global step.

    Args:
      path: of the JSON file; `chrome://tracing` and Perfetto read it.
      step: which.
      console: takes a line if the step is never taken.
      side: takes what cannot be written.
    """

    def __init__(
        self,
        train: TrainGraph,
        path: str,
        *,
        step: int,
        console: Callable[[str], None],
        side: SideOutputs,
    ):
        self._path = path
        self._wanted = step
        self._global_step = train.global_step
        self._console = console
        self._side = side
        self._step = 0
        self._written = False

    def after_create_session(self, session: v1.Session, coord: object) -> None:
        """Notes where the loop starts."""
        self._step = int(session.run(self._global_step))

    def next_due(self, step: int) -> int:
        """The wanted step; none once it is past."""
        return self._wanted if step < self._wanted else NEVER

    def before_run(self, run_context: RunContext) -> RunArgs | None:
        """Asks TensorFlow to record the step."""
        if self._step + 1 != self._wanted:
            return None
        options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
        return v1.train.SessionRunArgs((), options=options)

    def after_run(self, run_context: RunContext, run_values: RunValues) -> None:
        """Writes what was recorded."""
        self._step += 1
        if self._step == self._wanted:
            self.write(run_values.run_metadata, self._step)
            self._written = True

    def end(self, session: v1.Session) -> None:
        """Reports that no file was written, if none was."""
        if not self._written:
            self._console(
                f"{self._path} is not written: it is about step {self._wanted}, which "
                "this run did not take"
            )

    def write(self, metadata: v1.RunMetadata, step: int) -> None:
        """Writes the file."""
        del step
        self._side.write("events of the trace", self._path, trace.text(metadata))

    def after_steps(self, step: int, losses: np.ndarray, seconds: float) -> None:
        """Notes where the loop is."""
        self._step = step
