"""Faults in the files on top of `towers/`: graphs, plans, runs, the mains."""

from tests.mutants.fault import of_file

FAULTS = [
    *of_file(
        "towers/graph.py",
        (
            "tf.cast(position / source.num_examples, tf.float32)",
            "tf.cast(position // source.num_examples, tf.float32)",
            "variable_update/train_steps_test::test_the_learning_rate_goes_by_the_position_in_the_stream",
        ),
        (
            "examples_per_step=builder.examples(len(towers) // len(all_steps)),",
            "examples_per_step=builder.examples(len(towers)),",
            "graph_test::test_examples_of_the_towers_that_step_together",
        ),
        (
            "seed=options.seed,\n        kind=",
            "seed=0,\n        kind=",
            "graph_test::test_towers_draw_by_the_seed_of_the_run",
        ),
        (
            "return self.batch_size * self.accumulate_steps",
            "return self.batch_size",
            "compute/accumulation_test::test_rounds_are_one_larger_batch",
        ),
        (
            "inputs={**batch.tensors(), **scalars[index]},",
            "inputs={**batch.tensors(), **scalars[0]},",
            "variable_update/train_steps_test",
        ),
    ),
    *of_file(
        "towers/planning.py",
        (
            "return -(-self.options.limit // self.examples_per_step)",
            "return self.options.limit // self.examples_per_step",
            "planning_test::test_length_on_real_data",
        ),
        (
            "return math.ceil(round(steps, 6))",
            "return math.ceil(steps)",
            "planning_test::test_epochs_in_steps",
        ),
        (
            "augment=data.distortions is not False,",
            "augment=bool(data.distortions),",
            "planning_test::test_images_are_distorted_unless_told_otherwise",
        ),
        (
            "num_warmup=warmup * apart,",
            "num_warmup=warmup,",
            "planning_test::test_an_evaluator_knows_the_end_of_a_run_on_a_cluster",
        ),
        (
            "DEFAULT_WARMUP if warmup is None else warmup",
            "warmup or DEFAULT_WARMUP",
            "planning_test::test_length_on_synthetic_data",
        ),
        (
            "per_step = batch_size * config.variables.accumulate_steps * together",
            "per_step = batch_size * together",
            "planning_test::test_learning_rate",
        ),
        (
            "initial=flags.fp16_loss_scale or DEFAULT_SCALE,",
            "initial=DEFAULT_SCALE,",
            "planning_test::test_the_loss_scale",
        ),
        (
            "dataclasses.replace(request, vocabulary=source.vocabulary)",
            "request",
            "checkpoints/constants_test::test_evaluation_is_told_in_the_words_of_training",
        ),
        (
            "request = dataclasses.replace(request, vocabulary=source.vocabulary)\n"
            "    return source, inputs.get(name, request, split=split, training=False)",
            "request = dataclasses.replace(request, vocabulary=source.vocabulary)\n"
            "    return source, inputs.get(name, request, split=split, training=True)",
            "planning_test::test_length_on_real_data",
        ),
    ),
    *of_file(
        "towers/plan_checks.py",
        (
            "if shards > max(count, 1):",
            "if shards > max(count, 2):",
            "plan_checks_test::test_rows_on_a_cluster_need_ps_tasks",
        ),
        (
            'prefetch=0 if source.name == "synthetic" else prefetch,',
            "prefetch=0,",
            "plan_checks_test::test_batches_that_no_memory_holds",
        ),
        (
            "if config.data.distortions and not",
            "if config.data.distortions is not None and not",
            "plan_checks_test::test_distortions_of_a_preprocessing_without",
        ),
    ),
    *of_file(
        "towers/evaluation/evaluator.py",
        (
            "return max(1, round(flags.num_eval_epochs * total))",
            "return round(flags.num_eval_epochs * total)",
            "evaluation/evaluator_test::test_the_least_of_a_split_is_an_example",
        ),
        (
            "return plan.num_batches is None if eval_at_end is None else eval_at_end",
            "return plan.num_batches is None or eval_at_end",
            "evaluation/evaluator_test::test_at_the_end",
        ),
        (
            "every = epochs * plan.source.num_examples / plan.examples_per_step",
            "every = epochs * plan.source.num_examples // plan.examples_per_step",
            "evaluation/evaluator_test::test_epochs_need_not_be_whole_steps",
        ),
        (
            "means = self._plan.model.with_derived(result.means)",
            "means = dict(result.means)",
            "models/lstm_lm_test::test_perplexity_of_words_goes_down",
        ),
        (
            "if eval_dir is None and train_dir:",
            "if train_dir:",
            "evaluation/watch_test::test_summaries_and_logs",
        ),
    ),
    *of_file(
        "towers/run.py",
        (
            "summary.build(built, output.summary_verbosity)",
            "summary.build(built, 1)",
            "run_test::test_nothing_that_was_not_asked_for",
        ),
        (
            "built.saved | built.constants,",
            "built.saved,",
            "checkpoints/constants_test::test_a_text_with_other_words_is_refused",
        ),
        (
            "run_status.clear(run.plan.config.output.train_dir)",
            "pass",
            "exit_statuses_test::test_2_a_checkpoint_of_another",
        ),
        (
            "if begin < until:",
            "if begin <= until:",
            "exit_statuses_test::test_2_a_checkpoint_of_another",
        ),
        (
            "return begin + loop.steps_left(run.built, session)",
            "return loop.steps_left(run.built, session)",
            "run_test::test_a_run_resumed",
        ),
        (
            "missing = bool(run.evaluator and last and step != run.evaluator.step)",
            "missing = bool(run.evaluator and last)",
            "run_test::test_training_ends run_test::test_lines_and_files",
        ),
        (
            "return goal is not None and self._run.evaluator.accuracy >= goal",
            "return False",
            "run_test::test_a_lost_evaluation",
        ),
    ),
    *of_file(
        "towers/evaluation/watch.py",
        (
            "return global_step >= plan.num_steps",
            "return global_step > plan.num_steps",
            "evaluation/watch_test::test_the_end_of_a_run_of_so_many_steps",
            True,
        ),
        (
            "return position >= plan.options.limit",
            "return position >= 2 * plan.options.limit",
            "evaluation/watch_test::test_as_they_come_until_the_end_on_other_towers",
            True,
        ),
        (
            'f"{name}{_AVERAGE}" if variable.trainable else name: variable',
            "name: variable",
            "evaluation/watch_test::test_averages_are_read",
        ),
    ),
    *of_file(
        "towers/train.py",
        ("return error.status", "return 1", "train_test::test_interrupted"),
        (
            "run_status.leave(directory, str(error) or type(error).__name__)",
            "pass",
            "train_test::test_a_loss_that_is_no_number",
        ),
        (
            "if cluster_ok and role != cluster_spec.SERVER:",
            "if role != cluster_spec.SERVER:",
            "train_test::test_what_a_cluster_may_do_is_not_said_without_one",
        ),
    ),
    *of_file(
        "towers/start.py",
        (
            'if platform.machine().lower() in ("x86_64", "amd64"):',
            "if True:",
            "start_test::test_onednn_is_on_where_it_was_measured",
        ),
        (
            'os.environ.setdefault(_ONEDNN, "1")',
            'os.environ[_ONEDNN] = "1"',
            "start_test::test_what_is_set_stays",
        ),
    ),
]
