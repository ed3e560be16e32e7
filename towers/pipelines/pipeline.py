"""Pipeline parallelism: one tower on several devices, its batch in micro-batches.

The chain of blocks is cut into chunks (`chunk`), each on the device of its stage.  The
tower's batch is split into micro-batches, which pass through the stages in the order of
a `schedule`.  Each pass is one call of a function of the graph.  A control dependency
from each call to the next one of its stage enforces the order.  Activations and their
gradients are sent between devices as the calls' inputs.

The result is a `Tower` like any other.  Its loss and gradients are the sums over the
micro-batches.  Each of these computes its share of the joined batch's mean, so short or
empty micro-batches are exact.  Batch norm normalizes each micro-batch by itself, and
the tower's statistics are the means over its micro-batches.  Or batch norm is
synchronized over the micro-batches of one tower or of all towers, once in the forward
and once in the backward pass (see `sync_batch_norm`).
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from towers.compute import deterministic_sum, sync_batch_norm
from towers.compute.summaries import Made
from towers.compute.sync_batch_norm import SharedStatistics
from towers.compute.tower import Gradient, Site, StatisticRule, Tower, TowerSpec
from towers.data import nests
from towers.layout import parts as parts_lib
from towers.layout import placeholders
from towers.layout import schedule as schedule_lib
from towers.layout.partition import pieces_of
from towers.layout.schedule import Legs, Pass, ScheduleError
from towers.layout.stages import Pipeline
from towers.pipelines import calls as calls_lib
from towers.pipelines import chunk as chunk_lib
from towers.pipelines import segment as segment_lib
from towers.pipelines import segment_gradients
from towers.pipelines.calls import CallOutput, Calls, Function, Value
from towers.pipelines.chain import Blocks
from towers.pipelines.chunk import Chunk
from towers.pipelines.piece import Barrier


@dataclasses.dataclass(frozen=True)
class PipelineTemplate:
    """A traced pipeline, ready to be copied; the attributes of `tower.Template`.

    Attributes:
      pipeline: how it is cut.
      chunks: in the order of the model.
      passes: (stage, pass or leg) in a topological order.
      joined: how many batches share batch norm's statistics.
      trainable: names of the trainable variables, in order of creation.
      shapes: of the trainable variables.
      reads: name of each variable that is read -> the dtype in which it is read.
      statistics: (rule, name of the value) of the batch statistics.
      metrics: metric -> name of the value.
      owners: parts that are used on their own devices, `placeholders.owner` by number.
      summaries: of the model; no tower computes them.
      predictions: as `tower.Template` has it.
      parameters: number of trainable parameters.
      flops: floating point operations of one tower's step, without recomputation.
    """

    pipeline: Pipeline
    chunks: tuple[Chunk, ...]
    passes: tuple[tuple[int, Pass], ...]
    joined: SharedStatistics
    trainable: tuple[str, ...]
    shapes: dict[str, tf.TensorShape]
    reads: dict[str, tf.DType]
    statistics: tuple[tuple[StatisticRule, str], ...]
    metrics: dict[str, str]
    owners: tuple[str, ...]
    summaries: tuple[Made, ...]
    predictions: Any
    parameters: int
    flops: int

    @property
    def legs(self) -> Legs:
        """How passes are divided if batch norm synchronizes batches."""
        return _legs(self.joined, self.chunks)

    @property
    def differentiated(self) -> tuple[str, ...]:
        """The variables of `Tower.gradients`; none without training."""
        return self.trainable if any(c.first for c in self.chunks) else ()


def trace(
    task: TowerSpec, features: Any, labels: Any, *, create: Callable[..., Any]
) -> PipelineTemplate:
    """Traces the model once, segment by segment.

    Args:
      task: what a tower computes, and how it is cut.
      features: nest of `tf.TensorSpec`s [batch, ...], of a tower's batch.
      labels: nest of `tf.TensorSpec`s [batch, ...].
      create: creates a variable, as in `tower.trace`; also gets `stage`, the number of
        the first stage that reads it.

    Raises:
      ValueError: as in `tower.trace`; or the passes cannot run in the schedule's order.
    """
    pipeline = task.pipeline
    assert pipeline
    groups = _groups(task.model.blocks, pipeline)
    chunk_of = [c for c, blocks in enumerate(groups) for _ in blocks]
    segments = segment_lib.trace(
        task,
        [blocks for group in groups for blocks in group],
        segment_lib.MicroBatchSpec.of(features, labels, pipeline.micro_batches),
        create=lambda *args, segment, **options: create(
            *args, stage=chunk_of[segment] % pipeline.stages, **options
        ),
        recomputed=pipeline.recomputed(len(chunk_of)),
    )
    shapes = {k: v for s in segments for k, v in s.shapes.items()}
    chunks = []
    for c in range(len(groups)):
        of_chunk = [s for s, of in zip(segments, chunk_of) if of == c]
        chunks.append(chunk_lib.make(c, of_chunk, pipeline.micro_batches))
    return PipelineTemplate(
        pipeline=pipeline,
        chunks=tuple(chunks),
        passes=tuple(_sequence(task, pipeline, chunks)),
        joined=task.joined,
        trainable=tuple(shapes),
        shapes=shapes,
        reads={k: v for s in segments for k, v in s.reads.items()},
        statistics=tuple(
            (rule, f"statistic{s.number}/{i}")
            for s in segments
            for i, rule in enumerate(s.statistics)
        ),
        metrics={
            name.removeprefix("share/"): name
            for name in segments[-1].forward.outputs
            if name.startswith("share/") and name != "share/loss"
        },
        owners=segments[0].owners,
        summaries=tuple(summary for s in segments for summary in s.summaries),
        predictions=segments[-1].predictions,
        parameters=sum(shape.num_elements() for shape in shapes.values()),
        flops=pipeline.micro_batches * sum(s.flops for s in segments),
    )


def _sequence(
    task: TowerSpec, pipeline: Pipeline, chunks: Sequence[Chunk]
) -> list[tuple[int, Pass]]:
    """(stage, pass) in a topological order, passes divided into legs where needed."""
    legs, order = _legs(task.joined, chunks), pipeline.order(training=task.training)
    try:
        return schedule_lib.sequence(legs.divide(order), legs)
    except ScheduleError as error:
        if not legs.meeting:
            raise ScheduleError(f"schedule {pipeline.schedule}: {error}") from error
        raise ScheduleError(
            f"batch norm waits for all {legs.meeting} micro-batches, which schedule "
            f"{pipeline.schedule} does not bring together ({error}); write schedule "
            "gpipe, or batch norm by micro-batches"
        ) from error


def _legs(joined: SharedStatistics, chunks: Sequence[Chunk]) -> Legs:
    counts = {key: count for chunk in chunks for key, count in chunk.legs.items()}
    return Legs(counts, joined.micro_batches if joined.micro_batches > 1 else 0)


def _groups(blocks: Blocks, pipeline: Pipeline) -> list[list[Blocks]]:
    """For each chunk the blocks of its segments."""
    pieces = pieces_of(pipeline.cut or (len(blocks),), blocks)
    assert len(pieces) == pipeline.stages * pipeline.chunks, (pieces, pipeline)
    if pipeline.recompute in ("block", "auto"):
        return [[[block] for block in piece] for piece in pieces]
    return [[piece] for piece in pieces]


def copy_pipelines(sites: Sequence[Site]) -> list[Tower]:
    """Adds towers to the current graph.

    Args:
      sites: of the towers, in order, with templates from `trace`.
    """
    # Without a caller's name scope or device, which would move the towers.
    with tf.compat.v1.name_scope(None), tf.device(None):
        calls = Calls()
        stamps = [_Stamp(site, calls) for site in sites]
        meetings = _Meetings(stamps, calls)
        for stage, pass_ in sites[0].template.passes:  # which are those of all
            # All towers send the inputs of a join before the first one receives it.
            for index, stamp in enumerate(stamps):
                meetings.attend(index, stage, pass_)
                stamp.call(stage, pass_)
        calls.place()
        return [stamp.tower(index) for index, stamp in enumerate(stamps)]


class _Meetings:
    """The joins of synchronized batch norm, each added once for all its receivers."""

    def __init__(self, stamps: "Sequence[_Stamp]", calls: Calls):
        self._template = stamps[0].template
        self._stamps = stamps
        self._calls = calls
        self._joined: dict[tuple[str, str, int], CallOutput] = {}
        self._functions: dict[tuple, Function] = {}

    def attend(self, index: int, stage: int, pass_: Pass) -> None:
        """Adds the joins that a pass receives to its micro-batch's values."""
        chunk = self._stamps[index].template.chunks[pass_.chunk]
        function = chunk.function(pass_)
        values = self._stamps[index].values[pass_.micro_batch]
        for name in function.inputs if function else ():
            if name in chunk.meetings and name not in values:
                values[name] = self._join(name, index, stage, pass_)

    def _join(self, name: str, index: int, stage: int, pass_: Pass) -> CallOutput:
        joint = self._template.joined
        stamps = self._stamps if joint.towers > 1 else self._stamps[index : index + 1]
        several = joint.micro_batches > 1
        pieces = range(joint.micro_batches) if several else [pass_.micro_batch]
        first = stamps[0]
        key = name, first.scope, pieces[0]
        if key not in self._joined:
            meeting = self._template.chunks[pass_.chunk].meetings[name]
            sent = [stamp.values[m][meeting.sent] for stamp in stamps for m in pieces]
            outputs = self._calls.add(
                self._function(meeting, [s.batch_size for s in stamps for _ in pieces]),
                {str(k): value for k, value in enumerate(sent)},
                name=f"{first.scope}stage_{stage}/micro_batch_{pieces[0]}/{name}",
                device=first.devices[stage],
            )
            self._joined[key] = outputs["joined"]
        return self._joined[key]

    def _function(self, meeting: Barrier, sizes: list[int]) -> Function:
        """The function of a join, which is called like the passes."""
        key = meeting.join, tuple(meeting.spec.shape), tuple(sizes)
        if key not in self._functions:
            join = sync_batch_norm.JOINS[meeting.join]
            self._functions[key] = calls_lib.trace(
                meeting.join,
                lambda values: {"joined": join(list(values.values()), sizes)},
                {str(k): meeting.spec for k in range(self._template.joined.count)},
                ["joined"],
            )
        return self._functions[key]


