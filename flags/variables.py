"""The flags of variable updates and gradient exchange: a section of `Config`."""

import dataclasses
from typing import ClassVar

from flags.field import AT_LEAST_0, AT_LEAST_1, FROM_0_TO_256, field


@dataclasses.dataclass(frozen=True)
class VariablesFlags:
    """How variables and gradients meet."""

    common: ClassVar[tuple[str, ...]] = ("variable_update", "all_reduce_spec")

    variable_update: str = field(
        "parameter_server",
        "where variables live and how gradients reach them; auto times what takes the "
        "steps of one tower, and remembers the fastest",
    )
    check_replicas_every: int = field(
        0,
        "steps between checks that replicas and their optimizer slots are bit-equal; 0 "
        "checks none",
        must=AT_LEAST_0,
    )
    check_mean: bool = field(
        False,
        "prove before the first step, with a small model whose gradients are 1, that "
        "the mode takes the mean over all towers",
    )
    tune_again: bool = field(False, "time all modes though the fastest is remembered")
    cross_replica_sync: bool = field(
        True,
        "whether towers step together; without it each applies its own gradients when "
        "they are ready, as --variable_update=asynchronous",
    )
    max_staleness: int | None = field(
        None,
        "most updates by other towers between an asynchronous tower's reading and its "
        "update",
        unset="no bound",
        must=AT_LEAST_0,
    )
    staleness_lr: bool = field(
        False, "divide an asynchronous update's learning rate by its staleness"
    )
    staged_vars: bool = field(
        False, "read variables one step late, as --variable_update=staged"
    )
    variable_consistency: str = field(
        "strong",
        "relaxed applies the mean gradient one step late, as --variable_update=relaxed",
        choices=("strong", "relaxed"),
    )
    local_parameter_device: str = field(
        "cpu",
        "device of the variables and of the gradients' mean",
        choices=("cpu", "gpu"),
    )
    variable_placement: str = field(
        "least_loaded",
        "where a variable goes if several devices hold them, the GPUs of "
        "local_parameter_device or the ps tasks of a cluster: to the one that holds "
        "the fewest bytes (least_loaded), to each in turn (round_robin), or all to the "
        "first (one)",
    )
    all_reduce_spec: str | None = field(
        None,
        "how replicas' gradients are reduced: an algorithm (pscpu, psgpu, tree, xring, "
        "rechd, hierarchical, nccl or collective), as xring#2 in two shards, as "
        "nccl/xring inside a host and across hosts, or by size in bytes as "
        "pscpu:32k:xring",
        unset="pscpu",
    )
    gradient_repacking: int = field(
        0,
        "reduce all gradients as this many equal packs; 0 reduces each by itself",
        must=FROM_0_TO_256,
    )
    agg_small_grads_max_bytes: int = field(
        0,
        "join gradients up to this many bytes before they are reduced; 0 joins none",
        must=AT_LEAST_0,
    )
    agg_small_grads_max_group: int = field(
        10, "most small gradients to join in one", must=AT_LEAST_1
    )
    compact_gradient_transfer: str | None = field(
        None,
        "dtype in which gradients travel between devices, to be added in float32 where "
        "they arrive: true is that of 16-bit compute, false is float32; what "
        "--sufficient_factors sends travels as it is",
        unset="as computed on the way to one copy, float32 between replicas",
        choices=("true", "false", "bfloat16", "float16"),
    )
    sparse_to_dense_grads: bool = field(
        False, "make the sparse gradients of embeddings dense before they leave a tower"
    )
    sufficient_factors: bool = field(
        True,
        "send the gradients of dense layers to the one copy of their weights as the "
        "two factors that they are products of, where these are smaller; the product "
        "is made there",
    )
    partition_bytes: int = field(
        0,
        "cut variables larger than this into parts of at most so many bytes, or one "
        "for each ps task if that is fewer; 0 cuts none",
        must=AT_LEAST_0,
    )
    accumulate_steps: int = field(
        1,
        "batches that a tower takes one after the other in each step; their gradients "
        "add up to those of one larger batch",
        must=AT_LEAST_1,
    )
    batch_norm: str = field(
        "micro_batch",
        "examples that batch norm takes the statistics of: a micro-batch or round, or "
        "a batch that is in one; a tower's whole batch; a micro-batch or round of all "
        "towers; or the batches of all towers as one",
        choices=("micro_batch", "tower", "sync_micro_batch", "sync"),
    )
