"""Command lines that break one rule each on which flags go together, as users write
them, with what is said: a list of its own, so that no rule can be lost unseen."""

from unittest import mock

from absl.testing import parameterized

from flags import config, field, rules
from tests import flag_lines
from towers.variable_update.modes import VARIABLE_UPDATES

# The choices below that `--help` takes from tables of `towers`.
_CHOICES = {
    "compute_dtype": ("float32", "bfloat16", "float16"),
    "recompute": ("none", "stage", "auto"),
    "schedule": ("1f1b", "gpipe", "interleaved"),
    "variable_placement": ("least_loaded", "one"),
    "variable_update": {**VARIABLE_UPDATES, "auto": None},
}

# The first flag "does not go with" the second.
_EXCLUDED = (
    "--eval_during_training_at_specified_steps=5 "
    "--eval_during_training_at_specified_epochs=1.0",
    *"""
--num_batches=5 --num_epochs=2.0
--save_model_secs=60 --save_model_steps=10
--num_eval_batches=5 --num_eval_epochs=1.0
--init_learning_rate=0.5 --resnet_base_lr=0.5
--eval --eval_during_training_every_n_steps=5
--eval --eval_during_training_every_n_epochs=0.5
--eval --eval_during_training_at_specified_steps=5
--eval --eval_during_training_at_specified_epochs=0.5
--eval_during_training_every_n_steps=5 --eval_during_training_every_n_epochs=0.5
--eval_during_training_every_n_steps=5 --eval_during_training_at_specified_steps=5
--eval_during_training_every_n_steps=5 --eval_during_training_at_specified_epochs=1.0
--eval_during_training_every_n_epochs=2.0 --eval_during_training_at_specified_steps=5
--eval_during_training_every_n_epochs=2.0 --eval_during_training_at_specified_epochs=1.0
--eval --forward_only
--forward_only --eval_during_training_every_n_steps=5
--forward_only --eval_during_training_every_n_epochs=0.5
--forward_only --eval_during_training_at_specified_steps=5
--forward_only --eval_during_training_at_specified_epochs=0.5
--eval_at_end --forward_only
--train_dir=x --forward_only
--accumulate_steps=2 --forward_only
--check_mean --forward_only
--pipeline_report=x --forward_only
--variable_update=auto --forward_only
--forward_only --nocross_replica_sync
--forward_only --variable_update=asynchronous
--eval --input_only
--forward_only --input_only
--input_only --eval_during_training_every_n_steps=5
--eval_at_end --input_only
--train_dir=x --input_only
--accumulate_steps=2 --input_only
--check_mean --input_only
--pipeline_report=x --input_only
--variable_update=auto --input_only
--xla --input_only
--xla_compile --input_only
--shard_classifier=2 --input_only
--shard_embeddings=2 --input_only
--init_checkpoint=x --input_only
--check_replicas_every=5 --input_only
--print_training_accuracy --input_only
--num_stages=2 --input_only
--num_micro_batches=2 --input_only
--recompute=stage --input_only
--input_only --nocross_replica_sync
--input_only --variable_update=asynchronous
--freeze_when_forward_only --job_name=ps
--freeze_when_forward_only --local_cluster=worker:2
--trace_file=x --eval
--tfprof_file=x --eval
--partitioned_graph_file_prefix=x --eval
--graph_file=x --eval
--pipeline_report=x --eval
--data_dir=x --data_name=synthetic
--datasets_repeat_cached_sample --data_name=synthetic
--train_split=x --data_name=synthetic
--eval_split=x --data_name=synthetic
--init_learning_rate=0.5 --piecewise_learning_rate_schedule=0.1
--minimum_learning_rate=0.5 --piecewise_learning_rate_schedule=0.1
--resnet_base_lr=0.5 --piecewise_learning_rate_schedule=0.1
--num_epochs_per_decay=0.5 --piecewise_learning_rate_schedule=0.1
--learning_rate_decay_factor=0.5 --piecewise_learning_rate_schedule=0.1
--learning_rate_schedule=cosine --piecewise_learning_rate_schedule=0.1
--local_parameter_device=gpu --device=cpu
--gpu_indices=1 --device=cpu
--logical_gpus=2 --device=cpu
--allow_growth --device=cpu
--gpu_memory_frac_for_testing=0.5 --device=cpu
--notensor_float_32 --device=cpu
--deterministic_ops --device=cpu
--nobatchnorm_persistent --device=cpu
--xla --num_stages=2
--xla --num_micro_batches=2
--xla --recompute=stage
--xla_compile --num_stages=2
--xla_compile --num_micro_batches=2
--xla_compile --recompute=stage
--job_name=ps --local_cluster=worker:2
--task_index=1 --local_cluster=worker:2
--ps_hosts=a:1 --local_cluster=worker:2
--worker_hosts=a:1 --local_cluster=worker:2
--controller_host=a:1 --local_cluster=worker:2
--gpu_indices=1 --local_cluster=worker:2
--join=c:1 --ps_hosts=p:1
--join=c:1 --controller_host=c:1
--elastic=true --replication=between_graph
--elastic=true --variable_update=auto
--elastic=true --num_stages=2
--elastic=true --eval
--elastic=true --check_mean
--elastic=true --input_only
--elastic=true --forward_only
--elastic=true --tower_batch_sizes=4,4
--elastic=keep_batch --variable_update=asynchronous
--elastic=keep_batch --nocross_replica_sync
--elastic=scale_lr --variable_update=asynchronous
--elastic=scale_lr --nocross_replica_sync
--replay_membership=x --variable_update=asynchronous
--replay_membership=x --nocross_replica_sync
--tower_batch_sizes=4,4 --variable_update=asynchronous
--tower_batch_sizes=4,4 --nocross_replica_sync
--replication=between_graph --tower_batch_sizes=auto
--backup_workers=1 --variable_update=asynchronous
--backup_workers=1 --nocross_replica_sync
--dropped_examples=replay --max_damaged_examples=3
--elastic=true --variable_update=independent
--elastic=true --rebalance=9
--rebalance=9 --forward_only
--rebalance=9 --input_only
--rebalance=9 --batch_norm=sync
--rebalance=9 --batch_norm=sync_micro_batch
--rebalance=9 --variable_update=asynchronous
--rebalance=9 --nocross_replica_sync
--rebalance=9 --variable_update=independent
--replication=between_graph --rebalance=9
--replication=between_graph --variable_update=replicated
--replication=between_graph --variable_update=independent
--replication=between_graph --variable_update=staged
--replication=between_graph --variable_update=relaxed
--replication=between_graph --variable_update=auto
--replication=between_graph --variable_consistency=relaxed
--replication=between_graph --staged_vars
--replication=between_graph --batch_norm=sync
--replication=between_graph --batch_norm=sync_micro_batch
--replication=between_graph --batch_norm_averages=first_tower
--batch_norm_averages=first_tower --variable_update=independent
--batch_norm_averages=first_tower --variable_update=asynchronous
--batch_norm_averages=first_tower --nocross_replica_sync
--replication=between_graph --check_replicas_every=5
--replication=between_graph --max_staleness=5
--replication=between_graph --shard_embeddings=2
--replication=between_graph --num_stages=2
--replication=between_graph --num_micro_batches=2
--replication=between_graph --use_fp16
--replication=between_graph --compute_dtype=float16
--variable_update=auto --local_cluster=worker:2
--variable_update=auto --job_name=ps
--staged_vars --nocross_replica_sync
--steps_per_loop=2 --nocross_replica_sync
--steps_per_loop=2 --variable_update=asynchronous
--gradient_repacking=1 --agg_small_grads_max_bytes=9
--partition_bytes=9 --variable_placement=one
--compact_gradient_transfer=true --variable_update=independent
--sparse_to_dense_grads --variable_update=independent
--batch_norm=sync --variable_update=independent
--batch_norm=sync_micro_batch --variable_update=independent
--batch_norm=sync --nocross_replica_sync
--batch_norm=sync --variable_update=asynchronous
--batch_norm=sync_micro_batch --nocross_replica_sync
--batch_norm=sync_micro_batch --variable_update=asynchronous
--batch_norm=sync --xla_compile
--batch_norm=sync_micro_batch --xla_compile
--batch_norm=tower --accumulate_steps=2
--batch_norm=sync --accumulate_steps=2
--accumulate_steps=2 --num_stages=2
--accumulate_steps=2 --num_micro_batches=2
--accumulate_steps=2 --recompute=stage
--use_fp16 --compute_dtype=bfloat16
--fp16_enable_auto_loss_scale --nocross_replica_sync
--fp16_enable_auto_loss_scale --variable_update=asynchronous
--fp16_enable_auto_loss_scale --staged_vars
--fp16_enable_auto_loss_scale --variable_update=staged
--fp16_enable_auto_loss_scale --variable_consistency=relaxed
--fp16_enable_auto_loss_scale --variable_update=relaxed
""".strip().splitlines(),
)


