"""Tests of flags.sections: the flags that must stay, and their help."""

import dataclasses

from absl.testing import parameterized

from flags import config, devices, sections

# A flag is a promise: none of these may go or move to another section.
FLAGS = {
    "model": """
        model num_classes data_format compute_dtype use_fp16 fp16_loss_scale
        fp16_enable_auto_loss_scale fp16_inc_loss_scale_every_n
        """,
    "data": """
        data_name data_dir train_split batch_size augment
        synthetic_pixels datasets_prefetch_buffer_size datasets_num_private_threads
        """,
    "images": """
        input_preprocessor resize_method color_distortions distort_color_in_yiq
        fuse_decode_and_crop background_class max_damaged_examples
        """,
    "devices": """
        num_gpus gpu_indices logical_gpus device num_intra_threads num_inter_threads
        allow_growth gpu_memory_frac_for_testing tensor_float_32
        deterministic_ops batchnorm_persistent xla xla_compile
        """,
    "cluster": """
        job_name task_index ps_hosts worker_hosts controller_host
        replication local_cluster allow_open_ports max_restarts stall_secs wait_secs
        stop_grace_secs cluster_token_file
        """,
    "stages": """
        num_stages num_micro_batches schedule chunks_per_stage partition recompute
        memory_limit shard_classifier shard_embeddings pipeline_report
        """,
    "variables": """
        variable_update check_replicas_every check_mean tune_again cross_replica_sync
        max_staleness staleness_lr staged_vars variable_consistency
        local_parameter_device variable_placement all_reduce_spec gradient_repacking
        agg_small_grads_max_bytes agg_small_grads_max_group compact_gradient_transfer
        sparse_to_dense_grads sufficient_factors partition_bytes accumulate_steps
        batch_norm batch_norm_averages
        """,
    "training": """
        num_batches num_epochs num_warmup_batches steps_per_loop forward_only
        freeze_when_forward_only input_only init_checkpoint
        datasets_repeat_cached_sample tf_random_seed conv_initializer
        dense_initializer zero_gamma class_weight stop_on_nan callbacks
        """,
    "optimizer": """
        optimizer init_learning_rate piecewise_learning_rate_schedule
        learning_rate_schedule learning_rate_power learning_rate_cycle_growth
        num_epochs_per_decay learning_rate_decay_factor minimum_learning_rate
        num_learning_rate_warmup_epochs resnet_base_lr learning_rate_factors trainable
        momentum nesterov rmsprop_decay rmsprop_momentum rmsprop_epsilon adam_beta1
        adam_beta2 adam_epsilon lamb_epsilon lars_eeta lars_epsilon gradient_factor
        gradient_clip gradient_clip_norm weight_decay ema_decay
        """,
    "evaluation": """
        eval eval_interval_secs eval_during_training_every_n_steps
        eval_during_training_every_n_epochs eval_during_training_at_specified_steps
        eval_during_training_at_specified_epochs eval_at_end stop_at_top_1_accuracy
        eval_batch_size num_eval_batches num_eval_epochs eval_split eval_dir
        """,
    "output": """
        check_flags display_every display_perf_ewma print_training_accuracy
        loss_type_to_report train_dir save_model_secs save_model_steps async_checkpoint
        save_retry_secs max_ckpts_to_keep summary_verbosity save_summaries_steps
        trace_file tfprof_file partitioned_graph_file_prefix graph_file
        benchmark_log_dir benchmark_test_id
        """,
}


class SectionsTest(parameterized.TestCase):
    def test_the_flags_of_the_list_are_there(self):
        names = {
            section.name: [item.name for item in dataclasses.fields(section.type)]
            for section in dataclasses.fields(config.Config)
        }
        for section, text in FLAGS.items():
            self.assertContainsSubset(text.split(), names[section])

    @parameterized.parameters(*config.KINDS)
    def test_names_are_unique_over_all_sections(self, kind):
        declared = [dataclasses.fields(s.type) for s in dataclasses.fields(kind)]
        self.assertLen(config.all_flags(kind), sum(map(len, declared)))

    @parameterized.parameters(*config.KINDS)
    def test_a_section_is_frozen_and_has_a_heading(self, kind):
        for section in dataclasses.fields(kind):
            with self.subTest(section.name):
                with self.assertRaises(dataclasses.FrozenInstanceError):
                    section.type().anything = 1
                self.assertRegex(section.type.__doc__, r"^[A-Z][^\n]*\.$")

    @parameterized.parameters(*config.KINDS)
    def test_each_flag_is_well_declared(self, kind):
        for flag in config.all_flags(kind).values():
            with self.subTest(flag.name):
                # The help is one phrase.
                self.assertRegex(flag.text, r"^[^\n]{8,}[^.]$")
                self.assertNotIn("  ", flag.text)
                # The help says what happens without a value.
                self.assertEqual(bool(flag.unset), flag.default in (None, ()))
                # Each number has a bound.
                self.assertEqual(flag.must is not None, flag.kind in (int, float))
                # The default is among the choices.
                self.assertEqual(flag.problem(flag.default), "")

    def test_the_command_without_flags_trains_lenet_in_one_tower(self):
        self.assertEqual(sections.ModelFlags().model, "lenet")
        self.assertEqual(devices.DeviceFlags().num_gpus, 1)
