"""The flags of `towers.verify` alone; it shares its other sections with a run.

A flag of the same name as one of `towers.train` means the same; here it may list
several values, which are all compared.
"""

import dataclasses
from typing import ClassVar

from flags.field import (
    ABOVE_0,
    AT_LEAST_0,
    AT_LEAST_1,
    FROM_0_TO_256,
    FROM_1_TO_1024,
    field,
)


@dataclasses.dataclass(frozen=True)
class VerifyFlags:
    """Which ways to train are compared with one tower, and for how long."""

    common: ClassVar[tuple[str, ...]] = ("num_towers", "pipelines", "num_steps")

    num_towers: tuple[int, ...] = field(
        (),
        "numbers of towers; batch_size is per tower of the largest, and all share the "
        "batch of that",
        unset="1,2,4, or as many of these as there are GPUs",
        must=FROM_1_TO_1024,
    )
    variable_update: tuple[str, ...] = field(
        (), "modes of how variables and gradients meet", unset="all"
    )
    all_reduce_spec: tuple[str, ...] = field(
        (),
        "reductions of the replicas' gradients",
        unset="each algorithm, one in two shards, and one by size",
    )
    gradient_repacking: tuple[int, ...] = field(
        (0, 2),
        "packs that replicas reduce all gradients as; 0 reduces each by itself",
        must=FROM_0_TO_256,
    )
    agg_small_grads_max_bytes: tuple[int, ...] = field(
        (0, 1024),
        "bytes up to which replicas join gradients before they reduce them; 0 joins "
        "none",
        must=AT_LEAST_0,
    )
    accumulate_steps: tuple[int, ...] = field(
        (1, 2),
        "rounds that towers take their batches in, besides the packings",
        must=AT_LEAST_1,
    )
    compact_gradient_transfer: tuple[str, ...] = field(
        (),
        "dtypes that gradients also travel in, which may make as much of a difference "
        "as their rounding in the first step; float32 adds nothing",
        unset="bfloat16,float16 with sgd and momentum, whose steps are linear in the "
        "gradient",
        choices=("float32", "bfloat16", "float16"),
    )
    pipelines: str = field(
        "pairs",
        "which towers are cut into stages: all with these settings, or so few that "
        "every two values of different settings meet",
        choices=("pairs", "all", "none"),
    )
    num_stages: tuple[int, ...] = field(
        (),
        "devices of each tower of a pipeline",
        unset="1,2,4, as far as the model has blocks and the machine has GPUs",
        must=FROM_1_TO_1024,
    )
    num_micro_batches: tuple[int, ...] = field(
        (),
        "pieces of each tower's batch in a pipeline",
        unset="1,4, as far as they divide the batch",
        must=FROM_1_TO_1024,
    )
    schedule: tuple[str, ...] = field(
        (), "orders in which stages run their micro-batches", unset="all"
    )
    recompute: tuple[str, ...] = field(
        (), "what the backward pass of a pipeline computes again", unset="all"
    )
    num_shards: tuple[int, ...] = field(
        (),
        "devices of each tower that share the classes of the last layer, or the rows "
        "of tables that are looked up; 1 spreads neither",
        unset="2, where the model has such a layer or tables",
        must=FROM_1_TO_1024,
    )
    batch_norm: str = field(
        "micro_batch",
        "the batches that batch norm takes the statistics of, as in towers.train; the "
        "one tower takes its batch in the same pieces, and with sync as a whole",
        choices=("micro_batch", "tower", "sync_micro_batch", "sync"),
    )
    num_steps: int = field(5, "steps to compare", must=AT_LEAST_1)
    bound: float = field(
        1e-5,
        "largest difference that is no difference, relative to a variable's largest "
        "element, and to the most that one has moved, but for the rounding of each "
        "update; where something is in 16 bits, at least their rounding in one step; "
        "where the model makes rounding grow, twice what 16 at the start become",
        must=ABOVE_0,
    )
    device: str = field(
        "auto",
        "what the towers run on; auto is GPUs if there are any, else the CPU",
        choices=("cpu", "gpu", "auto"),
    )
    logical_gpus: int = field(
        1,
        "logical GPUs that each GPU is split into, so that more towers can be compared "
        "than there are GPUs",
        must=FROM_1_TO_1024,
    )
    tf_random_seed: int = field(
        1234,
        "seed of the initial values, of shuffling, augmentation and dropout",
        must=AT_LEAST_0,
    )