def _modes_that_read(setting: str) -> str:
    """The variable updates that read a setting, as a sentence names them."""
    modes = [n for n, mode in VARIABLE_UPDATES.items() if setting in mode.reads]
    return field.listing([f"--variable_update={name}" for name in modes], "or")


_ALL_REDUCE = _modes_that_read("all_reduce_spec")
_LATE = "--nocross_replica_sync or --variable_update=asynchronous"
_FLOAT16 = "--use_fp16 or --compute_dtype=float16"

# What the first flag "needs".
_NEEDED = (
    ("--eval", "--train_dir"),
    ("--freeze_when_forward_only", "--forward_only"),
    (
        "--stop_at_top_1_accuracy=0.5",
        "--eval_during_training_every_n_steps, --eval_during_training_every_n_epochs, "
        "--eval_during_training_at_specified_steps or "
        "--eval_during_training_at_specified_epochs",
    ),
    ("--learning_rate_power=2.0", "--learning_rate_schedule"),
    ("--learning_rate_cycle_growth=2.0", "--learning_rate_schedule"),
    ("--min_workers=2", "--elastic"),
    ("--max_workers=2", "--elastic"),
    ("--memory_copy_steps=5", "--elastic"),
    ("--join=c:1", "--elastic"),
    ("--join=c:1", "--job_name=worker"),
    ("--replay_membership=x", "--elastic or --backup_workers"),
    ("--backup_workers=1", "--replication=between_graph"),
    ("--dropped_examples=replay", "--backup_workers"),
    ("--save_model_secs=60", "--train_dir"),
    ("--save_model_steps=10", "--train_dir"),
    ("--max_ckpts_to_keep=2", "--train_dir"),
    ("--async_checkpoint", "--save_model_secs or --save_model_steps"),
    ("--save_retry_secs=9.0", "--save_model_secs or --save_model_steps"),
    ("--summary_verbosity=1", "--train_dir"),
    ("--summary_verbosity=1", "--save_summaries_steps"),
    ("--save_summaries_steps=10", "--train_dir"),
    ("--save_summaries_steps=10", "--summary_verbosity"),
    ("--benchmark_test_id=x", "--benchmark_log_dir"),
    ("--schedule=gpipe", "--num_stages or --num_micro_batches"),
    ("--schedule=interleaved", "--num_stages"),
    ("--chunks_per_stage=3", "--schedule=interleaved"),
    ("--partition=flops", "--num_stages"),
    ("--pipeline_report=x", "--num_stages, --num_micro_batches or --recompute"),
    ("--memory_limit=9", "--recompute=auto"),
    ("--learning_rate_power=2.0", "--learning_rate_schedule"),
    ("--learning_rate_cycle_growth=3.0", "--learning_rate_schedule"),
    ("--allow_open_ports", "--local_cluster"),
    ("--max_restarts=1", "--local_cluster"),
    ("--task_index=1", "--job_name"),
    ("--worker_hosts=a:1", "--job_name"),
    ("--tune_again", "--variable_update=auto"),
    (
        "--check_replicas_every=5",
        "--variable_update=replicated, --variable_update=distributed_replicated or "
        "--variable_update=relaxed",
    ),
    (
        "--nocross_replica_sync --variable_update=independent",
        "--variable_update=parameter_server",
    ),
    (
        "--staged_vars --variable_update=independent",
        "--variable_update=parameter_server",
    ),
    ("--variable_consistency=relaxed", "--variable_update=replicated"),
    ("--max_staleness=5", _LATE),
    ("--staleness_lr", _LATE),
    ("--all_reduce_spec=pscpu", _ALL_REDUCE),
    ("--gradient_repacking=1", _ALL_REDUCE),
    ("--agg_small_grads_max_bytes=9", _ALL_REDUCE),
    ("--agg_small_grads_max_group=9", _ALL_REDUCE),
    ("--agg_small_grads_max_group=9", "--agg_small_grads_max_bytes"),
    (
        "--variable_placement=one --variable_update=independent",
        _modes_that_read("variable_placement"),
    ),
    (
        "--partition_bytes=9 --variable_update=independent",
        _modes_that_read("partition_bytes"),
    ),
    (
        "--nosufficient_factors --variable_update=independent",
        _modes_that_read("sufficient_factors"),
    ),
    ("--batch_norm=sync_micro_batch", "--num_micro_batches or --accumulate_steps"),
    ("--fp16_loss_scale=0.5", _FLOAT16),
    ("--fp16_enable_auto_loss_scale", _FLOAT16),
    ("--fp16_inc_loss_scale_every_n=9", "--fp16_enable_auto_loss_scale"),
)


