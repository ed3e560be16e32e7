"""TensorFlow's profile of some steps: time and memory of each kind of operation."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from towers.callbacks.base import NEVER, Callback, RunArgs, RunContext, RunValues
from towers.errors.side_outputs import SideOutputs
from towers.graph import TrainGraph

v1 = tf.compat.v1

_STEPS = 10  # as in tf_cnn_benchmarks
_SHOWN = 20  # kinds of operations that are printed


class ProfileOperations(Callback):
    """Profiles the first steps after a global step, and prints the dearest operations.

    Args:
      train: the graph.
      path: of the file, a serialized `tensorflow.tfprof.ProfileProto`.
      after: the global step before the first that is profiled.
      console: takes lines for the user.
      side: takes what cannot be written.
    """

    def __init__(
        self,
        train: TrainGraph,
        path: str,
        *,
        after: int,
        console: Callable[[str], None],
        side: SideOutputs,
    ):
        self._train = train
        self._path = path
        self._after = after
        self._console = console
        self._side = side
        self._step = self._count = 0
        self._profiler: v1.profiler.Profiler | None = None

    def after_create_session(self, session: v1.Session, coord: object) -> None:
        """Notes where the loop starts."""
        self._step = int(session.run(self._train.global_step))
        self._after = max(self._after, self._step)
        self._profiler = v1.profiler.Profiler(self._train.graph)

    def next_due(self, step: int) -> int:
        """Each of the profiled steps; none after them."""
        following = max(step, self._after) + 1
        return following if following <= self._after + _STEPS else NEVER

    def before_run(self, run_context: RunContext) -> RunArgs | None:
        """Asks TensorFlow to record the step."""
        if self.next_due(self._step) != self._step + 1:
            return None
        options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
        return v1.train.SessionRunArgs((), options=options)

    def after_run(self, run_context: RunContext, run_values: RunValues) -> None:
        """Adds what was recorded."""
        wanted, self._step = self.next_due(self._step), self._step + 1
        if wanted == self._step:
            assert self._profiler is not None
            self._profiler.add_step(self._count, run_values.run_metadata)
            self._count += 1

    def after_steps(self, step: int, losses: np.ndarray, seconds: float) -> None:
        """Notes where the loop is."""
        self._step = step

    def end(self, session: v1.Session) -> None:
        """Writes the profile and prints its table."""
        if not self._count:
            self._console(
                f"{self._path} is not written: it is about the steps from "
                f"{self._after + 1} on, which this run did not take"
            )
            return
        assert self._profiler is not None
        content = self._profiler.serialize_to_string()
        self._side.write("profiles", self._path, content)
        options = v1.profiler.ProfileOptionBuilder.time_and_memory()
        options["max_depth"] = _SHOWN
        on_gpu = self._train.placement.kind == "gpu"
        options["order_by"] = "accelerator_micros" if on_gpu else "micros"
        self._profiler.profile_operations(options)
