"""The flags of `towers.verify` alone; its other sections are those of `towers.train`.

A flag with the name of one of `towers.train` means the same.  Here it may list several
values, and each is compared with one tower.
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
        "numbers of towers to compare; all train on the same global batch, batch_size "
        "times the largest number",
        unset="1,2,4, or as many of these as there are GPUs",
        must=FROM_1_TO_1024,
    )
    variable_update: tuple[str, ...] = field(
        (), "modes of updating variables, as in towers.train", unset="all"
    )
    all_reduce_spec: tuple[str, ...] = field(
        (),
        "reductions of the replicas' gradients",
        unset="each algorithm, one in two shards, and one by size",
    )
    gradient_repacking: tuple[int, ...] = field(
        (0, 2),
        "numbers of vectors that replicas join all gradients into; 0 reduces each by "
        "itself",
        must=FROM_0_TO_256,
    )
    agg_small_grads_max_bytes: tuple[int, ...] = field(
        (0, 1024),
        "replicas join gradients of at most this many bytes before they are reduced; 0 "
        "joins none",
        must=AT_LEAST_0,
    )
    accumulate_steps: tuple[int, ...] = field(
        (1, 2),
        "numbers of equal parts in which a tower computes its batch one after another",
        must=AT_LEAST_1,
    )
    compact_gradient_transfer: tuple[str, ...] = field(
        (),
        "dtypes besides float32 in which gradients are sent; the allowed difference "
        "grows by their rounding in the first step",
        unset="bfloat16,float16 with sgd and momentum, whose steps are linear in the "
        "gradient, else none",
        choices=("float32", "bfloat16", "float16"),
    )
    pipelines: str = field(
        "pairs",
        "which combinations of the settings of stages are compared: all, none, or so "
        "few that each pair of values of two settings occurs (pairs)",
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
        "micro-batches of each tower's batch in a pipeline",
        unset="1,4, as far as they divide the batch",
        must=FROM_1_TO_1024,
    )
    schedule: tuple[str, ...] = field(
        (), "orders in which stages run their micro-batches", unset="all"
    )
    recompute: tuple[str, ...] = field(
        (), "activations that a pipeline's backward pass computes again", unset="all"
    )
    num_shards: tuple[int, ...] = field(
        (),
        "devices of each tower that the classes of the last layer, or the rows of "
        "embedding tables, are divided among; 1 divides neither",
        unset="2, where the model has such a layer or tables",
        must=FROM_1_TO_1024,
    )
    batch_norm: str = field(
        "micro_batch",
        "examples whose mean and variance batch norm takes, as in towers.train; the "
        "one tower takes its batch in the same parts, and with sync as a whole",
        choices=("micro_batch", "tower", "sync_micro_batch", "sync"),
    )
    num_steps: int = field(5, "steps to compare", must=AT_LEAST_1)
    bound: float = field(
        1e-5,
        "largest difference that counts as equal, relative to a variable's largest "
        "element and to its largest change, beyond the rounding of each update. It is "
        "raised to one step's rounding where something is in 16 bits, and to twice "
        "what 16 such roundings at the start grow to where the model makes them grow",
        must=ABOVE_0,
    )
    device: str = field(
        "auto",
        "what the towers run on; auto takes GPUs if there are any",
        choices=("cpu", "gpu", "auto"),
    )
    logical_gpus: int = field(
        1,
        "logical GPUs that each GPU is split into, to compare more towers than GPUs",
        must=FROM_1_TO_1024,
    )
    tf_random_seed: int = field(
        1234,
        "seed of the initial values, of shuffling, augmentation and dropout",
        must=AT_LEAST_0,
    )
