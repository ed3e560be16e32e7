"""The flags of variable updates and gradient exchange: a section of `Config`."""

import dataclasses
from typing import ClassVar

from flags.field import AT_LEAST_0, AT_LEAST_1, FROM_0_TO_256, field


@dataclasses.dataclass(frozen=True)
class VariablesFlags:
    """Where variables are, and how gradients are reduced and applied."""

    common: ClassVar[tuple[str, ...]] = ("variable_update", "all_reduce_spec")

    variable_update: str = field(
        "parameter_server",
        "where variables are, and how gradients update them; auto times the modes that "
        "take the same steps as one tower, and remembers the fastest",
    )
    check_replicas_every: int = field(
        0,
        "steps between checks that all replicas of the variables and optimizer slots "
        "have equal bits; 0 never checks",
        must=AT_LEAST_0,
    )
    check_mean: bool = field(
        False,
        "check before the first step, with a small model whose gradients are known, "
        "that the update is the mean over all towers",
    )
    tune_again: bool = field(False, "time all modes again, and remember the fastest")
    cross_replica_sync: bool = field(
        True,
        "take steps with all towers together; --nocross_replica_sync is the same as "
        "--variable_update=asynchronous",
    )
    max_staleness: int | None = field(
        None,
        "updates that other towers may make between an asynchronous tower's read of "
        "the variables and its update",
        unset="no bound",
        must=AT_LEAST_0,
    )
    staleness_lr: bool = field(
        False, "divide an asynchronous update's learning rate by its staleness"
    )
    staged_vars: bool = field(
        False,
        "compute gradients with the variables of one step earlier; the same as "
        "--variable_update=staged",
    )
    variable_consistency: str = field(
        "strong",
        "relaxed applies the mean gradient one step late; the same as "
        "--variable_update=relaxed",
        choices=("strong", "relaxed"),
    )
    local_parameter_device: str = field(
        "cpu",
        "device of the variables, on which the gradients' mean is taken",
        choices=("cpu", "gpu"),
    )
    variable_placement: str = field(
        "least_loaded",
        "which of several ps tasks, or GPUs with --local_parameter_device=gpu, a "
        "variable is put on: the one with the fewest bytes so far (least_loaded), each "
        "in turn (round_robin), or always the first (one)",
    )
    all_reduce_spec: str | None = field(
        None,
        "reduction of replicas' gradients: pscpu, psgpu, tree, xring, rechd, "
        "hierarchical, nccl or collective; xring#2 works in two shards, nccl/xring "
        "takes nccl inside a host and xring across hosts, pscpu:32k:xring takes pscpu "
        "up to 32 KiB and xring above",
        unset="pscpu",
    )
    gradient_repacking: int = field(
        0,
        "join all gradients into this many vectors of equal size, and reduce these; 0 "
        "reduces each gradient by itself",
        must=FROM_0_TO_256,
    )
    agg_small_grads_max_bytes: int = field(
        0,
        "join gradients of at most this many bytes before they are reduced; 0 joins "
        "none",
        must=AT_LEAST_0,
    )
    agg_small_grads_max_group: int = field(
        10, "small gradients that are joined in one, at most", must=AT_LEAST_1
    )
    compact_gradient_transfer: str | None = field(
        None,
        "dtype in which gradients are sent between devices; they are added in float32. "
        "true is the 16-bit dtype of --compute_dtype, false is float32; it does not "
        "change what --sufficient_factors sends",
        unset="the dtype that gradients are computed in, and float32 between replicas",
        choices=("true", "false", "bfloat16", "float16"),
    )
    sparse_to_dense_grads: bool = field(
        False, "make sparse gradients of embeddings dense before they are reduced"
    )
    sufficient_factors: bool = field(
        True,
        "where weights have one copy, send a dense layer's gradient as the two "
        "matrices whose product it is, if these are smaller; they are multiplied where "
        "the weights are",
    )
    partition_bytes: int = field(
        0,
        "cut a larger variable into parts of at most this many bytes, but not into "
        "more parts than ps tasks; 0 cuts none",
        must=AT_LEAST_0,
    )
    accumulate_steps: int = field(
        1,
        "batches that a tower computes one after another in each step; the update is "
        "that of their union",
        must=AT_LEAST_1,
    )
    tower_batch_sizes: str | None = field(
        None,
        "examples of each tower per step, such as 48,16, in place of --batch_size, for "
        "devices of unequal speed; auto divides the examples of --batch_size batches "
        "by the speed of each tower, measured before the first step",
        unset="--batch_size for each",
    )
    rebalance: int = field(
        0,
        "steps over which each tower's time is measured, again and again; where a "
        "tower stays slower than others, it gets fewer examples per step and they get "
        "more, for steps at least a tenth shorter; 0 keeps the batch sizes",
        must=AT_LEAST_0,
    )
    batch_norm: str = field(
        "micro_batch",
        "examples whose mean and variance batch norm takes: those of a micro-batch (or "
        "of one of --accumulate_steps batches), of a tower, of the same micro-batch of "
        "all towers, or of all towers",
        choices=("micro_batch", "tower", "sync_micro_batch", "sync"),
    )
    batch_norm_averages: str = field(
        "all_towers",
        "towers whose batch statistics, on average, the moving averages of batch norm "
        "follow",
        choices=("all_towers", "first_tower"),
    )
