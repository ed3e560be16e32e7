"""The flags of towers on several devices (stages, shards): a section of `Config`."""

import dataclasses
from typing import ClassVar

from flags.field import AT_LEAST_1, FROM_1_TO_1024, FROM_2_TO_1024, field


@dataclasses.dataclass(frozen=True)
class StagesFlags:
    """How a tower is cut into stages and its batch into micro-batches."""

    common: ClassVar[tuple[str, ...]] = ("num_stages",)

    num_stages: int = field(
        1, "devices of each tower, with a part of the model each", must=FROM_1_TO_1024
    )
    num_micro_batches: int = field(
        1,
        "parts of a tower's batch, which pass through the stages one after another",
        must=FROM_1_TO_1024,
    )
    schedule: str = field("1f1b", "order in which a stage runs its micro-batches")
    chunks_per_stage: int = field(
        2, "parts of the model on each stage with interleaved", must=FROM_2_TO_1024
    )
    partition: str = field(
        "auto",
        "how blocks are divided into stages: so that stages have equal flops, params "
        "or time (measured on this machine's CPUs), or after the named blocks, as in "
        "a,b,c; auto is time on the CPU, and flops on GPUs and clusters",
    )
    recompute: str = field(
        "none",
        "activations that the backward pass computes again, instead of keeping them in "
        "memory",
    )
    memory_limit: int | None = field(
        None,
        "megabytes that a stage may take of its device, by estimate; as little is "
        "recomputed as fits into it",
        unset="nine tenths of a GPU's memory",
        must=AT_LEAST_1,
    )
    shard_classifier: int = field(
        1,
        "devices of each tower that the classes of the model's last dense layer are "
        "divided among",
        must=FROM_1_TO_1024,
    )
    shard_embeddings: int = field(
        1,
        "devices of each tower, or ps tasks of a cluster, that the rows of each "
        "embedding table are divided among; also the classes, where the table is the "
        "last layer",
        must=FROM_1_TO_1024,
    )
    pipeline_report: str | None = field(
        None,
        "folder for a report of one step: the stages' bubble, busy times and memory, a "
        "chart (gantt.svg) and a Chrome trace",
        unset="none",
    )

    @property
    def pipelined(self) -> bool:
        """Whether a tower is cut into stages or micro-batches, or recomputes."""
        whole = self.num_stages == 1 and self.num_micro_batches == 1
        return not whole or self.recompute != "none"
