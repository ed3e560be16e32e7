"""A Chrome trace of one step, from TensorFlow's `RunMetadata`."""

import json
from typing import Any

import tensorflow as tf


def events(metadata: tf.compat.v1.RunMetadata) -> list[dict[str, Any]]:
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


def text(metadata: tf.compat.v1.RunMetadata) -> str:
    """The JSON that `chrome://tracing` and Perfetto read."""
    return json.dumps({"traceEvents": events(metadata)})


def _operation(label: str) -> str:
    """The type in `name = Type(inputs)`."""
    return label.split(" = ")[-1].split("(")[0] if " = " in label else ""
