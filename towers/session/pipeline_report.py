"""The report of the stages in one step: bubble, busy times, memory, a chart.

The numbers come from TensorFlow's trace of one step.  A stage is busy while one of its
passes runs.  The bubble is the share of time in which stages are not busy, between the
start of the first pass and the end of the last.  On a GPU a pass ends when its kernels
are launched, so the report shows the host's times.  Devices that only hold shards of
the model are not stages, and are reported separately.
"""

import html
import json
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from towers.errors.side_outputs import SideOutputs
from towers.graph import TrainGraph
from towers.layout import schedule
from towers.layout.placement import is_called
from towers.layout.schedule import Pass
from towers.layout.stages import Pipeline
from towers.pipelines import spans
from towers.pipelines.pipeline import PipelineTemplate
from towers.pipelines.spans import TowerSpan
from towers.session.trace import TraceStep

v1 = tf.compat.v1

ENOUGH = 0.95  # share of the time in which stages should be busy


class StageUse(NamedTuple):
    """One stage of one tower in the step, or a device that is not a stage."""

    scope: str
    stage: int
    device: str
    blocks: tuple[str, ...]
    busy: float  # seconds
    peak_bytes: int  # most memory allocated at a time on the device


class PipelineReport(NamedTuple):
    """The stages of the towers in a step."""

    stages: list[StageUse]
    seconds: float  # from the first pass to the end of the last
    num_stages: int
    micro_batches: int
    chunks: int
    # Share of time in which equal stages would be busy if micro-batches wait for one
    # another at batch norms; None if they do not.
    meeting: float | None = None
    beside: Sequence[StageUse] = ()  # devices that are not stages

    @property
    def bubble(self) -> float:
        """Share of the time in which stages were not busy."""
        busy = sum(stage.busy for stage in self.stages)
        return 1.0 - busy / (len(self.stages) * self.seconds)

    @property
    def ideal_bubble(self) -> float:
        """The bubble of equal stages: (K - 1) / (M V + K - 1).

        It is larger if micro-batches wait for one another at batch norms, or if the
        last group of micro-batches of an interleaved schedule is short.
        """
        if self.meeting is not None:
            return 1.0 - self.meeting
        return 1.0 - schedule.busy_share(
            self.num_stages, self.micro_batches, self.chunks
        )

    @property
    def imbalance(self) -> float:
        """The busiest stage over the mean of all; 1 is perfect."""
        busy = [stage.busy for stage in self.stages]
        return max(busy) * len(busy) / sum(busy)

    @property
    def most_busy(self) -> float:
        """Largest possible share of the time in which stages can be busy.

        The busiest stage limits it, however many micro-batches there are.
        """
        return 1.0 / self.imbalance

    @property
    def enough(self) -> int | None:
        """Smallest number of micro-batches with which equal stages are busy enough.

        None if there is no such number.  If micro-batches wait for one another in a
        batch norm, half of a stage's work cannot begin before all of them have passed
        the other half.  Two or more stages are then idle for at least a third of all
        forward passes, however many micro-batches there are.
        """
        if self.meeting is not None and self.num_stages > 1:
            return None
        return schedule.micro_batches_for(ENOUGH, self.num_stages, self.chunks)


def analyse(
    train: TrainGraph, metadata: v1.RunMetadata
) -> tuple[PipelineReport, list[TowerSpan]]:
    """The report of a step and its towers; one tower if they are asynchronous.

    Args:
      train: a graph whose towers are cut into stages.
      metadata: of a step with the options of `spans.traced`.
    """
    passes = spans.of_step(metadata)
    template = train.template
    assert isinstance(template, PipelineTemplate)
    how, chunks = template.pipeline, template.chunks
    peaks = peak_bytes(metadata)
    uses = []
    scopes = {span.scope for span in passes}
    for index, devices in enumerate(train.placement.stages):
        scope = f"tower_{index}"
        for stage, device in enumerate(devices if scope in scopes else ()):
            stage_passes = [s for s in passes if (s.scope, s.stage) == (scope, stage)]
            mine = chunks[stage :: how.stages] if stage < how.stages else ()
            uses.append(
                StageUse(
                    scope=scope,
                    stage=stage,
                    device=device,
                    blocks=tuple(name for chunk in mine for name in chunk.blocks),
                    busy=_busy(stage_passes),
                    peak_bytes=max(
                        (n for name, n in peaks.items() if is_called(device, name)),
                        default=0,
                    ),
                )
            )
    return PipelineReport(
        [use for use in uses if use.stage < how.stages],
        max(span.end for span in passes),
        how.stages,
        how.micro_batches,
        how.chunks,
        _meeting(how, template.legs),
        [use for use in uses if use.stage >= how.stages],
    ), passes