# Rules about more than two flags, or with arithmetic; `config_test` has more.
_SENTENCES = (
    ("--job_name=ps --worker_hosts=a:1", "--job_name=ps: needs --ps_hosts"),
    ("--job_name=ps --ps_hosts=a:1", "--job_name=ps: needs --worker_hosts"),
    ("--job_name=worker", "--job_name=worker: needs --worker_hosts"),
    ("--job_name=evaluator", "--job_name=evaluator: needs --train_dir"),
    (
        "--job_name=controller --worker_hosts=a:1",
        "--job_name=controller: needs --controller_host",
    ),
    (
        "--job_name=worker --worker_hosts=a:1,b:1 --task_index=2",
        "--task_index=2: --job_name=worker has 2 tasks, counted from 0",
    ),
    (
        "--job_name=ps --worker_hosts=a:1,b:1 --ps_hosts=c:1 --task_index=1",
        "--task_index=1: --job_name=ps has 1 task, counted from 0",
    ),
)
_OF_VERIFY = (
    (
        "--minimum_learning_rate=0.5 --init_learning_rate=0.9",
        "--minimum_learning_rate=0.5: needs --num_epochs_per_decay and "
        "--learning_rate_decay_factor",
    ),
    (
        "--variable_update=independent --gradient_repacking=2",
        "--gradient_repacking=2: needs replicated or relaxed in --variable_update",
    ),
    *(
        (f"--pipelines=none {flag}", f"{flag}: does not go with --pipelines=none")
        for flag in (
            "--num_stages=2",
            "--num_micro_batches=2",
            "--schedule=gpipe",
            "--recompute=stage",
        )
    ),
    *(
        (
            f"--batch_norm={norm} --accumulate_steps=1,3",
            f"--accumulate_steps=1,3: does not go with --batch_norm={norm}; write "
            "--accumulate_steps=1",
        )
        for norm in ("tower", "sync")
    ),
)


