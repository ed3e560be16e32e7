"""A Chrome trace of one step, from TensorFlow's `RunMetadata`."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from towers.callbacks.base import NEVER, Callback, RunArgs, RunContext, RunValues
from towers.errors.side_outputs import SideOutputs
from towers.graph import TrainGraph

v1 = tf.compat.v1


def events(metadata: v1.RunMetadata) -> list[dict[str, Any]]:
    """The step as Chrome trace events: a process per device, a row per lane.

    Operations that overlap on a device go to different lanes.  Times are in
    microseconds from the start of the step.

    Args:
      metadata: of a run with `trace_level=FULL_TRACE`.
    """
    entries: list[dict[str, Any]] = []
    nodes = [
        (stats.device, node)
        for stats in metadata.step_stats.dev_stats
        for node in stats.node_stats
    ]
    origin = min((node.all_start_micros for _, node in nodes), default=0)
    devices = sorted({device for device, _ in nodes})
    free: dict[str, list[int]] = {device: [] for device in devices}
    for pid, device in enumerate(devices):
        name = {"name": device}
        entries.append({"ph": "M", "pid": pid, "name": "process_name", "args": name})
    for device, node in sorted(nodes, key=lambda pair: pair[1].all_start_micros):
        begin = node.all_start_micros - origin
        end = begin + max(node.all_end_rel_micros, 1)
        lanes = free[device]
        lane = next((i for i, busy in enumerate(lanes) if busy <= begin), len(lanes))
        lanes[lane : lane + 1] = [end]
        entries.append(
            {
                "ph": "X",
                "pid": devices.index(device),
                "tid": lane,
                "ts": begin,
                "dur": end - begin,
                "name": _operation(node.timeline_label) or node.node_name,
                "args": {"name": node.node_name, "label": node.timeline_label},
            }
        )
    return entries


def text(metadata: v1.RunMetadata) -> str:
    """The JSON that `chrome://tracing` and Perfetto read."""
    return json.dumps({"traceEvents": events(metadata)})


def _operation(label: str) -> str:
    """The type in `name = Type(inputs)`."""
    return label.split(" = ")[-1].split("(")[0] if " = " in label else ""


class TraceStep(Callback):
    """Writes a Chrome trace of one global step.

    Args:
      path: of the JSON file; `chrome://tracing` and Perfetto read it.
      step: which.
      console: takes a line if the step is never taken.
      side: takes what cannot be written.

    Attributes:
      path, side: as given.
      options: of the session call, with what TensorFlow is to record.
    """

    options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)

    def __init__(
        self,
        train: TrainGraph,
        path: str,
        *,
        step: int,
        console: Callable[[str], None],
        side: SideOutputs,
    ):
        self.path = path
        self._wanted = step
        self._global_step = train.global_step
        self._console = console
        self.side = side
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
        return v1.train.SessionRunArgs((), options=self.options)

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
                f"{self.path} is not written: it is about step {self._wanted}, which "
                "this run did not take"
            )

    def write(self, metadata: v1.RunMetadata, step: int) -> None:
        """Writes the file."""
        del step
        self.side.write("events of the trace", self.path, text(metadata))

    def after_steps(self, step: int, losses: np.ndarray, seconds: float) -> None:
        """Notes where the loop is."""
        self._step = step
