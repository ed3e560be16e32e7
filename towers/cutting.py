"""From the flags of stages to a `Pipeline`, with what cannot be cut refused."""

from typing import Any

from towers import costs, partition
from towers.schedule import SCHEDULES
from towers.stages import Pipeline


def plan(flags: Any, model: Any, batch_size: int) -> Pipeline | None:
    """The pipeline that settings ask for; None for whole towers.

    Args:
      flags: a `flags.staged.Stages`.
      model: a `models.Model`.
      batch_size: examples per tower.

    Raises:
      ValueError: there are more stages than blocks, the batch cannot be cut so, or the
        cut is impossible; the sentence has the numbers or names that would work.
    """
    if not flags.pipelined:
        return None
    row = SCHEDULES[flags.schedule]
    chunks = flags.chunks_per_stage if row.interleaves else 1
    blocks = [name for name, _ in model.blocks]
    _check_blocks(flags, model.name, blocks, chunks)
    _check_batch(flags.num_micro_batches, batch_size)
    return Pipeline(
        stages=flags.num_stages,
        micro_batches=flags.num_micro_batches,
        schedule=flags.schedule,
        chunks=chunks,
        cut=_cut(flags.partition, blocks, flags.num_stages * chunks),
        recompute=flags.recompute,
        balance=flags.partition if flags.partition in costs.COSTS else costs.AUTO,
    )


def _check_blocks(flags, model: str, blocks: list[str], chunks: int) -> None:
    pieces = flags.num_stages * chunks
    if pieces <= len(blocks):
        return
    of = f" of {chunks} chunks each" if chunks > 1 else ""
    fits = len(blocks) // chunks
    write = f"write --num_stages={fits} or fewer" if fits else "write --schedule=1f1b"
    raise ValueError(
        f"--num_stages={flags.num_stages}: {model} is a chain of {len(blocks)} blocks, "
        f"too few for {flags.num_stages} stages{of}; {write}"
    )


def _check_batch(micro_batches: int, batch_size: int) -> None:
    if batch_size % micro_batches:
        fits = [str(n) for n in range(1, batch_size + 1) if batch_size % n == 0]
        raise ValueError(
            f"--num_micro_batches={micro_batches}: does not divide a tower's batch of "
            f"{batch_size}; write {', '.join(fits[:-1])} or {fits[-1]}"
        )


def _cut(text: str, blocks: list[str], pieces: int) -> partition.Cut:
    """The cut by names; empty where costs decide."""
    if text == "auto" or text in costs.COSTS:
        return ()
    names = [name.strip() for name in text.split(",")]
    try:
        return partition.after(names, blocks, pieces)
    except ValueError as error:
        ways = ", ".join(["auto", *costs.COSTS])
        raise ValueError(f"--partition={text}: {error}; or write {ways}") from error
