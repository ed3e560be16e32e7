"""The flags of tf_cnn_benchmarks and what becomes of each: one table.

`python -m towers.tf_cnn_benchmarks` reads them; `flags.tf_cnn_translation` makes a
command line of `towers.train` from them.  docs/tf_cnn_benchmarks.md shows the table.

The flags, types and defaults are those of benchmark_cnn.py and tf_cnn_benchmarks.py at
commit 8fb7907 (2023-10-05) of github.com/tensorflow/benchmarks.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from flags import field, tf_cnn_benchmarks

SECTION = "tf_cnn_benchmarks"

# What becomes of a flag, in the order of the docs.
SAME = "the same flag"
TRANSLATED = "translated"
ENVIRONMENT = "sets an environment variable, on GPUs"
NO_EFFECT = "taken; sets nothing, as no result depends on it"
REFUSED = "refused, unless it has its default value"


class Row(NamedTuple):
    """A flag.

    Attributes:
      kind: type of the value: bool, int, float, str or tuple[...].
      default: the value if it is not given.
      effect: one of the five above.
      words: what it sets here, or why it sets nothing; what to write instead.
    """

    kind: Any
    default: Any
    effect: str
    words: str = ""


def _same(kind: Any, **defaults: Any) -> dict[str, Row]:
    return {name: Row(kind, value, SAME) for name, value in defaults.items()}


def _no_effect(kind: Any, default: Any, **reasons: str) -> dict[str, Row]:
    return {n: Row(kind, default, NO_EFFECT, words) for n, words in reasons.items()}


def _refused(kind: Any, **defaults: Any) -> dict[str, Row]:
    sentences = tf_cnn_benchmarks.refused()
    return {
        name: Row(kind, value, REFUSED, sentences.get(name, ""))
        for name, value in defaults.items()
    }


def _if_here(effect: str, words: str, kind: Any, **defaults: Any) -> dict[str, Row]:
    """Flags with this effect, or refused where `towers.train` refuses them, too."""
    refused = tf_cnn_benchmarks.refused()
    return {
        name: Row(kind, value, REFUSED, refused[name])
        if name in refused
        else Row(kind, value, effect, words)
        for name, value in defaults.items()
    }


_OF_FILES = "the same flag, for images that are read"
_LENGTH = "--num_batches, with as many steps"
_EVALUATED = "--eval_during_training_at_specified_steps, with the warm-up steps added"
_SCHEDULE = "--piecewise_learning_rate_schedule, with epochs that are whole steps there"
_PERIOD = "the same flag, with the epochs of whole steps"
_MKL = "with --mkl"
_ALL_TFDATA = "input comes from tf.data, and batches are prefetched"
_ALLOCATOR = "it is about speed and memory of transports that TensorFlow 2 lacks"
_GRAPH_OPTIMIZERS = "TensorFlow's graph optimizers are always off"

FLAGS: Mapping[str, Row] = {
    # Taken as they are.
    **_same(bool, eval=False, print_training_accuracy=False, staged_vars=False),
    **_same(bool, xla=False, xla_compile=False, use_fp16=False),
    **_same(bool, sparse_to_dense_grads=False, fp16_enable_auto_loss_scale=False),
    **_same(bool, batchnorm_persistent=True, cross_replica_sync=True),
    **_same(bool, allow_growth=None, forward_only=False),
    **_same(bool, freeze_when_forward_only=False, datasets_repeat_cached_sample=False),
    **_same(int, eval_interval_secs=0, num_gpus=1, display_every=10),
    **_same(int, gradient_repacking=0, num_inter_threads=0, tf_random_seed=1234),
    **_same(int, datasets_prefetch_buffer_size=1, datasets_num_private_threads=None),
    **_same(int, fp16_inc_loss_scale_every_n=1000, agg_small_grads_max_bytes=0),
    **_same(int, agg_small_grads_max_group=10, task_index=0, summary_verbosity=0),
    **_same(int, save_summaries_steps=0, save_model_secs=0, save_model_steps=None),
    **_same(int, max_ckpts_to_keep=5, num_intra_threads=None),
    **_same(float, stop_at_top_1_accuracy=None, init_learning_rate=None),
    **_same(float, learning_rate_decay_factor=0.0, minimum_learning_rate=0.0),
    **_same(float, momentum=0.9, rmsprop_decay=0.9, rmsprop_momentum=0.9),
    **_same(float, rmsprop_epsilon=1.0, adam_beta1=0.9, adam_beta2=0.999),
    **_same(float, adam_epsilon=1e-8, gradient_clip=None, fp16_loss_scale=None),
    **_same(float, gpu_memory_frac_for_testing=0.0, display_perf_ewma=None),
    **_same(str, tfprof_file="", partitioned_graph_file_prefix=""),
    **_same(str, trace_file="", graph_file="", loss_type_to_report="total_loss"),
    **_same(str, all_reduce_spec="", job_name="", controller_host=""),
    **_same(str, variable_consistency="strong", train_dir="", data_dir=""),
    **_same(str, benchmark_log_dir="", benchmark_test_id=""),
    **_same(tuple[str, ...], ps_hosts=(), worker_hosts=()),
    **_same(tuple[int, ...], gpu_indices=()),
    **_if_here(SAME, "", bool, forward_only=False, freeze_when_forward_only=False),
    **_if_here(SAME, "", bool, datasets_repeat_cached_sample=False),
    **_if_here(SAME, "", float, display_perf_ewma=None),
    **_if_here(SAME, "", str, tfprof_file="", partitioned_graph_file_prefix=""),
    # Translated.
    **_if_here(TRANSLATED, _OF_FILES, bool, fuse_decode_and_crop=True),
    **_if_here(TRANSLATED, _OF_FILES, bool, distort_color_in_yiq=True),
    **_if_here(TRANSLATED, _OF_FILES, str, resize_method="bilinear"),
    **_if_here(TRANSLATED, _OF_FILES, str, input_preprocessor="default"),
    **_if_here(TRANSLATED, "--init_checkpoint", str, backbone_model_path=""),
    "ml_perf": Row(
        bool, False, TRANSLATED, "--input_preprocessor, for images that are read"
    ),
    "model": Row(
        str, "trivial", TRANSLATED, "--model, the network that it means there"
    ),
    "data_name": Row(str, "", TRANSLATED, "--data_name and --num_classes"),
    "distortions": Row(bool, False, TRANSLATED, "--augment of CIFAR-10"),
    "batch_size": Row(int, 0, TRANSLATED, "--batch_size; 0 is the model's there"),
    "eval_batch_size": Row(int, 0, TRANSLATED, "the same flag; 0 is --batch_size"),
    "num_batches": Row(int, None, TRANSLATED, _LENGTH),
    "num_epochs": Row(float, None, TRANSLATED, f"{_LENGTH}, warm-up not counted"),
    "num_eval_batches": Row(int, None, TRANSLATED, "--num_eval_batches"),
    "num_eval_epochs": Row(float, None, TRANSLATED, "--num_eval_batches"),
    "num_warmup_batches": Row(int, None, TRANSLATED, "the same flag"),
    "eval_during_training_every_n_steps": Row(int, None, TRANSLATED, _EVALUATED),
    "eval_during_training_every_n_epochs": Row(float, None, TRANSLATED, _EVALUATED),
    "eval_during_training_at_specified_steps": Row(
        tuple[int, ...], (), TRANSLATED, _EVALUATED
    ),
    "eval_during_training_at_specified_epochs": Row(
        tuple[float, ...], (), TRANSLATED, _EVALUATED
    ),
    "eval_dir": Row(
        str, "/tmp/tf_cnn_benchmarks/eval", TRANSLATED, "the same flag, with --eval"
    ),
    "device": Row(
        str, "", TRANSLATED, "the same flag; unset it is gpu, or cpu without any GPU"
    ),
    "data_format": Row(str, "", TRANSLATED, "the same flag; unset it is NCHW on GPUs"),
    "local_parameter_device": Row(
        str, "gpu", TRANSLATED, "the same flag, or --all_reduce_spec of replicas"
    ),
    "optimizer": Row(str, "sgd", TRANSLATED, "the same flag, also if it is not given"),
    "weight_decay": Row(float, 4e-5, TRANSLATED, "the same, also if it is not given"),
    "piecewise_learning_rate_schedule": Row(str, "", TRANSLATED, _SCHEDULE),
    "num_epochs_per_decay": Row(float, 0.0, TRANSLATED, _PERIOD),
    "num_learning_rate_warmup_epochs": Row(float, 0.0, TRANSLATED, _PERIOD),
    "resnet_base_lr": Row(float, None, TRANSLATED, _SCHEDULE),
    "compact_gradient_transfer": Row(
        bool, True, TRANSLATED, "the same flag, with --use_fp16"
    ),
    "variable_update": Row(
        str, "parameter_server", TRANSLATED, "the same flag, and --gradient_factor"
    ),
    "hierarchical_copy": Row(
        bool, False, TRANSLATED, "--all_reduce_spec=hierarchical of replicas"
    ),
    "backbone_model_path": Row(
        str, "", TRANSLATED, "--init_checkpoint, of any model's variables"
    ),
    # Environment variables.
    "winograd_nonfused": Row(bool, True, ENVIRONMENT, "TF_ENABLE_WINOGRAD_NONFUSED"),
    "autotune_threshold": Row(
        int, None, ENVIRONMENT, "TF_AUTOTUNE_THRESHOLD; and --num_warmup_batches"
    ),
    "sync_on_finish": Row(bool, False, ENVIRONMENT, "TF_SYNC_ON_FINISH"),
    "gpu_thread_mode": Row(str, "gpu_private", ENVIRONMENT, "TF_GPU_THREAD_MODE"),
    "per_gpu_thread_count": Row(int, 0, ENVIRONMENT, "TF_GPU_THREAD_COUNT"),
    "use_unified_memory": Row(bool, None, ENVIRONMENT, "TF_FORCE_UNIFIED_MEMORY"),
    "mkl": Row(bool, False, ENVIRONMENT, "KMP_* and OMP_NUM_THREADS, on CPUs, too"),
    "kmp_blocktime": Row(int, 0, ENVIRONMENT, f"KMP_BLOCKTIME, {_MKL}"),
    "kmp_affinity": Row(
        str,
        "granularity=fine,verbose,compact,1,0",
        ENVIRONMENT,
        f"KMP_AFFINITY, {_MKL}",
    ),
    "kmp_settings": Row(int, 1, ENVIRONMENT, f"KMP_SETTINGS, {_MKL}"),
    # About how, not what, is computed.
    **_no_effect(
        bool,
        False,
        use_numa_affinity="processes are pinned by numactl -N 0 -m 0",
        timestamped_allocator=_ALLOCATOR,
        force_gpu_compatible="batches are prefetched to the GPUs",
        datasets_use_caching="files are cached by the operating system",
        datasets_sloppy_parallel_interleave="the order of examples depends on the seed",
        use_python32_barrier="input has no Python threads",
        single_l2_loss_op="weight decay is added to the gradient",
        compute_lr_on_cpu="the learning rate is always computed on the CPU",
        use_resource_vars="variables are always resource variables",
    ),
    **_no_effect(
        bool,
        True,
        use_datasets=_ALL_TFDATA,
        datasets_use_prefetch=_ALL_TFDATA,
        use_tf_layers="there is one set of layers, on tf.nn",
        enable_optimizations=_GRAPH_OPTIMIZERS,
    ),
    **_no_effect(
        int,
        0,
        gpu_kt_max_interval=_ALLOCATOR,
        gpu_kt_max_bytes=_ALLOCATOR,
        gpu_kt_max_pending=_ALLOCATOR,
    ),
    **_no_effect(
        int,
        None,
        datasets_parallel_interleave_cycle_length="the order of examples depends on "
        "the seed alone",
        datasets_parallel_interleave_prefetch=_ALL_TFDATA,
    ),
    **_no_effect(
        int,
        1,
        multi_device_iterator_max_buffer_size=_ALL_TFDATA,
        allreduce_merge_scope=_GRAPH_OPTIMIZERS,
    ),
    **_no_effect(str, "", rewriter_config=_GRAPH_OPTIMIZERS),
    **_no_effect(str, "dgx1", network_topology="towers of a host are a group"),
    # Refused.
    **_refused(bool, collect_eval_results_async=False, fp16_vars=False),
    **_refused(bool, use_chrome_trace_format=True, ml_perf_compliance_logging=False),
    **_refused(int, batch_group_size=1),
    **_refused(str, trt_mode="", server_protocol="grpc", horovod_device=""),
    **_refused(str, debugger="", trt_max_workspace_size_bytes="4294967296"),
}

_CHOICES = {
    "optimizer": ("momentum", "sgd", "rmsprop", "adam"),
    "device": ("cpu", "gpu"),
    "local_parameter_device": ("cpu", "gpu"),
    "data_format": ("NHWC", "NCHW"),
    "data_name": ("imagenet", "cifar10", "librispeech", "coco"),
    "variable_consistency": ("strong", "relaxed"),
    "loss_type_to_report": ("base_loss", "total_loss"),
    "network_topology": ("dgx1", "gcp_v100"),
    "input_preprocessor": ("default", "official_models_imagenet"),
    "resize_method": (
        *("crop", "nearest", "bilinear", "bicubic", "area", "round_robin"),
    ),
    "job_name": ("ps", "worker", "controller"),
    "gpu_thread_mode": ("global", "gpu_private", "gpu_shared"),
    "variable_update": (
        *("parameter_server", "replicated", "distributed_replicated", "independent"),
        *("distributed_all_reduce", "collective_all_reduce", "horovod"),
    ),
}

_AT_LEAST_1 = ("num_gpus", "display_every", "eval_during_training_every_n_steps")


def _field(name: str, row: Row) -> tuple[str, Any, Any]:
    """The flag as a field of the settings' class."""
    unset = "not set" if row.default in (None, ()) else ""
    words = row.words or f"as --{name} of towers.train"
    text = words if row.effect in (SAME, TRANSLATED) else f"{row.effect}: {words}"
    number = not {int, float}.isdisjoint({row.kind, *getattr(row.kind, "__args__", ())})
    must = field.AT_LEAST_1 if name in _AT_LEAST_1 else field.AT_LEAST_0
    declared = field.field(
        row.default,
        text,
        unset=unset,
        must=must if number else None,
        choices=_CHOICES.get(name, ()),
    )
    return name, row.kind | None if row.default is None else row.kind, declared


