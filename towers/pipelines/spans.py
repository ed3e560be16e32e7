"""The times of the passes of pipelines, from the trace of a step."""

import re
from typing import NamedTuple

import tensorflow as tf

from towers.layout.schedule import Pass

v1 = tf.compat.v1

_CALL = re.compile(
    r"(.*)/stage_(\d+)/micro_batch_(\d+)/(forward|backward)_(\d+)(?:_leg_(\d+))?"
    r"/(?:step_\d+/)?\w*PartitionedCall$"
)


class TowerSpan(NamedTuple):
    """The time of a tower's pass, in seconds from the start of the first pass."""

    scope: str  # of the tower, such as `tower_0`
    stage: int
    what: Pass
    begin: float
    end: float


def traced() -> v1.RunOptions:
    """The options of a `session.run` whose metadata `of_step` reads."""
    return v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)


def of_step(metadata: v1.RunMetadata) -> list[TowerSpan]:
    """The passes of all towers in one step, in the order of their start.

    Args:
      metadata: of a `session.run` with the options of `traced`.
    """
    spans = []
    for device in metadata.step_stats.dev_stats:
        for node in device.node_stats:
            name = node.node_name.split(":")[0]
            match = _CALL.match(name)
            if match and "stream" not in device.device:
                scope, stage, micro_batch, way, chunk, leg = match.groups()
                pass_ = Pass(
                    int(chunk), int(micro_batch), way == "backward", int(leg or 0)
                )
                begin = node.all_start_micros
                end = begin + node.all_end_rel_micros
                spans.append(TowerSpan(scope, int(stage), pass_, begin, end))
    start = min((span.begin for span in spans), default=0)
    spans = [
        span._replace(begin=(span.begin - start) / 1e6, end=(span.end - start) / 1e6)
        for span in spans
    ]
    return sorted(spans, key=lambda span: (span.begin, span.end))
