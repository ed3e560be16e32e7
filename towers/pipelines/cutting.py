"""The pipeline that flags describe, checked against model, batch and devices."""

import math

from flags.problem import wrong_setting
from flags.stages import StagesFlags
from models.model import Model
from towers.compute.tower import TowerSpec
from towers.errors.collected import CollectedErrors
from towers.layout import partition
from towers.layout.cluster_spec import ClusterSpec
from towers.layout.placement import Placement
from towers.layout.schedule import SCHEDULES
from towers.layout.stages import Pipeline
from towers.pipelines import costs
from towers.variable_update.modes import DEFAULT

# The largest number of micro-batches; how many numbers an error offers.
_MOST = 1024
_OFFERED = 8


def plan(
    flags: StagesFlags, model: Model, batch_size: int, *, timed: bool = True
) -> Pipeline | None:
    """The pipeline that settings describe; None for whole towers.

    Args:
      flags: of stages.
      model: to cut.
      batch_size: examples per tower.
      timed: whether blocks can be timed on the towers' devices before the run.

    Raises:
      PlanError: there are more stages than blocks, or the batch or the model cannot be
        cut in this way; the sentences have the numbers or names that would work.
    """
    if not flags.pipelined:
        return None
    row = SCHEDULES[flags.schedule]
    chunks = flags.chunks_per_stage if row.interleaves else 1
    blocks = [name for name, _ in model.blocks]
    checks, pieces = CollectedErrors(), flags.num_stages * chunks
    cut: partition.Cut | None = ()
    checks.get(lambda: _check_blocks(flags, model.name, blocks, chunks))
    if not checks.problems:
        cut = checks.get(lambda: _cut(flags.partition, blocks, pieces))
    checks.get(lambda: _check_batch(flags.num_micro_batches, batch_size))
    balance = checks.get(lambda: _balance(flags.partition, timed=timed))
    checks.check()
    return Pipeline(
        stages=flags.num_stages,
        micro_batches=flags.num_micro_batches,
        schedule=flags.schedule,
        chunks=chunks,
        cut=cut or (),
        recompute=flags.recompute,
        memory_limit=(flags.memory_limit or 0) * 10**6,
        balance=balance,
    )


def _balance(text: str, *, timed: bool) -> str:
    """The row of `COSTS` that the cut balances."""
    if not timed and text == "time":
        raise wrong_setting(
            "partition",
            "time",
            "blocks are timed on CPUs of this machine only",
            "write `partition=flops`, which is auto's choice elsewhere, or the "
            "blocks' names",
        )
    auto = costs.AUTO if timed else "flops"
    return text if text in costs.COSTS else auto


def check_devices(num_gpus: int, num_stages: int, num_workers: int = 1) -> None:
    """Refuses a number of devices that is not a multiple of the stages.

    Args:
      num_gpus: devices of each worker.
      num_stages: devices of a tower.
      num_workers: of the cluster.

    Raises:
      ValueError: the sentence has the numbers that would work.
    """
    devices = num_gpus * num_workers
    if not devices % num_stages:
        return
    step = num_stages // math.gcd(num_stages, num_workers)
    below, above = num_gpus // step * step, -(-num_gpus // step) * step
    fits = [str(n) for n in range(1, devices + 1) if devices % n == 0]
    of = f"of {num_workers} workers " if num_workers > 1 else ""
    raise wrong_setting(
        "num_gpus",
        num_gpus,
        f"{of}is not a multiple of `num_stages={num_stages}`",
        f"write `num_gpus={below or above}`{f' or {above}' if below else ''}, or "
        f"`num_stages={' or '.join(fits)}`",
    )


def check_tables(flags: StagesFlags, mode: str, tasks: ClusterSpec) -> None:
    """Refuses more parts of tables than ps tasks.

    Args:
      flags: of stages and shards.
      mode: `--variable_update`.
      tasks: of the cluster.

    Raises:
      ValueError: the sentence says what to write instead.
    """
    shards, stages = flags.shard_embeddings, flags.num_stages
    if shards > 1 and mode != DEFAULT:
        raise wrong_setting(
            "shard_embeddings",
            shards,
            f"on a cluster rows are on ps tasks, where `variable_update={mode}` has "
            "none",
            f"write `variable_update={DEFAULT}`",
        )
    count = len(tasks.jobs.get("ps", ()))
    if shards > max(count, 1):
        remedy = f"write {count} or fewer" if count > 1 else "give it as many"
        raise wrong_setting(
            "shard_embeddings", shards, f"the cluster has {count} ps tasks", remedy
        )
    if shards > 1 and stages > 1:
        raise wrong_setting(
            "num_stages",
            stages,
            "stages keep rows on their own devices, not on ps tasks",
            "leave out `shard_embeddings`",
        )


def check_fit(task: TowerSpec, batch_size: int, placement: Placement) -> None:
    """Checks that micro-batches divide the batch, and that towers have enough devices.

    Args:
      task: what a tower computes.
      batch_size: examples of a tower.
      placement: of the towers.

    Raises:
      ValueError: they do not; the sentence names the arguments in Python.
    """
    how = task.pipeline or Pipeline()
    if batch_size % how.micro_batches:
        raise ValueError(
            f"Pipeline.micro_batches is {how.micro_batches}, and does not divide a "
            f"tower's batch of {batch_size}"
        )
    count = max(how.stages, task.shards.devices if task.shards else 1)
    if any(len(devices) != count for devices in placement.stages):
        raise ValueError(
            f"each tower of the placement has {len(placement.stages[0])} of the "
            f"devices, and Options.pipeline and Options.shards ask for {count}; give "
            f"the placement num_stages={count}, and a multiple of {count} devices"
        )


def _check_blocks(
    flags: StagesFlags, model: str, blocks: list[str], chunks: int
) -> None:
    pieces = flags.num_stages * chunks
    if pieces <= len(blocks):
        return
    of = f" of {chunks} chunks each" if chunks > 1 else ""
    fits, most = len(blocks) // chunks, len(blocks) // flags.num_stages
    write = f"write `num_stages={fits}`" + (" or fewer" if fits > 1 else "")
    if chunks > 1 >= fits:  # one stage alone has nothing to interleave with
        few = f" and `num_stages={len(blocks)}` or fewer" if most < 1 else ""
        write = f"write `schedule=1f1b`{few}, without `chunks_per_stage`"
        if most > 1:
            write = f"write `chunks_per_stage={most}`"
    raise wrong_setting(
        "num_stages",
        flags.num_stages,
        f"{model} is a chain of {len(blocks)} blocks, too few for {flags.num_stages} "
        f"stages{of}",
        write,
    )


def _check_batch(micro_batches: int, batch_size: int) -> None:
    if batch_size % micro_batches:
        fits = [n for n in range(1, min(batch_size, _MOST) + 1) if not batch_size % n]
        near = sorted(fits, key=lambda n: abs(n - micro_batches))[:_OFFERED]
        *fewer, last = map(str, sorted(near))
        raise wrong_setting(
            "num_micro_batches",
            micro_batches,
            f"does not divide a tower's batch of {batch_size}",
            f"write {', '.join(fewer)}{' or ' if fewer else ''}{last}",
        )


def _cut(text: str, blocks: list[str], pieces: int) -> partition.Cut:
    """The cut by names; empty if costs decide."""
    if text == "auto" or text in costs.COSTS:
        return ()
    names = [name.strip() for name in text.split(",")]
    try:
        return partition.after(names, blocks, pieces)
    except ValueError as error:
        ways = ", ".join(["auto", *costs.COSTS])
        raise wrong_setting(
            "partition", text, str(error), f"or write {ways}"
        ) from error
