"""Pipelines: one tower on several devices, its batch in micro-batches.

The chain of blocks is cut into chunks (`chunk`), each on the device of its stage; the
tower's batch is cut into micro-batches, which pass the stages in the order of a
`schedule`.  Each pass is one call of a function of the graph.  A control dependency
from each call to the next one of its stage holds the order; activations and their
gradients travel between devices as the calls' inputs.

What comes out is a `Tower` like any other.  Its loss and gradients are the sums over
the micro-batches, each of which has its share of the joined batch's mean, so a short or
empty micro-batch is exact.  Batch norm normalises by the micro-batch, and the tower's
statistics are the means over its micro-batches.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from towers.compute import addition
from towers.compute.tower import Gradient, Site, StatisticRule, Task, Tower
from towers.layout import parts as parts_lib
from towers.layout import placement
from towers.layout import schedule as schedule_lib
from towers.layout.partition import pieces_of
from towers.layout.schedule import Pass
from towers.layout.stages import Pipeline
from towers.pipelines import chunk as chunk_lib
from towers.pipelines import segment as segment_lib
from towers.pipelines.calls import Calls, Output, Value
from towers.pipelines.chunk import Chunk

v1 = tf.compat.v1


@dataclasses.dataclass(frozen=True)
class PipelineTemplate:
    """A traced pipeline, ready to be stamped; the attributes of `tower.Template`.

    Attributes:
      pipeline: how it is cut.
      chunks: in the order of the model.
      passes: (stage, pass) in an order in which none waits for a later one.
      trainable: names of the trainable variables, in order of creation.
      shapes: of them.
      reads: the variables that it reads, each with the dtype in which it does.
      statistics: (rule, name of the value) of the batch statistics.
      metrics: metric -> name of the value.
      owners: what `placement.owner` numbers: parts of variables.
      parameters: number of trainable parameters.
      flops: floating point operations of one tower's step, without recomputation.
    """

    pipeline: Pipeline
    chunks: tuple[Chunk, ...]
    passes: tuple[tuple[int, Pass], ...]
    trainable: tuple[str, ...]
    shapes: dict[str, tf.TensorShape]
    reads: dict[str, tf.DType]
    statistics: tuple[tuple[StatisticRule, str], ...]
    metrics: dict[str, str]
    owners: tuple[str, ...]
    parameters: int
    flops: int

    @property
    def differentiated(self) -> tuple[str, ...]:
        """The variables that a tower has a gradient for, or None in its place."""
        training = any(chunk.first for chunk in self.chunks)
        return self.trainable if training else ()


def trace(
    task: Task,
    features: tf.TensorSpec,
    labels: tf.TensorSpec,
    *,
    create: Callable[..., Any],
) -> PipelineTemplate:
    """Runs the model's Python once, stage by stage.

    Args:
      task: what a tower computes, and how it is cut.
      features: shape [batch, ...] and dtype of a tower's batch.
      labels: shape [batch, ...] and dtype.
      create: makes a variable, as `tower.trace` has it; also gets `stage`, the number
        of the first that asks for it.

    Raises:
      ValueError: as `tower.trace` has it; or the order of the passes cannot be kept.
    """
    pipeline = task.pipeline
    passes = schedule_lib.sequence(pipeline.order(training=task.training))
    groups = _groups(task.model.blocks, pipeline)
    chunk_of = [c for c, blocks in enumerate(groups) for _ in blocks]
    segments = segment_lib.trace(
        task,
        [blocks for group in groups for blocks in group],
        segment_lib.Batch(pipeline.micro_batch(features), pipeline.micro_batch(labels)),
        create=_by_stage(create, [c % pipeline.stages for c in chunk_of]),
        recomputed=pipeline.recomputed(len(chunk_of)),
    )
    shapes = {k: v for s in segments for k, v in s.shapes.items()}
    return PipelineTemplate(
        pipeline=pipeline,
        chunks=tuple(
            chunk_lib.make(
                c,
                [s for s, of in zip(segments, chunk_of) if of == c],
                pipeline.micro_batches,
            )
            for c in range(len(groups))
        ),
        passes=tuple(passes),
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
        parameters=sum(shape.num_elements() for shape in shapes.values()),
        flops=pipeline.micro_batches * sum(s.flops for s in segments),
    )


def _groups(blocks: Sequence, pipeline: Pipeline) -> list[list[Sequence]]:
    """For each chunk the blocks of its segments."""
    pieces = pieces_of(pipeline.cut or (len(blocks),), blocks)
    assert len(pieces) == pipeline.stages * pipeline.chunks, (pieces, pipeline)
    if pipeline.recompute in ("block", "auto"):
        return [[[block] for block in piece] for piece in pieces]
    return [[piece] for piece in pieces]


def _by_stage(create: Callable[..., Any], stages: Sequence[int]) -> Callable[..., Any]:
    def create_at(name, shape, initializer, *, segment, **options):
        return create(name, shape, initializer, stage=stages[segment], **options)

    return create_at


def stamp(template: PipelineTemplate, sites: Sequence[Site]) -> list[Tower]:
    """Adds towers to the current graph.

    Args:
      template: from `trace`.
      sites: of the towers, in order.
    """
    # The scope is absolute: a caller's name scope or device does not move a tower.
    with v1.name_scope(None), tf.device(None):
        calls = Calls()
        stamps = [_Stamp(template, site, calls) for site in sites]
        calls.place()
        return [stamp.tower(index) for index, stamp in enumerate(stamps)]


class _Stamp:
    """One tower while it is added to the graph."""

    def __init__(self, template: PipelineTemplate, site: Site, calls: Calls):
        self._template = template
        self._all = site.devices
        self._owners = [site.reads[name].device for name in template.owners]
        self._calls = calls
        pipeline = template.pipeline
        site = site._replace(devices=site.devices[: pipeline.stages])
        self._devices = site.devices
        given: dict[str, Value] = {f"read/{k}": read for k, read in site.reads.items()}
        beside = ("total_weight", "loss_scale")
        given |= {name: site.inputs[name] for name in beside if name in site.inputs}
        with tf.name_scope(site.scope) as self._scope:
            micro_batches = _split(site, pipeline.micro_batches)
        self._values = [given | micro_batch for micro_batch in micro_batches]
        # The last call of each stage, and the sums that each chunk has so far.
        self._last: list[str | None] = [None] * pipeline.stages
        self._sums: list[dict[str, Output]] = [{} for _ in template.chunks]
        for stage, one in template.passes:
            self._call(stage, one)

    def _call(self, stage: int, one: Pass) -> None:
        """Adds a pass."""
        chunk = self._template.chunks[one.chunk]
        values = self._values[one.micro_batch]
        function, name = chunk.forward, f"forward_{one.chunk}"
        if one.backward:
            function, name = chunk.first, f"backward_{one.chunk}"
            if one.micro_batch:
                function, values = chunk.later, values | self._sums[one.chunk]
            if function is None:
                return
        found: dict[str, Output] = {}
        for k, (said, part) in enumerate(function.steps):
            # What lies elsewhere is no part of that stage's order: it only waits for
            # what it reads.
            where, number = self._devices[stage], stage
            if said:
                where = placement.of_node(said, self._all, self._owners)
                number = self._all.index(where) if where in self._all else stage
            of = f"stage_{number}/micro_batch_{one.micro_batch}/{name}"
            made = self._calls.add(
                part,
                values | found,
                name=f"{self._scope}{of}" + (f"/step_{k}" if k else ""),
                device=where,
                after=None if said else self._last[stage],
            )
            if not said:
                self._last[stage] = next(iter(made.values())).call
            found |= made
        sums = {name: value for name, value in found.items() if name[:3] == "sum"}
        self._sums[one.chunk] |= sums
        self._values[one.micro_batch] |= found

    def tower(self, index: int) -> Tower:
        """What the passes come to, once they are in the graph."""
        template = self._template
        with tf.name_scope(self._scope):
            with tf.device(self._devices[-1]):
                loss = self._sum("share/loss")
                metrics = {name: self._sum(v) for name, v in template.metrics.items()}
            return Tower(
                index=index,
                device=self._devices[0],
                loss=loss,
                gradients=[self._gradient(name) for name in template.differentiated],
                statistics=[self._mean(value) for _, value in template.statistics],
                metrics=metrics,
            )

    def _each(self, value: str) -> list[tf.Tensor]:
        """Of every micro-batch."""
        return [values[value].tensor() for values in self._values]

    def _sum(self, value: str) -> tf.Tensor:
        """Over the micro-batches."""
        return addition.in_order(self._each(value))

    def _mean(self, value: str) -> tf.Tensor:
        """Over the micro-batches, where they are."""
        with tf.device(self._each(value)[0].device):
            return self._sum(value) / len(self._values)

    def _gradient(self, variable: str) -> Gradient:
        """Of all uses of a variable, in all stages."""
        found: list[tuple[int, list[tf.Tensor]]] = []
        for chunk in self._template.chunks:
            stage = chunk.number % len(self._devices)
            if variable in chunk.dense:
                total = self._sums[chunk.number][f"sum{chunk.number}/{variable}"]
                found.append((stage, [total.tensor()]))
            elif variable in chunk.sparse:
                with tf.device(self._devices[stage]):
                    found.append((stage, self._joined(chunk.number, variable)))
        if not found:
            return None
        shape = self._template.shapes[variable]
        if len(found) == 1:
            stage, parts = found[0]
            if len(parts) == 1:
                return parts[0]
            with tf.device(self._devices[stage]):
                return tf.IndexedSlices(*parts, tf.constant(shape.as_list(), tf.int64))
        where = [self._devices[stage] for stage, _ in found]
        if parts_lib.is_part(variable):  # what is whole already stays where it is
            wholes = [parts[0].device for _, parts in found if len(parts) == 1]
            where = (wholes or where)[:1] * len(found)
        dense = []
        for device, (_, parts) in zip(where, found):
            with tf.device(device):
                dense.append(chunk_lib.dense_gradient(parts, shape))
        with tf.device(where[0]):
            return addition.in_order(dense)

    def _joined(self, number: int, variable: str) -> list[tf.Tensor]:
        """Values and indices of a sparse gradient, of all micro-batches."""
        return [
            tf.concat(self._each(f"sparse{number}/{variable}/{i}"), 0) for i in (0, 1)
        ]


def _split(site: Site, count: int) -> list[dict[str, tf.Tensor]]:
    """A tower's batch in micro-batches, where the stages read it."""
    inputs = site.inputs
    with tf.device(site.devices[0]):
        features = tf.split(inputs["features"], count)
        size = features[0].shape[0]
    with tf.device(site.devices[-1]):
        labels = tf.split(inputs["labels"], count)
        weights = tf.split(inputs["weights"], count)
    with tf.device(inputs["first"].device):
        offsets = tf.range(count, dtype=tf.int64) * size
        firsts = tf.unstack(inputs["first"] + offsets)
    names = ("features", "labels", "weights", "first")
    return [dict(zip(names, v)) for v in zip(features, labels, weights, firsts)]
