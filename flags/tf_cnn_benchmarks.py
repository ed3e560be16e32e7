"""The flags of tf_cnn_benchmarks that are refused, each with a sentence.

The sentence says what to write instead.  All other flags of tf_cnn_benchmarks work
here.

The flags are those of benchmark_cnn.py and tf_cnn_benchmarks.py at commit 8fb7907
(2023-10-05) of github.com/tensorflow/benchmarks, scripts/tf_cnn_benchmarks.
"""

from collections.abc import Mapping

_GRAPH_OPTIMIZERS = "TensorFlow's graph optimizers are always off; leave it out"
_NO_TENSORRT = "TensorFlow has been built without TensorRT since 2.18; leave it out"
_OF_OPENMP = "is for OpenMP, which TensorFlow does not use; see --num_intra_threads"
_OF_TIMESTAMPS = "is for --timestamped_allocator; leave it out"
_PREFETCH = "use --datasets_prefetch_buffer_size, batches kept ready per tower"

# Flags without a value: --flag, --noflag, --flag=false.
SWITCHES: Mapping[str, str] = {
    # Run mode.
    "collect_eval_results_async": "is for SSD, which is not among the models; "
    "accuracy is counted in the graph, so leave it out",
    # Devices.
    "use_numa_affinity": "start the program under numactl -N 0 -m 0 instead",
    "hierarchical_copy": "use --variable_update=replicated "
    "--all_reduce_spec=hierarchical, which takes any number of towers",
    "use_unified_memory": "export TF_FORCE_UNIFIED_MEMORY=1 instead",
    "timestamped_allocator": "is for RDMA transports, which TensorFlow 2 does not "
    "have; leave it out",
    "force_gpu_compatible": "is for inputs copied at each step, and here batches are "
    "prefetched to the GPUs; leave it out",
    "sync_on_finish": "a step always ends when its loss is fetched; leave it out",
    "winograd_nonfused": "export TF_ENABLE_WINOGRAD_NONFUSED=1 or =0 instead",
    "mkl": "oneDNN, as MKL's kernels are called now, is on by default; export "
    "TF_ENABLE_ONEDNN_OPTS=0 to do without",
    # Input.
    "distortions": "write --augment or --augment=false, for crop, flip and colours "
    "together; in tf_cnn_benchmarks this flag changes the colours alone",
    "use_datasets": "input always comes from tf.data; leave it out",
    "datasets_use_prefetch": "batches are always prefetched; "
    "--datasets_prefetch_buffer_size says how many",
    "datasets_use_caching": "files are cached by the operating system; leave it out",
    "datasets_sloppy_parallel_interleave": "the order of examples depends on the seed "
    "alone; leave it out",
    "use_python32_barrier": "input has no Python threads; leave it out",
    "ml_perf": "the model decides how images are scaled; for mean subtraction write a "
    "model of your own, --model=path/to/file.py:function",
    # Optimizer and loss.
    "single_l2_loss_op": "weight decay is added at the update, not to the loss; leave "
    "it out",
    "compute_lr_on_cpu": "the learning rate is always computed on the CPU; leave it "
    "out",
    # Graph, compilation, variables.
    "use_tf_layers": "there is one set of layers, on tf.nn; leave it out",
    "use_resource_vars": "variables are always resource variables; leave it out",
    "enable_optimizations": _GRAPH_OPTIMIZERS,
    # Precision.
    "fp16_vars": "variables stay float32 at every compute precision; leave it out",
    # Output.
    "use_chrome_trace_format": "--trace_file is always a Chrome trace; leave it out",
    "ml_perf_compliance_logging": "use --benchmark_log_dir, which logs JSON lines",
}

# Flags with a value: --flag=value, --flag value.
SETTINGS: Mapping[str, str] = {
    # Run mode.
    "trt_mode": _NO_TENSORRT,
    "trt_max_workspace_size_bytes": _NO_TENSORRT,
    "backbone_model_path": "is for SSD, which is not among the models; "
    "--init_checkpoint starts from the variables that a checkpoint has",
    # Batch and run length.
    "batch_group_size": _PREFETCH,
    "autotune_threshold": "export TF_AUTOTUNE_THRESHOLD instead, and give "
    "--num_warmup_batches the steps that it takes",
    # Devices.
    "gpu_thread_mode": "export TF_GPU_THREAD_MODE=global, gpu_private or gpu_shared "
    "instead",
    "per_gpu_thread_count": "export TF_GPU_THREAD_COUNT instead",
    "network_topology": "is for --hierarchical_copy; leave it out, as "
    "--all_reduce_spec=hierarchical takes the towers of each host, or each half of one "
    "host's, as a group",
    "gpu_kt_max_interval": _OF_TIMESTAMPS,
    "gpu_kt_max_bytes": _OF_TIMESTAMPS,
    "gpu_kt_max_pending": _OF_TIMESTAMPS,
    "kmp_blocktime": _OF_OPENMP,
    "kmp_affinity": _OF_OPENMP,
    "kmp_settings": _OF_OPENMP,
    # Input.
    "datasets_parallel_interleave_cycle_length": "TFDS decides how many files are read "
    "at once; leave it out",
    "datasets_parallel_interleave_prefetch": _PREFETCH,
    "multi_device_iterator_max_buffer_size": _PREFETCH,
    # Graph, compilation, variables.
    "rewriter_config": _GRAPH_OPTIMIZERS,
    # Gradient aggregation and distribution.
    "allreduce_merge_scope": "is for the ScopedAllocator, one of TensorFlow's graph "
    "optimizers, which are off; join gradients by --agg_small_grads_max_bytes and "
    "--agg_small_grads_max_group",
    "server_protocol": "tasks speak gRPC; leave it out",
    "horovod_device": "one client drives all towers, without Horovod; use --num_gpus",
    # Output.
    "debugger": "tfdbg is not a public part of TensorFlow 2; leave it out: a loss that "
    "is not finite ends the run, and the error names the step",
}

# Values that are refused of flags that work: flag -> value -> sentence.
VALUES: Mapping[str, Mapping[str, str]] = {
    "input_preprocessor": {
        "default": "leave it out for the model's own; tf_cnn_benchmarks' default is "
        "here --input_preprocessor=tf_cnn_benchmarks"
    },
    "resize_method": {
        "crop": "is among tf_cnn_benchmarks' values, but ends with an error there; "
        "choose another"
    },
    "variable_update": {
        "distributed_all_reduce": "use --variable_update=replicated with "
        "--job_name or --local_cluster",
        "collective_all_reduce": "use --variable_update=replicated with "
        "--job_name or --local_cluster",
        "horovod": "one client drives all towers, without Horovod; use --num_gpus",
    },
}


def refused() -> dict[str, str]:
    """All flags that are refused, with their sentences."""
    return {**SWITCHES, **SETTINGS}
