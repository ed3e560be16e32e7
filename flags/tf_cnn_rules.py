"""Which flags of tf_cnn_benchmarks go together, and which have no effect."""

from collections.abc import Iterator, Mapping
from typing import Any

from flags import rules, tf_cnn_benchmarks
from flags.problem import Problem
from flags.rule import Rule, at_most_one, needs, never
from flags.tf_cnn_flags import FLAGS, REFUSED, SAME

_DURING = [name for name in FLAGS if name.startswith("eval_during_training_")]
_RATES = ("init_learning_rate", "num_epochs_per_decay", "learning_rate_decay_factor")
_OF_REPLICAS = ("distributed_all_reduce", "collective_all_reduce")
_ALONE = ("replicated", "independent")

# What tf_cnn_benchmarks refuses itself.
RULES: tuple[Rule, ...] = (
    at_most_one("num_batches", "num_epochs"),
    at_most_one("save_model_secs", "save_model_steps"),
    at_most_one("eval", "forward_only", *_DURING),
    *(
        never("freeze_when_forward_only", other, ", with which nothing is a constant")
        for other in ("train_dir", "job_name")
    ),
    *(never(flag, "job_name", ", which starts no evaluation") for flag in _DURING),
    *(never(flag, "staged_vars") for flag in _DURING),
    needs("eval", "train_dir"),
    needs("stop_at_top_1_accuracy", *_DURING),
    *(
        never("piecewise_learning_rate_schedule", flag, ", which it replaces")
        for flag in (*_RATES, "minimum_learning_rate")
    ),
    *(needs(flag, other) for flag in _RATES[1:] for other in _RATES if flag != other),
    *(needs("minimum_learning_rate", other) for other in _RATES),
    never("fp16_enable_auto_loss_scale", "staged_vars"),
    *(
        never("fp16_enable_auto_loss_scale", f"variable_update={mode}")
        for mode in ("distributed_replicated", *_OF_REPLICAS)
    ),
    *(
        never("staged_vars", f"variable_update={mode}")
        for mode in (*_ALONE, "distributed_replicated", *_OF_REPLICAS)
    ),
    *(never("job_name", f"variable_update={mode}") for mode in _ALONE),
    needs("variable_update=distributed_replicated", "job_name"),
    *(needs(f"variable_update={mode}", "all_reduce_spec") for mode in _OF_REPLICAS),
    never("per_gpu_thread_count", "gpu_thread_mode=global"),
)

# A flag -> settings without any of which it has no effect there; it is left out here.
IDLE_WITHOUT: tuple[Rule, ...] = (
    *(
        needs(flag, "use_fp16")
        for flag in FLAGS
        if flag.startswith("fp16_") and FLAGS[flag].effect == SAME
    ),
    needs("fp16_inc_loss_scale_every_n", "fp16_enable_auto_loss_scale"),
    needs("gradient_repacking", "variable_update=replicated"),
    needs("variable_consistency", "variable_update=replicated"),
    *(
        needs(flag, "variable_update=replicated", f"variable_update={_OF_REPLICAS[0]}")
        for flag in ("agg_small_grads_max_bytes", "agg_small_grads_max_group")
    ),
    needs("agg_small_grads_max_group", "agg_small_grads_max_bytes"),
    needs(
        "all_reduce_spec",
        "variable_update=replicated",
        *(f"variable_update={mode}" for mode in _OF_REPLICAS),
    ),
    needs("hierarchical_copy", "variable_update=replicated"),
    *(needs(flag, "optimizer=rmsprop") for flag in FLAGS if flag.startswith("rmsprop")),
    *(needs(flag, "optimizer=adam") for flag in FLAGS if flag.startswith("adam_")),
    needs("momentum", "optimizer=momentum"),
    needs("freeze_when_forward_only", "forward_only"),
    needs("datasets_repeat_cached_sample", "data_dir"),
    needs("summary_verbosity", "save_summaries_steps"),
    needs("save_summaries_steps", "summary_verbosity"),
    *(
        needs(flag, "train_dir")
        for flag in FLAGS
        if flag.startswith("save_")
        or flag in ("summary_verbosity", "max_ckpts_to_keep")
    ),
    needs("benchmark_test_id", "benchmark_log_dir"),
    needs("eval_interval_secs", "eval"),
    needs("task_index", "job_name"),
    *(needs(f, "job_name") for f in ("ps_hosts", "worker_hosts", "controller_host")),
    needs(
        "num_learning_rate_warmup_epochs",
        "init_learning_rate",
        "piecewise_learning_rate_schedule",
    ),
)


def broken_rules(changed: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with the settings that differ from their default, by name."""
    settings = {name: row.default for name, row in FLAGS.items()} | dict(changed)
    for name, value in changed.items():
        if name in FLAGS and FLAGS[name].effect == REFUSED:
            yield Problem(name, value, FLAGS[name].words)
    yield from rules.broken(RULES, settings, changed)
    if settings["variable_update"] == "horovod":
        words = tf_cnn_benchmarks.VALUES["variable_update"]["horovod"]
        yield Problem("variable_update", "horovod", words)
    if settings["hierarchical_copy"] and settings["num_gpus"] == 1:
        yield Problem("hierarchical_copy", True, "needs several GPUs", "set `num_gpus`")
    on_cpu = settings["device"] == "cpu" and not settings["mkl"]
    if on_cpu and settings["data_format"] != "NHWC":
        yield Problem("device", "cpu", "needs `data_format=NHWC`")
