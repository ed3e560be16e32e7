"""How a tower is cut into stages and micro-batches; plain data."""

import dataclasses
import math
from collections.abc import Collection
from typing import NamedTuple

import tensorflow as tf

from towers.layout.partition import Cut
from towers.layout.schedule import (
    SCHEDULES,
    Order,
    Pass,
    ScheduleError,
    forward_only,
)

# --recompute -> what it recomputes.
RECOMPUTE: dict[str, str] = {
    "none": "nothing: all activations that gradients need are kept",
    "stage": "each stage, from what entered it",
    "block": "each block, from what entered it",
    "auto": "as few FLOPs as fit --memory_limit, block by block",
}


class Chosen(NamedTuple):
    """Which blocks are recomputed, where that was to be chosen.

    Attributes:
      blocks: their numbers.
      bytes: that each stage needs, by estimate.
      limit: in bytes.
      flops: computed again, relative to those of a step.
    """

    blocks: tuple[int, ...]
    bytes: tuple[int, ...]
    limit: int
    flops: float


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """How a tower is cut.

    Attributes:
      stages: devices of a tower.
      micro_batches: pieces of its batch.
      schedule: a row of `schedule.SCHEDULES`.
      chunks: of each stage; 1 unless the schedule interleaves.
      cut: of the model's blocks into stages x chunks pieces; empty while it is open.
      balance: what an open cut shall balance, a row of `costs.COSTS`.
      memory_limit: of each device, in bytes, for `auto`; 0 for what it has.
      chosen: by `auto`; None while it is open.
      recompute: a row of `RECOMPUTE`.
    """

    stages: int = 1
    micro_batches: int = 1
    schedule: str = "1f1b"
    chunks: int = 1
    cut: Cut = ()
    recompute: str = "none"
    balance: str = "flops"
    memory_limit: int = 0
    chosen: Chosen | None = None

    def order(self, *, training: bool = True) -> Order:
        """What each stage does.

        Raises:
          ScheduleError: the schedule leaves a pass out, or is not about its stages.
        """
        make = SCHEDULES[self.schedule].order if training else forward_only
        order = make(self.stages, self.micro_batches, self.chunks)
        run = {(stage, one) for stage, passes in enumerate(order) for one in passes}
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
                stage, one = min(passes)
                raise ScheduleError(
                    f"schedule {self.schedule}: stage {stage} {wrong.format(one)}"
                )
        return order

    def recomputed(self, count: int) -> Collection[int]:
        """Numbers of the segments, `count` in all, that are recomputed."""
        if self.recompute == "auto":
            return self.chosen.blocks if self.chosen else ()
        return range(count) if self.recompute != "none" else ()

    def micro_batch(self, spec: tf.TensorSpec) -> tf.TensorSpec:
        """A piece of a tensor [batch, ...]."""
        batch, *shape = spec.shape
        size, rest = divmod(batch, self.micro_batches)
        assert not rest, (spec, self)
        return tf.TensorSpec([size, *shape], spec.dtype)

    def for_batch(self, batch_size: int) -> "Pipeline":
        """The same with micro-batches that divide a batch, as many as can be.

        Evaluation has a batch size of its own.
        """
        micro_batches = math.gcd(batch_size, self.micro_batches)
        return dataclasses.replace(self, micro_batches=micro_batches)
