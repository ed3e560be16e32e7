"""The cost of each block of a model, and the cut into stages that balances it.

Stages with equal floating point operations or parameters may take different times.  So
time is measured, on the device of the first stage, and cached in a file for later runs
of the same model on the same machine.

Layers that are sharded over the devices of all stages, such as the last one, cost every
stage the same for every cut.  They are not counted, as a constant does not change which
cut is best.
"""

import dataclasses
import hashlib
import math
import os
import platform
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from models.validation import check, one_of
from towers.compute.flops import of_operations
from towers.compute.sync_batch_norm import SharedStatistics
from towers.compute.tower import Site, TowerSpec
from towers.data import nests
from towers.data.source import Batch
from towers.errors.cache_file import CacheFile
from towers.layout import partition, schedule
from towers.layout.parts import is_part
from towers.layout.placement import Placement, session_config
from towers.layout.stages import Pipeline
from towers.pipelines import pipeline, segment, spans
from towers.pipelines.segment import Segment
from towers.variable_update.variable_store import VariableStore

v1 = tf.compat.v1

_REPEATS = 5  # traced steps; the fastest run of each pass counts
_SEED = 1


@dataclasses.dataclass(frozen=True)
class TowerToCut:
    """A tower to be cut into stages.

    Attributes:
      task: what a tower computes.
      batch: nests of the features and labels of a micro-batch.
      placement: of the towers.
    """

    task: TowerSpec
    batch: segment.MicroBatchSpec
    placement: Placement

    def segments(self) -> list[Segment]:
        """One for each block."""
        return segment.trace(
            self.task,
            [[block] for block in self.task.model.blocks],
            self.batch,
            create=lambda *args, **options: None,
        )


def flops(work: TowerToCut) -> list[float]:
    """Floating point operations of each block, forward and backward."""
    return [float(_own_flops(block)) for block in work.segments()]


def _own_flops(block: Segment) -> int:
    """Floating point operations of a block that run on its stage's own device."""
    ops = {
        op
        for piece in (block.forward, block.backward)
        if piece
        for op in piece.operations
    }
    return of_operations([op for op in ops if not op.device])


def params(work: TowerToCut) -> list[float]:
    """Trainable parameters of each block; shared ones count for each of its users."""
    return [
        float(sum(v.num_elements() for k, v in block.shapes.items() if not is_part(k)))
        for block in work.segments()
    ]


def time(work: TowerToCut) -> list[float]:
    """Seconds of each block, forward and backward; measured once, then cached.

    If a part of a block is sharded, its time is scaled by the other operations' share
    of the block's floating point operations.
    """
    if work.task.shards is None:
        return _time(work)
    whole = dataclasses.replace(work, task=dataclasses.replace(work.task, shards=None))
    return [
        seconds * kept / (total or 1.0)
        for seconds, kept, total in zip(_time(whole), flops(work), flops(whole))
    ]


def _time(work: TowerToCut) -> list[float]:
    """Seconds of each unsharded block, from the cache or measured."""
    file = CacheFile("block_times", f"{_key(work)}.json")
    names = [name for name, _ in work.task.model.blocks]
    if (kept := _kept(file.read(), names)) is not None:
        return kept
    seconds = measure(work)
    file.write({"blocks": names, "seconds": seconds})  # if it fails, measured again
    return seconds


def _kept(cache: Any, names: Sequence[str]) -> list[float] | None:
    """The blocks' times from the cache; None if they are missing or damaged."""
    try:
        seconds, blocks = [float(value) for value in cache["seconds"]], cache["blocks"]
    except (ValueError, KeyError, TypeError):
        return None
    right = blocks == list(names) and len(seconds) == len(names)
    positive = all(0 <= value < math.inf for value in seconds) and any(seconds)
    return seconds if right and positive else None


# --partition -> costs of a model's blocks.  To add one, write a function and a row.
COSTS: dict[str, Callable[[TowerToCut], list[float]]] = {
    "flops": flops,
    "params": params,
    "time": time,
}
AUTO = "time"  # the meaning of --partition=auto


