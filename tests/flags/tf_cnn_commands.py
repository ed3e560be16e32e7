"""Commands of tf_cnn_benchmarks, for the tests of what translates them."""

from flags import config, parse
from flags.tf_cnn_flags import FLAGS
from flags.tf_cnn_models import MODELS
from flags.tf_cnn_run import TheirRun

# Every flag of benchmark_cnn.py, and the one of tf_cnn_benchmarks.py, in their order,
# at the commit that flags/tf_cnn_benchmarks.py names.
THEIRS = """
    model eval eval_interval_secs eval_during_training_every_n_steps
    eval_during_training_every_n_epochs eval_during_training_at_specified_steps
    eval_during_training_at_specified_epochs forward_only freeze_when_forward_only
    print_training_accuracy batch_size eval_batch_size batch_group_size num_batches
    num_eval_batches num_epochs num_eval_epochs stop_at_top_1_accuracy
    collect_eval_results_async num_warmup_batches autotune_threshold num_gpus
    gpu_indices display_every display_perf_ewma data_dir data_name resize_method
    distortions use_datasets input_preprocessor gpu_thread_mode per_gpu_thread_count
    hierarchical_copy network_topology gradient_repacking compact_gradient_transfer
    variable_consistency datasets_repeat_cached_sample local_parameter_device device
    data_format num_intra_threads num_inter_threads use_numa_affinity trace_file
    use_chrome_trace_format tfprof_file graph_file partitioned_graph_file_prefix
    optimizer init_learning_rate piecewise_learning_rate_schedule
    num_epochs_per_decay learning_rate_decay_factor num_learning_rate_warmup_epochs
    minimum_learning_rate resnet_base_lr momentum rmsprop_decay rmsprop_momentum
    rmsprop_epsilon adam_beta1 adam_beta2 adam_epsilon gradient_clip weight_decay
    gpu_memory_frac_for_testing use_unified_memory timestamped_allocator
    gpu_kt_max_interval gpu_kt_max_bytes gpu_kt_max_pending use_tf_layers
    tf_random_seed debugger use_python32_barrier ml_perf datasets_use_prefetch
    datasets_prefetch_buffer_size datasets_num_private_threads datasets_use_caching
    datasets_parallel_interleave_cycle_length datasets_sloppy_parallel_interleave
    datasets_parallel_interleave_prefetch multi_device_iterator_max_buffer_size
    winograd_nonfused batchnorm_persistent sync_on_finish staged_vars
    force_gpu_compatible allow_growth xla xla_compile fuse_decode_and_crop
    distort_color_in_yiq enable_optimizations rewriter_config loss_type_to_report
    single_l2_loss_op use_resource_vars compute_lr_on_cpu sparse_to_dense_grads mkl
    kmp_blocktime kmp_affinity kmp_settings use_fp16 fp16_loss_scale fp16_vars
    fp16_enable_auto_loss_scale fp16_inc_loss_scale_every_n variable_update
    all_reduce_spec agg_small_grads_max_bytes agg_small_grads_max_group
    allreduce_merge_scope job_name ps_hosts worker_hosts controller_host task_index
    server_protocol cross_replica_sync horovod_device summary_verbosity
    save_summaries_steps save_model_secs save_model_steps max_ckpts_to_keep
    train_dir eval_dir backbone_model_path trt_mode trt_max_workspace_size_bytes
    benchmark_log_dir benchmark_test_id ml_perf_compliance_logging
""".split()


def parsed(*words):
    """The settings of a command line, by name."""
    return config.flat(parse.parse(["x", *words], {}, config.TfCnnBenchmarksConfig))


def run_of(dataset="imagenet", model="resnet50", gpus=False, **flags):
    """A run with these flags, and the defaults of all others."""
    defaults = {name: row.default for name, row in FLAGS.items()}
    flags = {**defaults, "model": model, **flags}
    return TheirRun(flags, dataset, MODELS[dataset][model], gpus)