# The flags that the short help shows.
_COMMON = (
    *("model", "num_gpus", "batch_size", "num_batches", "num_epochs", "data_dir"),
    *("data_name", "variable_update", "optimizer", "device", "use_fp16"),
)

_PRINT = (
    "print_flags",
    bool,
    field.field(False, "print the equivalent command line of towers.train, no more"),
)

# The settings of the old command, a section as those of `flags.sections`.
Settings: Any = dataclasses.make_dataclass(
    "Settings",
    [*(_field(name, row) for name, row in FLAGS.items()), _PRINT],
    namespace={"__doc__": "The flags of tf_cnn_benchmarks.", "common": _COMMON},
    frozen=True,
)


def table() -> str:
    """The table of docs/tf_cnn_benchmarks.md."""
    same = [f"`--{name}`" for name, row in FLAGS.items() if row.effect == SAME]
    lines = [f"Taken as they are: {', '.join(sorted(same))}."]
    for effect in (TRANSLATED, ENVIRONMENT, NO_EFFECT, REFUSED):
        lines += ["", f"| {effect} | |", "|---|---|"]
        lines += [
            f"| `--{name}` | {row.words.replace('`', '')} |"
            for name, row in sorted(FLAGS.items())
            if row.effect == effect
        ]
    return "\n".join(lines)
