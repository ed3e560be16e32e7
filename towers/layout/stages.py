"""The pipeline configuration of a tower: stages, micro-batches, recomputation.

Plain data; `towers.pipelines` builds the graph.
"""

import dataclasses
import itertools
import math
from collections.abc import Collection
from typing import NamedTuple

from models.validation import AT_LEAST_0, COUNT, check, one_of
from towers.layout.partition import Cut
from towers.layout.schedule import (
    SCHEDULES,
    Order,
    Pass,
    ScheduleError,
    forward_only,
)

# --recompute -> the activations that it recomputes.
RECOMPUTE: dict[str, str] = {
    "none": "nothing: all activations that gradients need are kept",
    "stage": "each stage, from what entered it",
    "block": "each block, from what entered it",
    "auto": "as few FLOPs as fit the memory limit, block by block",
}


class RecomputedBlocks(NamedTuple):
    """The blocks that `--recompute=auto` has chosen.

    Attributes:
      blocks: indices of the recomputed blocks.
      bytes: memory that each stage needs, by estimate.
      limit: on a stage's memory, in bytes.
      flops: of the recomputation, relative to those of a step.
    """

    blocks: tuple[int, ...]
    bytes: tuple[int, ...]
    limit: int
    flops: float


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """How a tower's blocks and batch are divided, and in which order they run.

    Attributes:
      stages: per tower, one device each.
      micro_batches: per batch of a tower.
      schedule: a row of `schedule.SCHEDULES`.
      chunks: per stage; 1 unless the schedule interleaves.
      cut: of the model's blocks into stages x chunks chunks; empty until it is chosen.
      recompute: a row of `RECOMPUTE`.
      balance: the costs that the cut balances, a row of `costs.COSTS`.
      memory_limit: of each device in bytes, for `auto`; 0 for the device's memory.
      chosen: blocks that `auto` recomputes; None until they are chosen.
    """

    stages: int = 1
    micro_batches: int = 1
    schedule: str = "1f1b"
    chunks: int = 1
    cut: Cut = ()
    recompute: str = "none"
    balance: str = "flops"
    memory_limit: int = 0
    chosen: RecomputedBlocks | None = None

    def __post_init__(self) -> None:
        check(
            self,
            stages=COUNT,
            micro_batches=COUNT,
            chunks=COUNT,
            schedule=one_of(SCHEDULES),
            recompute=one_of(RECOMPUTE),
            memory_limit=AT_LEAST_0,
        )
        if self.chunks > 1 and not SCHEDULES[self.schedule].interleaves:
            raise ValueError(
                f"Pipeline.chunks is {self.chunks}, and must be 1 with schedule "
                f"{self.schedule}, which does not interleave"
            )
        if self.cut:
            self._check_cut()

    def _check_cut(self) -> None:
        pieces, ends = self.stages * self.chunks, tuple(self.cut)
        rising = all(a < b for a, b in itertools.pairwise((0, *ends)))
        if len(ends) != pieces or not rising:
            raise ValueError(
                f"Pipeline.cut is {self.cut!r}, and must be the ends of {pieces} "
                "pieces, each after the one before: how many blocks there are up to "
                f"it, as in {tuple(range(1, pieces + 1))}"
            )

    def order(self, *, training: bool = True) -> Order:
        """The passes of each stage, in order.

        Raises:
          ScheduleError: the schedule omits a pass, or has one that does not belong
            there.
        """
        make = SCHEDULES[self.schedule].order if training else forward_only
        scheduled = make(self.stages, self.micro_batches, self.chunks)
        order = [[Pass(*pass_) for pass_ in passes] for passes in scheduled]
        run = {(stage, pass_) for stage, passes in enumerate(order) for pass_ in passes}
        wanted = {
            (chunk % self.stages, Pass(chunk, m, backward))
            for chunk in range(self.stages * self.chunks)
            for m in range(self.micro_batches)
            for backward in ((False, True) if training else (False,))
        }
        for passes, wrong in (
            (wanted - run, "does not run {}"),
            (run - wanted, "runs {}, which it is not to"),
        ):
            if passes:
                stage, pass_ = min(passes)
                raise ScheduleError(
                    f"schedule {self.schedule}: stage {stage} {wrong.format(pass_)}"
                )
        return order

    def recomputed(self, count: int) -> Collection[int]:
        """Indices of the recomputed segments, out of `count`."""
        if self.recompute == "auto":
            return self.chosen.blocks if self.chosen else ()
        return range(count) if self.recompute != "none" else ()

    def for_batch(self, batch_size: int) -> "Pipeline":
        """The same pipeline for another batch size, as in evaluation.

        The number of its micro-batches is the greatest common divisor of the batch size
        and the number here.
        """
        micro_batches = math.gcd(batch_size, self.micro_batches)
        return dataclasses.replace(self, micro_batches=micro_batches)