def _busy(passes: Sequence[TowerSpan]) -> float:
    """Seconds in which at least one of the passes, ordered by their start, runs.

    A stage's work on shards runs at the same time as its own passes.
    """
    busy = end = 0.0
    for span in passes:
        busy += max(0.0, span.end - max(span.begin, end))
        end = max(end, span.end)
    return busy


def _meeting(how: Pipeline, legs: schedule.Legs) -> float | None:
    """`PipelineReport.meeting` of this schedule."""
    if not legs.meeting or max(legs.counts.values()) == 1:
        return None
    return schedule.busy_share_in_legs(how.order(), legs)


def peak_bytes(metadata: v1.RunMetadata) -> dict[str, int]:
    """Device -> most bytes that a step had allocated at a time.

    Args:
      metadata: of a step with the options of `spans.traced`.
    """
    peaks = {}
    for device in metadata.step_stats.dev_stats:
        records = sorted(
            # At the same time, memory is freed before it is allocated.
            (record.alloc_micros, record.alloc_bytes)
            for node in device.node_stats
            for memory in node.memory
            for record in memory.allocation_records
        )
        now = peak = 0
        for _, size in records:
            now += size
            peak = max(peak, now)
        if records:
            peaks[device.device] = peak
    return peaks


def lines(report: PipelineReport, step: int) -> list[str]:
    """The report as lines of text.

    Args:
      report: of a step.
      step: its number.
    """
    chunks = f", V = {report.chunks}" if report.chunks > 1 else ""
    waits = "" if report.meeting is None else ", with the waits at batch norms"
    rows = [
        f"Pipeline in step {step}: bubble {100 * report.bubble:.1f} %; equal stages "
        f"would have {100 * report.ideal_bubble:.1f} % (K = {report.num_stages}, "
        f"M = {report.micro_batches}{chunks}{waits})"
    ]
    for use in (*report.stages, *report.beside):
        share = 100 * use.busy / report.seconds
        stage = f" stage {use.stage}" if use.blocks else ""
        rows.append(
            f"  {use.scope}{stage} on {use.device}: busy "
            f"{1e3 * use.busy:.2f} ms ({share:.1f} %), peak "
            f"{use.peak_bytes / 1e6:.2f} MB: {', '.join(use.blocks) or _SPREAD}"
        )
    rows.append(
        f"  imbalance {report.imbalance:.2f} (busiest stage over the mean); equal "
        f"stages are busy {100 * ENOUGH:.0f} % of the time {_from(report)}"
        + _of_these(report)
    )
    if any("GPU" in stage.device for stage in report.stages):
        rows.append("  times are of launching the kernels, which GPUs run later")
    return rows


# The work of a device that is not a stage.
_SPREAD = "its part of what is spread"


def _from(report: PipelineReport) -> str:
    """The number of micro-batches from which on stages are busy enough, in words."""
    if report.enough is None:
        return (
            "with no number of micro-batches, each of which waits for all at every "
            "batch norm"
        )
    groups = f", in multiples of {report.num_stages}" if report.chunks > 1 else ""
    return f"from num_micro_batches={report.enough} on{groups}"


def _of_these(report: PipelineReport) -> str:
    """The share that these stages can reach, in words, if that is not enough."""
    if report.most_busy >= ENOUGH:
        return ""
    return (
        f"; these at most {100 * report.most_busy:.0f} %, as the busiest sets the pace"
    )


def facts(report: PipelineReport, step: int) -> dict[str, Any]:
    """The report as JSON."""
    return {
        "step": step,
        "bubble": report.bubble,
        "ideal_bubble": report.ideal_bubble,
        "imbalance": report.imbalance,
        "most_busy": report.most_busy,
        "seconds": report.seconds,
        "num_stages": report.num_stages,
        "num_micro_batches": report.micro_batches,
        "chunks_per_stage": report.chunks,
        "enough_micro_batches": report.enough,
        "stages": [use._asdict() for use in report.stages],
        "beside": [use._asdict() for use in report.beside],
    }


