"""Chooses the blocks whose activations are recomputed: `--recompute=auto`.

Among the choices with which every stage stays within a memory limit, it takes the one
with the fewest recomputed floating point operations; of several, one with the fewest
blocks.  The estimated memory of a stage is

    held micro-batches x activations of one that its blocks keep for the backward pass
    + the largest further memory of a block's pass, by `liveness`, with the gradients
      that exist then: its own, and those of later blocks
    + float32 numbers per parameter: the value, the sum of gradients if there are
    several
      micro-batches, and the optimizer's slots (two unless given)
    + the batch, on the first stage, and once more if it is split

  * A recomputed block keeps only its inputs.  A tensor that two blocks keep counts
  once.
  * `schedule.held` is the number of micro-batches held.
  * If micro-batches wait for one another in batch norm, all of them pass a block
    together, and the activations of later blocks are then freed.
  * Sparse gradients have no sum; their rows are kept until the end of the step.
  * With `--recompute=stage` all blocks of a stage are one.
  * Bytes are rounded up to a 16384th of the limit.

The limit is TensorFlow's `memory_limit` of a logical device, in megabytes.
"""

import collections
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from flags.problem import SettingError, wrong_setting
from towers.compute import flops
from towers.compute.tower import TowerSpec
from towers.data import nests
from towers.layout import parts, schedule
from towers.layout.partition import pieces_of
from towers.layout.placement import Placement, is_called, session_config, task_of
from towers.layout.stages import Pipeline, RecomputedBlocks
from towers.pipelines import liveness, segment
from towers.pipelines.chain import Blocks
from towers.pipelines.piece import Subgraph
from towers.pipelines.recompute_choice import (
    NO_LIMIT,
    BlockCost,
    RecomputeChoice,
    cheapest,
    least,
)
from towers.pipelines.segment import Segment

v1 = tf.compat.v1

_FLOAT = 4  # bytes
_SLOTS = 2  # of the optimizers with the most slots
_GRAINS = 2**14
_SHARE = 0.9  # of a GPU's memory; the rest is for memory that is not estimated

Kept = frozenset[tuple[str, int]]  # (tensor, bytes)


