"""How a tower is cut into stages and micro-batches; plain data."""

import dataclasses
import math

import tensorflow as tf

from towers.partition import Cut
from towers.schedule import SCHEDULES, Order, forward_only

# --recompute -> what it recomputes.
RECOMPUTE: dict[str, str] = {
    "none": "nothing: all activations that gradients need are kept",
    "stage": "each stage, from what entered it",
    "block": "each block, from what entered it",
}


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
      recompute: a row of `RECOMPUTE`.
    """

    stages: int = 1
    micro_batches: int = 1
    schedule: str = "1f1b"
    chunks: int = 1
    cut: Cut = ()
    recompute: str = "none"
    balance: str = "flops"

    def order(self, *, training: bool = True) -> Order:
        """What each stage does."""
        make = SCHEDULES[self.schedule].order if training else forward_only
        return make(self.stages, self.micro_batches, self.chunks)

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
