"""Tests of flags.tf_cnn_benchmarks."""

import re

from absl.testing import absltest, parameterized

from flags import config, tf_cnn_benchmarks

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

# Their switches that are taken: --eval must not turn into a flag with a value.
TAKEN_SWITCHES = (
    "eval",
    "print_training_accuracy",
    "batchnorm_persistent",
    "allow_growth",
    "compact_gradient_transfer",
    "sparse_to_dense_grads",
    "xla",
    "xla_compile",
    "cross_replica_sync",
    "staged_vars",
    "use_fp16",
    "fp16_enable_auto_loss_scale",
    "fuse_decode_and_crop",
    "distort_color_in_yiq",
    "forward_only",
    "freeze_when_forward_only",
    "datasets_repeat_cached_sample",
)

# Their --variable_update, but for those that are taken.
OTHER_MODES = ("distributed_all_reduce", "collective_all_reduce", "horovod")

OURS = config.all_flags()
REFUSED = tf_cnn_benchmarks.refused()


class RefusedTest(absltest.TestCase):
    def test_the_list_of_their_flags_is_whole(self):
        self.assertLen(THEIRS, 138)
        self.assertLen(set(THEIRS), 138)

    def test_each_of_their_flags_is_either_taken_or_refused(self):
        for name in THEIRS:
            with self.subTest(name):
                self.assertNotEqual(name in OURS, name in REFUSED)

    def test_nothing_else_is_refused(self):
        self.assertContainsSubset(REFUSED, THEIRS)

    def test_a_refused_flag_has_one_row(self):
        self.assertEmpty(
            set(tf_cnn_benchmarks.SWITCHES) & set(tf_cnn_benchmarks.SETTINGS)
        )

    def test_the_switches_among_the_taken_are_switches(self):
        switches = [n for n in THEIRS if n in OURS and OURS[n].switch]
        self.assertCountEqual(switches, TAKEN_SWITCHES)

    def test_the_sentence_says_what_to_do(self):
        for name, sentence in REFUSED.items():
            with self.subTest(name):
                self.assertRegex(sentence, "comes with|leave it out|export|start|--")
                self.assertNotRegex(sentence, r"\.$|\n|  ")

    def test_the_way_out_is_open(self):
        for name, sentence in REFUSED.items():
            # A refused flag may be named, but as what comes or as what this one is for.
            if not re.search("comes with|is for --", sentence):
                with self.subTest(name):
                    named = set(re.findall(r"--(\w+)", sentence))
                    self.assertEmpty(named - set(OURS))


class ValuesTest(parameterized.TestCase):
    def test_the_flags_are_ours(self):
        self.assertContainsSubset(tf_cnn_benchmarks.VALUES, OURS)

    @parameterized.parameters(*OTHER_MODES)
    def test_their_other_modes_are_refused_until_a_table_has_them(self, mode):
        settings = config.make(variable_update=mode)
        (problem,) = config.check(settings, {"variable_update": ["parameter_server"]})
        error = problem.sentence()
        self.assertStartsWith(error, f"--variable_update={mode}: ")
        self.assertNotIn("no such", error)
        self.assertEqual(config.check(settings, {"variable_update": [mode]}), [])