def with_choice(
    task: TowerSpec,
    features: Any,
    labels: Any,
    placement: Placement,
) -> TowerSpec:
    """The task, with a choice of recomputed blocks if that is still open.

    Args:
      task: what a tower computes; its pipeline is cut.
      features: nest of `tf.TensorSpec`s [batch, ...], of a tower's batch.
      labels: nest of `tf.TensorSpec`s [batch, ...].
      placement: of the towers.

    Raises:
      ValueError: no choice fits; the sentence says how much memory is needed.
    """
    how = task.pipeline
    if how is None or how.recompute != "auto" or how.chosen or not task.training:
        return task
    limit = how.memory_limit or _memory(placement)
    stages = _stages(task, features, labels, grain=max(1, limit // _GRAINS))
    cheapest_choices = (cheapest(stage.blocks, limit - stage.fixed) for stage in stages)
    choices = [choice for choice in cheapest_choices if choice is not None]
    if len(choices) < len(stages):
        most = max(stage.fixed + least(stage.blocks) for stage in stages)
        needed = -(-most // 10**6)
        raise wrong_setting(
            "memory_limit",
            limit // 10**6,
            f"with everything recomputed a stage of {task.model.name} still needs "
            f"{needed} MB by estimate",
            f"write `memory_limit={needed}`, more `num_stages` or a smaller "
            "`batch_size`",
        )
    numbers = [number for stage in stages for number in stage.numbers]
    flags = [flag for choice in choices for flag in choice.again]
    work = sum(stage.flops for stage in stages)
    chosen = RecomputedBlocks(
        blocks=tuple(sorted(n for n, flag in zip(numbers, flags) if flag)),
        bytes=tuple(c.bytes + stage.fixed for c, stage in zip(choices, stages)),
        limit=limit,
        flops=sum(choice.flops for choice in choices) / max(1, work),
    )
    return dataclasses.replace(task, pipeline=dataclasses.replace(how, chosen=chosen))


def estimate(
    task: TowerSpec,
    features: Any,
    labels: Any,
    *,
    slots: int = _SLOTS,
) -> list[int]:
    """Bytes that each stage needs.

    Args:
      task: what a tower computes; its pipeline is cut and recomputes nothing, whole
        stages or every block.
      features: nest of `tf.TensorSpec`s [batch, ...], of a tower's batch.
      labels: nest of `tf.TensorSpec`s [batch, ...].
      slots: of the optimizer.
    """
    assert task.pipeline
    way = task.pipeline.recompute
    sizes = []
    for stage in _stages(task, features, labels, grain=1, slots=slots):
        choice = RecomputeChoice()
        for block in stage.blocks:
            choice = choice.then(block, way != "none")
        sizes.append(stage.fixed + choice.bytes)
    return sizes


class _Stage(NamedTuple):
    """A stage before the choice.

    Attributes:
      numbers: of its blocks.
      blocks: their costs.
      fixed: bytes for its parameters and the batch.
      flops: of one micro-batch, forward and backward.
    """

    numbers: list[int]
    blocks: list[BlockCost]
    fixed: int
    flops: int


def _stages(
    task: TowerSpec,
    features: Any,
    labels: Any,
    *,
    grain: int,
    slots: int = _SLOTS,
) -> list[_Stage]:
    assert task.pipeline
    how, groups = _groups(task.pipeline, task.model.blocks)
    several = how.micro_batches > 1
    batch_bytes = nests.num_bytes(features) * (1 + several)
    batch = segment.MicroBatchSpec.of(features, labels, how.micro_batches)
    whole = dataclasses.replace(task, pipeline=None)
    traced = [
        _segments(whole, groups, batch, recomputed=flag) for flag in (False, True)
    ]
    plain, meeting, stages = traced[0], task.joined.micro_batches, []
    for stage in range(how.stages):
        blocks = _blocks(how, stage, traced, meeting, grain=grain)
        numbers = _of_stage(how, stage, plain)
        size = _parameter_bytes(plain, numbers, stage, several=several, slots=slots)
        stages.append(
            _Stage(
                numbers=numbers,
                blocks=blocks,
                fixed=size + (0 if stage else batch_bytes),
                flops=sum(plain[n].flops for n in numbers),
            )
        )
    return stages


def _groups(how: Pipeline, blocks: Blocks) -> tuple[Pipeline, list[Blocks]]:
    """The groups of blocks that are recomputed together, and the pipeline of groups."""
    if how.recompute != "stage":
        return how, [[block] for block in blocks]
    groups = pieces_of(how.cut, blocks)
    return dataclasses.replace(how, cut=tuple(range(1, len(groups) + 1))), groups


def _parameter_bytes(
    blocks: Sequence[Segment],
    numbers: Sequence[int],
    stage: int,
    *,
    several: bool,
    slots: int,
) -> int:
    """Bytes of a stage's parameters, without the gradients of its own blocks.

    Args:
      blocks: of the model.
      numbers: of the stage's blocks.
      stage: its number, and that of its part of sharded variables.
      several: whether gradients of several micro-batches are summed.
      slots: of the optimizer.
    """
    shapes: dict[str, tf.TensorShape] = {}
    uses: collections.Counter[str] = collections.Counter()
    for stage_block in (blocks[n] for n in numbers):
        shapes |= {k: v for k, v in stage_block.shapes.items() if not parts.is_part(k)}
        # A table that is looked up in one block only has a sparse gradient.
        for name in stage_block.trainable:
            uses[name] += 1 if _is_sparse(stage_block, name) else 2
    spread = {
        name: shape
        for block in blocks
        for name, shape in block.shapes.items()
        if name == parts.name_of(parts.whole_name(name), stage)
    }
    each = {name: 1 + slots + several * (uses[name] > 1) for name in shapes}
    each |= dict.fromkeys(spread, 2 + slots + several)
    return _FLOAT * sum(
        shape.num_elements() * each[name]
        for name, shape in {**shapes, **spread}.items()
    )


def _is_sparse(block: Segment, variable: str) -> bool:
    outputs = block.backward.outputs if block.backward else ()
    return f"grad{block.number}/{variable}/1" in outputs


def _segments(
    task: TowerSpec,
    groups: Sequence[Blocks],
    batch: segment.MicroBatchSpec,
    *,
    recomputed: bool,
) -> list[Segment]:
    """One for each group of blocks."""
    return segment.trace(
        task,
        groups,
        batch,
        create=lambda *args, **options: None,
        recomputed=range(len(groups)) if recomputed else (),
    )


def _of_stage(how: Pipeline, stage: int, blocks: Sequence[Segment]) -> list[int]:
    """Numbers of a stage's blocks."""
    chunks = pieces_of(how.cut, range(len(blocks)))[stage :: how.stages]
    return [number for chunk in chunks for number in chunk]


def _blocks(
    how: Pipeline,
    stage: int,
    traced: Sequence[Sequence[Segment]],
    meeting: int,
    *,
    grain: int,
) -> list[BlockCost]:
    """The cost of each block of a stage.

    Args:
      how: the pipeline.
      stage: its number.
      traced: the segments without recomputation and with it.
      meeting: number of micro-batches whose statistics batch norm takes as one.
      grain: bytes are rounded up to a multiple of it.
    """
    plain, again = traced
    passes, blocks = how.order()[stage], []
    for c in range(stage, how.stages * how.chunks, how.stages):
        held = schedule.held([pass_ for pass_ in passes if pass_.chunk == c])
        before: tuple[Kept, Kept] = (frozenset(), frozenset())
        numbers = pieces_of(how.cut, range(len(plain)))[c]
        for number in numbers:
            kept = _kept(plain, number), _kept(again, number)
            blocks.append(
                BlockCost(
                    kept=tuple(
                        tuple(held * _bytes(mine - prior, grain) for prior in before)
                        for mine in kept
                    ),
                    passing=tuple(
                        _up(beside(segments[number], meeting), grain)
                        for segments in traced
                    ),
                    gradients=_up(_gradients(plain[number], how.micro_batches), grain),
                    flops=_work(again[number].backward) - _work(plain[number].backward),
                    together=meeting > 1,
                )
            )
            before = kept
    return blocks


def _kept(segments: Sequence[Segment], number: int) -> Kept:
    """The tensors that a block's backward pass reads, and the block's inputs."""
    backward = segments[number].backward
    kept = set()
    for name in backward.inputs if backward else ():
        # The block before may keep this block's inputs, too.
        maker = number - 1 if name.startswith(f"x{number}/") else number
        if maker >= 0 and name.startswith((f"x{number}/", "saved")):
            tensor = segments[maker].forward.outputs[name]
            # Tensors without static shape are row numbers of a device: a few integers.
            kept.add((f"{maker}/{tensor.name}", liveness.size(tensor)))
    return frozenset(kept)


def beside(segment: Segment, meeting: int = 1) -> int:
    """Peak bytes of a pass of a segment, without the tensors that are kept.

    They include its gradients of unpartitioned variables.

    Args:
      segment: the segment.
      meeting: number of micro-batches that pass its legs together.
    """
    forward, backward = segment.forward, segment.backward
    between = ("saved", "sent")  # values between legs, unless they are kept
    kept = [t for n, t in forward.outputs.items() if not n.startswith(between)]
    kept += backward.inputs.values() if backward else []
    most = liveness.in_legs(forward.legs, meeting, apart=kept)
    if backward is None:
        return most
    upstream = [t for name, t in backward.inputs.items() if name.startswith("dx")]
    apart = [t for name, t in backward.outputs.items() if _is_of_part(name)]
    entered = sum(map(liveness.size, upstream))
    return max(most, liveness.in_legs(backward.legs, meeting, entered, apart=apart))


def _is_of_part(value: str) -> bool:
    """Whether a value is a gradient that may be on another device."""
    return value.startswith("grad") and parts.is_part(value)


def _gradients(block: Segment, micro_batches: int) -> int:
    """Bytes of a segment's gradients after its backward pass, without parts."""
    outputs = block.backward.outputs if block.backward else {}
    total = 0
    for name in block.trainable:
        tensors = [
            t for k, t in outputs.items() if k[:-2] == f"grad{block.number}/{name}"
        ]
        times = micro_batches if _is_sparse(block, name) else 1
        total += 0 if parts.is_part(name) else times * sum(map(liveness.size, tensors))
    return total


def _bytes(kept: Iterable[tuple[str, int]], grain: int) -> int:
    return _up(sum(size for _, size in kept), grain)


def _up(size: int, grain: int) -> int:
    return -(-size // grain) * grain


def _work(piece: Subgraph | None) -> int:
    return flops.of_operations(piece.operations) if piece else 0


def _memory(placement: Placement) -> int:
    """Bytes of memory of the towers' smallest device."""
    if placement.kind == "cpu" or task_of(placement.towers[0]):
        raise SettingError(NO_LIMIT)
    with tf.Graph().as_default() as graph:
        with v1.Session(graph=graph, config=session_config(placement)) as session:
            devices = {d.name: d.memory_limit_bytes for d in session.list_devices()}
    sizes = [
        size
        for name, size in devices.items()
        if any(is_called(device, name) for device in placement.devices)
    ]
    return int(_SHARE * min(sizes))


def words(how: Pipeline, names: Sequence[str]) -> str:
    """The choice, in words.

    Args:
      how: with a choice.
      names: of the model's blocks.
    """
    chosen = how.chosen
    assert chosen
    blocks = ", ".join(names[n] for n in chosen.blocks) or "nothing"
    return (
        f"auto: {blocks}\n{100 * chosen.flops:.1f} % more FLOPs; at most "
        f"{max(chosen.bytes) / 1e6:.1f} of {chosen.limit / 1e6:.0f} MB per stage by "
        "estimate"
    )
