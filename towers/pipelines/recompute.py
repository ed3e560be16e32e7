"""Where to recompute activations: `--recompute=auto`.

The rule: of all choices of blocks whose activations are computed again in the backward
pass, the one with the fewest floating point operations computed again among those with
which every stage stays within a memory limit; of several such, one with the fewest
blocks.  A stage needs, by estimate,

    held micro-batches x what its blocks keep of one for the backward pass
    + the most that a pass of one of its blocks takes beside that, by `liveness`
    + float32 numbers per parameter: value, gradient, with several micro-batches their
      sum before and after one, and the optimizer's slots, two unless they are said
    + the batch, on the first stage, and once more where it is split

where a block that is computed again keeps only what entered it, a tensor that two
blocks keep counts once, `schedule.held` says how many micro-batches are held, and a
pass is that of all micro-batches where they meet in batch norm, one of them in a leg
and the others between two; what later blocks keep is then gone.  Bytes are rounded up
to a 16384th of the limit.

PyTorch calls the limit `activation_memory_budget`, TensorFlow `memory_limit` (of a
logical device, in megabytes); ours is TensorFlow's.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from towers.compute import flops
from towers.compute.tower import Task
from towers.layout import parts, schedule
from towers.layout.partition import pieces_of
from towers.layout.placement import Placement, session_config, task_of
from towers.layout.stages import Chosen, Pipeline
from towers.pipelines import liveness, segment
from towers.pipelines.choice import Block, Choice, cheapest, least
from towers.pipelines.piece import Piece
from towers.pipelines.segment import Segment

v1 = tf.compat.v1

NO_LIMIT = (
    "--recompute=auto: how much memory a device has is known of this machine's GPUs "
    "only; say with --memory_limit how many megabytes a stage may need"
)

_FLOAT = 4  # bytes
_SLOTS = 2  # of the optimizers that have most
_GRAINS = 2**14
_SHARE = 0.9  # of a GPU's memory; the rest is for what is not estimated

Kept = frozenset[tuple[str, int]]  # (tensor, bytes)


def with_choice(
    task: Task, features: tf.TensorSpec, labels: tf.TensorSpec, placement: Placement
) -> Task:
    """The task with its pipeline's choice, if that is still open.

    Args:
      task: what a tower computes; its pipeline is cut.
      features: shape [batch, ...] and dtype of a tower's batch.
      labels: shape [batch, ...] and dtype.
      placement: of the towers.

    Raises:
      ValueError: no choice fits; the sentence says how much memory would do.
    """
    how = task.pipeline
    if how is None or how.recompute != "auto" or how.chosen or not task.training:
        return task
    limit = how.memory_limit or _memory(placement)
    stages = _stages(task, features, labels, grain=max(1, limit // _GRAINS))
    found = [cheapest(stage.blocks, limit - stage.fixed) for stage in stages]
    if None in found:
        most = max(stage.fixed + least(stage.blocks) for stage in stages)
        needed = -(-most // 10**6)
        raise ValueError(
            f"--memory_limit={limit // 10**6}: with everything recomputed a stage of "
            f"{task.model.name} still needs {needed} MB by estimate; write "
            f"--memory_limit={needed}, more --num_stages or a smaller --batch_size"
        )
    numbers = [number for stage in stages for number in stage.numbers]
    flags = [flag for choice in found for flag in choice.again]
    work = sum(stage.flops for stage in stages)
    chosen = Chosen(
        blocks=tuple(sorted(n for n, flag in zip(numbers, flags) if flag)),
        bytes=tuple(c.bytes + stage.fixed for c, stage in zip(found, stages)),
        limit=limit,
        flops=sum(choice.flops for choice in found) / max(1, work),
    )
    return dataclasses.replace(task, pipeline=dataclasses.replace(how, chosen=chosen))


def estimate(
    task: Task, features: tf.TensorSpec, labels: tf.TensorSpec, *, slots: int = _SLOTS
) -> list[int]:
    """Bytes that each stage needs.

    Args:
      task: what a tower computes; its pipeline is cut and recomputes nothing, whole
        stages or every block.
      features: shape [batch, ...] and dtype of a tower's batch.
      labels: shape [batch, ...] and dtype.
      slots: of the optimizer.
    """
    way = task.pipeline.recompute
    found = []
    for stage in _stages(task, features, labels, grain=1, slots=slots):
        choice = Choice()
        for block in stage.blocks:
            choice = choice.then(block, way == "block")
        needed = stage.entered + stage.whole if way == "stage" else choice.bytes
        found.append(stage.fixed + needed)
    return found


class _Stage(NamedTuple):
    """A stage before anything is chosen.

    Attributes:
      numbers: of its blocks.
      blocks: what they cost.
      fixed: bytes for its parameters and the batch.
      entered: bytes of all that enters it and is held.
      whole: most bytes of activations of one micro-batch, or of those that meet, with
        what a pass takes beside.
      flops: of one micro-batch, forward and backward.
    """

    numbers: list[int]
    blocks: list[Block]
    fixed: int
    entered: int
    whole: int
    flops: int


def _stages(
    task: Task,
    features: tf.TensorSpec,
    labels: tf.TensorSpec,
    *,
    grain: int,
    slots: int = _SLOTS,
) -> list[_Stage]:
    how = task.pipeline
    several = how.micro_batches > 1
    per_parameter = _FLOAT * (2 + several + slots)
    batch_bytes = features.shape.num_elements() * features.dtype.size * (1 + several)
    batch = segment.Batch(how.micro_batch(features), how.micro_batch(labels))
    whole = dataclasses.replace(task, pipeline=None)
    plain, again = (_segments(whole, batch, recomputed=one) for one in (False, True))
    found = []
    for stage in range(how.stages):
        meeting = task.joined.micro_batches
        blocks, entered = _blocks(how, stage, (plain, again), meeting, grain=grain)
        numbers = _of_stage(how, stage, plain)
        size = _parameters(plain, numbers, stage)
        found.append(
            _Stage(
                numbers=numbers,
                blocks=blocks,
                fixed=size * per_parameter + (0 if stage else batch_bytes),
                entered=entered,
                whole=_whole(plain, dict(zip(numbers, blocks)), meeting, grain=grain),
                flops=sum(plain[n].flops for n in numbers),
            )
        )
    return found


def _whole(
    plain: Sequence[Segment], blocks: Mapping[int, Block], meeting: int, *, grain: int
) -> int:
    """Most bytes of a pass that has all activations at first, and frees them in turn.

    Args:
      plain: the segments without recomputation.
      blocks: those of the stage, by number.
      meeting: micro-batches that are passed together.
      grain: bytes are rounded up to.
    """
    most, kept, before = 0, 0, frozenset()
    for number, block in blocks.items():
        own = _kept(plain, number)
        kept += meeting * _bytes(own - before, grain)
        most, before = max(most, kept + block.passing[False]), own
    return most


def _parameters(blocks: Sequence[Segment], numbers: Sequence[int], stage: int) -> int:
    """How many a stage holds: its blocks' own, and its part of what is spread."""
    shapes = {k: v for n in numbers for k, v in blocks[n].shapes.items()}
    own = {k: v for k, v in shapes.items() if not parts.is_part(k)}
    own |= {
        name: shape
        for block in blocks
        for name, shape in block.shapes.items()
        if name == parts.name_of(parts.whole_name(name), stage)
    }
    return sum(shape.num_elements() for shape in own.values())