class _Stamp:
    """A tower that is being added to the graph.

    Attributes:
      template, batch_size: of the tower.
      scope: prefix of its operations' names.
      devices: [stages].
      values: [micro-batches], name -> value so far.
    """

    def __init__(self, site: Site, calls: Calls):
        self.template = template = site.template
        self.batch_size = site.batch_size
        self._all = site.devices
        self._owners = [site.reads[name].device for name in template.owners]
        self._calls = calls
        pipeline = template.pipeline
        site = site._replace(devices=site.devices[: pipeline.stages])
        self.devices = site.devices
        inputs: dict[str, Value] = {f"read/{k}": read for k, read in site.reads.items()}
        scalars = ("total_weight", "loss_scale", "progress")
        inputs |= {name: site.inputs[name] for name in scalars if name in site.inputs}
        with tf.name_scope(site.scope) as self.scope:
            micro_batches = _split(site, pipeline.micro_batches)
        self.values = [inputs | micro_batch for micro_batch in micro_batches]
        # [stages], the last call so far; [chunks], the sums of gradients so far.
        self._last: list[str | None] = [None] * pipeline.stages
        self._sums: list[dict[str, CallOutput]] = [{} for _ in template.chunks]

    def call(self, stage: int, pass_: Pass) -> None:
        """Adds a pass."""
        chunk = self.template.chunks[pass_.chunk]
        values = self.values[pass_.micro_batch]
        function = chunk.function(pass_)
        if function is None:
            return
        if pass_.backward and pass_.micro_batch:
            values = values | self._sums[pass_.chunk]
        name = f"{'backward' if pass_.backward else 'forward'}_{pass_.chunk}"
        name += f"_leg_{pass_.leg}" if pass_.leg else ""
        outputs: dict[str, CallOutput] = {}
        for k, (pinned, part) in enumerate(function.steps):
            # A step on another device is not part of the stage's order: it waits only
            # for its inputs.
            where, number = self.devices[stage], stage
            if pinned:
                where = placeholders.of_node(pinned, self._all, self._owners)
                number = self._all.index(where) if where in self._all else stage
            of = f"stage_{number}/micro_batch_{pass_.micro_batch}/{name}"
            step_outputs = self._calls.add(
                part,
                values | outputs,
                name=f"{self.scope}{of}" + (f"/step_{k}" if k else ""),
                device=where,
                after=None if pinned else self._last[stage],
            )
            if not pinned:
                self._last[stage] = next(iter(step_outputs.values())).call
            outputs |= step_outputs
        self._sums[pass_.chunk] |= {k: v for k, v in outputs.items() if k[:3] == "sum"}
        self.values[pass_.micro_batch] |= outputs

    def tower(self, index: int) -> Tower:
        """The tower's results, once its passes are in the graph."""
        template = self.template
        with tf.name_scope(self.scope):
            with tf.device(self.devices[-1]):
                loss = self._sum("share/loss")
                join = self._concat if template.predictions else self._sum
                metrics = {name: join(v) for name, v in template.metrics.items()}
            return Tower(
                index=index,
                device=self.devices[0],
                loss=loss,
                gradients=[self._gradient(name) for name in template.differentiated],
                statistics=[self._statistic(*row) for row in template.statistics],
                metrics=metrics,
            )

    def _each(self, value: str) -> list[tf.Tensor]:
        """A value of every micro-batch."""
        return [values[value].tensor() for values in self.values]

    def _sum(self, value: str) -> tf.Tensor:
        """The sum of a value over the micro-batches."""
        return deterministic_sum.sum_in_order(self._each(value))

    def _concat(self, value: str) -> tf.Tensor:
        """The rows of a value of all micro-batches."""
        return tf.concat(self._each(value), 0)

    def _statistic(self, rule: StatisticRule, value: str) -> tf.Tensor:
        """The mean of a value over the micro-batches, or the sum, on its device."""
        with tf.device(self._each(value)[0].device):
            total = self._sum(value)
            return total if rule.is_state else total / len(self.values)

    def _gradient(self, variable: str) -> Gradient:
        """The gradient of a variable, summed over all stages that use it."""
        by_stage: list[tuple[int, list[tf.Tensor]]] = []
        shape = self.template.shapes[variable]
        for chunk in self.template.chunks:
            stage = chunk.number % len(self.devices)
            if variable in chunk.dense:
                total = self._sums[chunk.number][f"sum{chunk.number}/{variable}"]
                by_stage.append((stage, [total.tensor(shape)]))
            elif variable in chunk.sparse:
                with tf.device(self.devices[stage]):
                    by_stage.append((stage, self._joined(chunk.number, variable)))
        if not by_stage:
            return None
        if len(by_stage) == 1:
            stage, parts = by_stage[0]
            if len(parts) == 1:
                return parts[0]
            with tf.device(self.devices[stage]):
                return tf.IndexedSlices(*parts, tf.constant(shape.as_list(), tf.int64))
        where = [self.devices[stage] for stage, _ in by_stage]
        if parts_lib.is_part(variable):  # dense gradients stay on their devices
            wholes = [parts[0].device for _, parts in by_stage if len(parts) == 1]
            where = (wholes or where)[:1] * len(by_stage)
        dense, dtype = [], tf.float32 if len(self.values) > 1 else None  # of sums
        for device, (_, parts) in zip(where, by_stage):
            with tf.device(device):
                dense.append(segment_gradients.dense(parts, shape, dtype))
        with tf.device(where[0]):
            return deterministic_sum.sum_in_order(dense)

    def _joined(self, number: int, variable: str) -> list[tf.Tensor]:
        """Values and indices of a sparse gradient, of all micro-batches."""
        return [self._concat(f"sparse{number}/{variable}/{i}") for i in (0, 1)]


def _split(site: Site, count: int) -> list[dict[str, tf.Tensor]]:
    """Splits a tower's batch into micro-batches, on the stages that read them."""
    inputs = site.inputs
    size = inputs["weights"].shape[0] // count
    sizes = [size] * count  # explicit, as GPUs have no kernel of an even int32 split
    pieces: dict[str, list[tf.Tensor]] = {}
    for name, tensor in inputs.items():
        if kind := nests.of_batch(name):
            with tf.device(site.devices[0 if kind == "features" else -1]):
                pieces[name] = tf.split(tensor, sizes)
    with tf.device(inputs["first"].device):
        firsts = inputs["first"] + tf.range(count, dtype=tf.int64) * size
        pieces["first"] = tf.unstack(firsts)
    return [dict(zip(pieces, tensors)) for tensors in zip(*pieces.values())]