def with_cut(
    task: TowerSpec,
    features: Any,
    labels: Any,
    placement: Placement,
) -> TowerSpec:
    """Chooses the cut of a task's pipeline, unless it has one or no pipeline.

    Args:
      task: what a tower computes.
      features: nest of `tf.TensorSpec`s [batch, ...], of a tower's batch.
      labels: nest of `tf.TensorSpec`s [batch, ...].
      placement: of the towers.

    Raises:
      ValueError: the pipeline is not one of this model.
    """
    how = task.pipeline
    if how is None:
        return task
    pieces, count = how.stages * how.chunks, len(task.model.blocks)
    _check_blocks(how, task.model.name, count)
    if how.cut:
        return task
    costs = [1.0] * count
    if 1 < pieces < count:
        micro = segment.MicroBatchSpec.of(features, labels, how.micro_batches)
        plain = dataclasses.replace(task, pipeline=None, joined=SharedStatistics())
        costs = COSTS[how.balance](TowerToCut(plain, micro, placement))
    cut = partition.balanced(costs, pieces)
    return dataclasses.replace(task, pipeline=dataclasses.replace(how, cut=cut))


def _check_blocks(how: Pipeline, model: str, count: int) -> None:
    """Checks that a pipeline fits a model of `count` blocks."""
    check(how, balance=one_of(COSTS))
    of = f"{model} is a chain of {count} blocks"
    if (pieces := how.stages * how.chunks) > count:
        raise ValueError(
            f"Pipeline(stages={how.stages}, chunks={how.chunks}) has {pieces} pieces, "
            f"and {of}; write fewer"
        )
    if how.cut and how.cut[-1] != count:
        raise ValueError(
            f"Pipeline.cut is {how.cut!r}, and {of}; the last piece must end at {count}"
        )


def measure(work: TowerToCut) -> list[float]:
    """Seconds of each block, forward and backward, on the first stage's device."""
    blocks = work.task.model.blocks
    count = len(blocks)
    device = work.placement.devices[0]
    apart = Pipeline(stages=count, schedule="gpipe", cut=tuple(range(1, count + 1)))
    task = dataclasses.replace(work.task, pipeline=apart)
    with tf.Graph().as_default() as graph:
        copy = VariableStore([[device]] * count, _SEED)
        template = pipeline.trace(task, *work.batch, create=copy.create)
        reads = {
            name: tf.cast(copy.read(name), dtype)
            for name, dtype in template.reads.items()
        }
        inputs = _inputs(work, device)
        site = Site("measured", [device] * count, inputs, reads, template)
        [tower] = pipeline.copy_pipelines([site])
        # One after another, as on the device of a stage.
        ends = [tower.loss, *(g for g in tower.gradients if g is not None)]
        with tf.device(device):
            ends = [tf.reshape(tf.convert_to_tensor(end), [-1])[0] for end in ends]
        start = v1.global_variables_initializer()
    with v1.Session(graph=graph, config=session_config(work.placement)) as session:
        session.run(start)
        return _fastest(session, ends, count)


def _fastest(session: v1.Session, ends: Sequence[tf.Tensor], count: int) -> list[float]:
    """Seconds of each block: the sum of its passes' fastest runs."""
    best: dict[schedule.Pass, float] = {}
    for _ in range(_REPEATS + 1):
        metadata = v1.RunMetadata()
        session.run(ends, options=spans.traced(), run_metadata=metadata)
        for span in spans.of_step(metadata):
            seconds = span.end - span.begin
            best[span.what] = min(seconds, best.get(span.what, seconds))
    return [
        sum(seconds for what, seconds in best.items() if what.chunk == block)
        for block in range(count)
    ]


def _inputs(work: TowerToCut, device: str) -> dict[str, tf.Tensor]:
    """A batch of zeros: its values do not change the time."""
    size = nests.batch_size(work.batch.features)
    with tf.device(device):
        features, labels = tf.nest.map_structure(
            lambda spec: tf.zeros(spec.shape, spec.dtype), tuple(work.batch)
        )
        batch = Batch(features, labels, tf.ones([size]), tf.constant(0, tf.int64))
        return {
            **batch.tensors(),
            "total_weight": tf.constant(float(size)),
            "loss_scale": tf.constant(1.0),
            "progress": tf.constant(1.0),
        }


def _key(work: TowerToCut) -> str:
    """The cache key: a hash of all that the times depend on."""
    task = work.task
    gpus = [gpu.name for gpu in tf.config.list_physical_devices("GPU")]
    blocks = [
        (block.blocks, block.flops, {k: tuple(v) for k, v in block.shapes.items()})
        for block in work.segments()
    ]
    facts = (
        blocks,
        (task.model.name, task.training, task.data_format, task.dtype.name),
        tuple(
            (tuple(spec.shape), spec.dtype.name)
            for spec in tf.nest.flatten(work.batch.features)
        ),
        (work.placement.kind, platform.node(), os.cpu_count(), gpus),
        (tf.__version__, tf.config.experimental.tensor_float_32_execution_enabled()),
    )
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]