def _segments(task: Task, batch: segment.Batch, *, recomputed: bool) -> list[Segment]:
    """One for each block."""
    blocks = task.model.blocks
    return segment.trace(
        task,
        [[block] for block in blocks],
        batch,
        create=lambda *args, **options: None,
        recomputed=range(len(blocks)) if recomputed else (),
    )


def _of_stage(how: Pipeline, stage: int, blocks: Sequence) -> list[int]:
    """Numbers of a stage's blocks."""
    chunks = pieces_of(how.cut, range(len(blocks)))[stage :: how.stages]
    return [number for chunk in chunks for number in chunk]


def _blocks(
    how: Pipeline, stage: int, both, meeting: int, *, grain: int
) -> tuple[list[Block], int]:
    """What each block of a stage costs, and the bytes of all that enters its chunks.

    Args:
      how: the pipeline.
      stage: of it.
      both: the segments without recomputation and with it.
      meeting: micro-batches that batch norm takes as one.
      grain: bytes are rounded up to.
    """
    plain, again = both
    passes, found, entered = how.order()[stage], [], 0
    for c in range(stage, how.stages * how.chunks, how.stages):
        held = schedule.held([one for one in passes if one.chunk == c])
        before: tuple[Kept, Kept] = (frozenset(), frozenset())
        numbers = pieces_of(how.cut, range(len(plain)))[c]
        entered += held * _bytes(_kept(again, numbers[0]), grain)
        for number in numbers:
            own = _kept(plain, number), _kept(again, number)
            found.append(
                Block(
                    kept=tuple(
                        tuple(held * _bytes(mine - theirs, grain) for theirs in before)
                        for mine in own
                    ),
                    passing=tuple(
                        _up(beside(segments[number], meeting), grain)
                        for segments in both
                    ),
                    flops=_work(again[number].backward) - _work(plain[number].backward),
                    together=meeting > 1,
                )
            )
            before = own
    return found, entered