def gantt(spans_of_step: Sequence[TowerSpan], title: str, num_stages: int) -> str:
    """A chart of a step's passes, as the text of an SVG file.

    Args:
      spans_of_step: the passes.
      title: of the chart.
      num_stages: of a tower; further devices are not stages.
    """
    rows = sorted({(span.scope, span.stage) for span in spans_of_step})
    end = max(span.end for span in spans_of_step)
    left, width, height = 130, 1000, 26
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 20}" '
        f'height="{height * (len(rows) + 3)}" font-family="sans-serif" font-size="12" '
        'style="background: white">',
        f'<text x="{left}" y="18">{html.escape(title)}</text>',
    ]
    rounds = 1 + max(span.what.chunk for span in spans_of_step) // num_stages
    for k, (scope, stage) in enumerate(rows):
        y = height * (k + 1)
        kind = "stage" if stage < num_stages else "device"
        parts.append(f'<text x="4" y="{y + 17}">{scope} {kind} {stage}</text>')
        for span in spans_of_step:
            if (span.scope, span.stage) == (scope, stage):
                colour = _colour(span.what, num_stages, rounds)
                parts.append(_bar(span, left, y, scale=width / end, colour=colour))
    y = height * (len(rows) + 1) + 17
    parts.append(
        f'<text x="{left}" y="{y}">0</text>'
        f'<text x="{left + width}" y="{y}" text-anchor="end">{1e3 * end:.1f} ms</text>'
        f'<text x="{left + 200}" y="{y}" fill="{_COLOURS[False][0]}">forward</text>'
        f'<text x="{left + 270}" y="{y}" fill="{_COLOURS[True][0]}">backward</text>'
    )
    if rounds > 1:
        parts.append(
            f'<text x="{left + 350}" y="{y}">of micro-batches; the darker, the later '
            "the chunk of the stage</text>"
        )
    return "\n".join([*parts, "</svg>\n"])


# Backward or not -> colours of a stage's first chunk, and of its last of several.
_COLOURS = {False: ("#3b75af", "#123456"), True: ("#519e3e", "#1d4a12")}


def _colour(pass_: Pass, num_stages: int, rounds: int) -> str:
    """The colour of a pass: by direction, shaded by the chunk of its stage."""
    ends = [
        [int(c[k : k + 2], 16) for k in (1, 3, 5)] for c in _COLOURS[pass_.backward]
    ]
    share = (pass_.chunk // num_stages) / max(1, rounds - 1)
    return "#" + "".join(f"{round(a + share * (b - a)):02x}" for a, b in zip(*ends))


def _bar(span: TowerSpan, left: float, y: float, *, scale: float, colour: str) -> str:
    x, width = left + span.begin * scale, (span.end - span.begin) * scale
    number = (
        f'<text x="{x + width / 2:.2f}" y="{y + 16}" text-anchor="middle" '
        f'fill="white" font-size="10">{span.what.micro_batch}</text>'
        if width > 12
        else ""
    )
    return (
        f'<rect x="{x:.2f}" y="{y + 2}" width="{max(width, 0.5):.2f}" height="20" '
        f'fill="{colour}" stroke="white" stroke-width="0.5">'
        f"<title>{span.what}: {1e3 * (span.end - span.begin):.3f} ms</title></rect>"
        f"{number}"
    )


def chrome_events(spans_of_step: Sequence[TowerSpan]) -> list[dict[str, Any]]:
    """The passes as Chrome trace events: a process per tower, a row per stage."""
    scopes = sorted({span.scope for span in spans_of_step})
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": scope}}
        for pid, scope in enumerate(scopes)
    ]
    for span in spans_of_step:
        way = "backward" if span.what.backward else "forward"
        events.append(
            {
                "ph": "X",
                "pid": scopes.index(span.scope),
                "tid": span.stage,
                "ts": 1e6 * span.begin,
                "dur": 1e6 * (span.end - span.begin),
                "name": f"{way} {span.what.micro_batch}",
                "args": {"chunk": span.what.chunk},
            }
        )
    return events


class ReportPipeline(TraceStep):
    """Reports one global step of the stages: prints lines and writes three files.

    These are `report.json`, `gantt.svg`, and `passes.json`, a Chrome trace.

    Args:
      folder: for the files.
      step: its number.
      console: takes lines.
      side: takes what cannot be written.
    """

    def __init__(
        self,
        train: TrainGraph,
        folder: str,
        *,
        step: int,
        console: Callable[[str], None],
        side: SideOutputs,
    ):
        path = os.path.join(folder, "report.json")
        super().__init__(train, path, step=step, console=console, side=side)
        self._train = train
        self._folder = folder

    def write(self, metadata: v1.RunMetadata, step: int) -> None:
        """Prints the lines and writes the files."""
        report, passes = analyse(self._train, metadata)
        printed = lines(report, step)
        for line in printed:
            self._console(line)
        contents = {
            "report.json": json.dumps(facts(report, step), indent=2),
            "gantt.svg": gantt(passes, printed[0], report.num_stages),
            "passes.json": json.dumps({"traceEvents": chrome_events(passes)}),
        }
        for name, text in contents.items():
            path = os.path.join(self._folder, name)
            self.side.write("reports of the stages", path, text)
