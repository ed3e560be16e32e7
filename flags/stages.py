"""The flags of towers on several devices (stages, shards): a section of `Config`."""

import dataclasses
from typing import ClassVar

from flags.field import AT_LEAST_1, FROM_1_TO_1024, FROM_2_TO_1024, field


@dataclasses.dataclass(frozen=True)
class StagesFlags:
    """How a tower is cut into stages and its batch into micro-batches."""

    common: ClassVar[tuple[str, ...]] = ("num_stages",)

    num_stages: int = field(
        1, "devices of each tower, a piece of the model on each", must=FROM_1_TO_1024
    )
    num_micro_batches: int = field(
        1,
        "pieces of a tower's batch, which pass the stages one behind the other",
        must=FROM_1_TO_1024,
    )
    schedule: str = field("1f1b", "order in which a stage runs its micro-batches")
    chunks_per_stage: int = field(
        2, "pieces of the model on each stage with interleaved", must=FROM_2_TO_1024
    )
    partition: str = field(
        "auto",
        "what the cut into stages balances: flops, params, time as measured on this "
        "machine's CPUs, or the names of the blocks to cut after: a,b,c; auto is time "
        "there, and flops on GPUs and clusters",
    )
    recompute: str = field(
        "none",
        "what the backward pass computes again instead of keeping its activations",
    )
    memory_limit: int | None = field(
        None,
        "megabytes of each device that a stage may need by estimate; with as little "
        "recomputed as fits",
        unset="nine tenths of a GPU's memory",
        must=AT_LEAST_1,
    )
    shard_classifier: int = field(
        1,
        "devices of each tower that share the classes of the dense layer which the "
        "model ends with",
        must=FROM_1_TO_1024,
    )
    shard_embeddings: int = field(
        1,
        "devices of each tower, or ps tasks of a cluster, that share the rows of each "
        "table that the model looks up, and classes if that is the last layer",
        must=FROM_1_TO_1024,
    )
    pipeline_report: str | None = field(
        None,
        "folder for a report of one step of the stages: bubble, busy times and memory, "
        "a chart (gantt.svg) and a Chrome trace",
        unset="none",
    )

    @property
    def pipelined(self) -> bool:
        """Whether a tower is cut into stages or micro-batches, or recomputes."""
        whole = self.num_stages == 1 and self.num_micro_batches == 1
        return not whole or self.recompute != "none"