def _errors(line: str, program: type[config.Settings] = config.Config) -> list[str]:
    """What is said about a command line of a program; nothing if it is legal."""
    flags = config.all_flags(program)
    settings = config.make(program, **flag_lines.settings(line, program))
    choices = {name: table for name, table in _CHOICES.items() if name in flags}
    return [problem.sentence() for problem in config.check(settings, choices)]


def _is_refused(line: str, needed: str = "") -> bool:
    """Whether it is, and for its flags: the reasons are in docs/flags.md."""
    first, *rest = line.split()
    if needed:
        return f"{first}: needs {needed}" in _errors(line)
    said = f"{first}: does not go with {rest[0]}"
    return any(
        e == said or e.startswith((f"{said},", f"{said};")) for e in _errors(line)
    )


_LINES = (*((line, "") for line in _EXCLUDED), *_NEEDED)


class RefusedTest(parameterized.TestCase):
    @parameterized.parameters(*_LINES)
    def test_refused(self, line, needed):
        self.assertTrue(_is_refused(line, needed), _errors(line))

    @parameterized.parameters(*_SENTENCES)
    def test_refused_by_arithmetic(self, line, sentence):
        self.assertIn(sentence, _errors(line))

    @parameterized.parameters(*_OF_VERIFY)
    def test_refused_by_verify(self, line, sentence):
        self.assertIn(sentence, _errors(line, config.VerifyConfig))

    def test_each_row_of_the_table_has_a_line_that_only_it_refuses(self):
        """So none can be dropped unseen; a new row of rules.py needs a line above."""
        all_rows = rules.rows(_CHOICES, config.all_flags())
        text = " ".join(line for line, _ in _LINES)
        for row in all_rows:
            update = [t for t in row.others if t.name == "variable_update"]
            if row.relation == rules.NEVER and update and str(update[0]) not in text:
                continue  # follows from the attributes of a variable update
            names = [term.name for term in (row.flag, *row.others)]
            lines = [
                line for line in _LINES if any(n in line[0].split()[0] for n in names)
            ]
            rest = tuple(other for other in all_rows if other is not row)
            with mock.patch.object(rules, "rows", lambda *_, rest=rest: rest):
                seen = not all(_is_refused(*line) for line in lines)
            self.assertTrue(seen, f"no line above breaks {row}")