def _kept(segments: Sequence[Segment], number: int) -> Kept:
    """What a block's backward pass reads of its forward pass, and what entered it."""
    backward = segments[number].backward
    found = set()
    for name in backward.inputs if backward else ():
        # What entered a block may be among what the one before keeps, too.
        maker = number - 1 if name.startswith(f"x{number}/") else number
        if maker >= 0 and name.startswith((f"x{number}/", "saved")):
            made = segments[maker].forward.outputs[name]
            # What has no static shape says which rows a device has: a few integers.
            found.add((f"{maker}/{made.name}", liveness.size(made)))
    return frozenset(found)


def beside(one: Segment, meeting: int = 1) -> int:
    """Most bytes that a pass of a segment takes beside what is kept.

    The gradients by variables are not among them.

    Args:
      one: the segment.
      meeting: micro-batches that go through it leg by leg, together.
    """
    forward, backward = one.forward, one.backward
    between = ("saved", "sent")  # what goes from leg to leg, unless it is kept
    kept = [t for n, t in forward.outputs.items() if not n.startswith(between)]
    kept += backward.inputs.values() if backward else []
    most = liveness.in_legs(forward.legs, meeting, apart=kept)
    if backward is None:
        return most
    upstream = [t for name, t in backward.inputs.items() if name.startswith("dx")]
    apart = [t for name, t in backward.outputs.items() if name.startswith("grad")]
    entered = sum(map(liveness.size, upstream))
    return max(most, liveness.in_legs(backward.legs, meeting, entered, apart=apart))


def _bytes(kept: Iterable[tuple[str, int]], grain: int) -> int:
    return _up(sum(size for _, size in kept), grain)


def _up(size: int, grain: int) -> int:
    return -(-size // grain) * grain


def _work(piece: Piece | None) -> int:
    return flops.of_operations(piece.operations) if piece else 0


def _memory(placement: Placement) -> int:
    """Bytes of the smallest device of the towers."""
    if placement.kind == "cpu" or task_of(placement.towers[0]):
        raise ValueError(NO_LIMIT)
    with tf.Graph().as_default() as graph:
        with v1.Session(graph=graph, config=session_config(placement)) as session:
            devices = {d.name: d.memory_limit_bytes for d in session.list_devices()}
    sizes = [
        size
        for name, size in devices.items()
        if any(name.endswith(device) for device in placement.devices)
    ]
    return int(_SHARE * min(sizes))


def words(how: Pipeline, names: Sequence[str]) -> str:
    """What was chosen.

    Args:
      how: with a choice.
      names: of the model's blocks.
    """
    chosen = how.chosen
    blocks = ", ".join(names[n] for n in chosen.blocks) or "nothing"
    return (
        f"auto: {blocks}\n{100 * chosen.flops:.1f} % more FLOPs; at most "
        f"{max(chosen.bytes) / 1e6:.1f} of {chosen.limit / 1e6:.0f} MB per stage by "
        "estimate"
    )
