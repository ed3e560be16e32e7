"""Tests of flags.config."""

import dataclasses

from absl.testing import parameterized

from flags import config
from tests import flag_lines
from towers.variable_update.modes import VARIABLE_UPDATES

CHOICES = {
    "model": ("lenet", "resnet50", "resnet56"),
    "optimizer": ("sgd", "momentum"),
    "variable_update": VARIABLE_UPDATES,
}

LEGAL = """

--num_gpus=4 --gpu_indices=0,1,2,3 --device=gpu
--model=package.module:function
--data_name=mnist --data_dir=/data
--data_name=synthetic
--num_epochs=2.5 --num_warmup_batches=0
--init_learning_rate=0.1 --num_epochs_per_decay=2 --learning_rate_decay_factor=0.5 \
--minimum_learning_rate=0.001
--piecewise_learning_rate_schedule=0.1;80;0.01 --num_learning_rate_warmup_epochs=5
--init_learning_rate=0.0
--eval --train_dir=d --eval_interval_secs=60
--eval_during_training_at_specified_epochs=1,2 --stop_at_top_1_accuracy=0.97
--train_dir=d --save_model_steps=20
--train_dir=d --summary_verbosity=3 --save_summaries_steps=10
--benchmark_log_dir=d --benchmark_test_id=x
--noeval_at_end
--batch_norm=tower --num_micro_batches=4 --schedule=gpipe
--use_fp16 --compact_gradient_transfer=true
--batch_norm=sync --num_stages=1
--batch_norm=sync_micro_batch --num_micro_batches=4
""".splitlines()[1:]

# Below each line its sentence, from the first flag on: what takes more than a row of
# `flags.rules` to say, whose sentences `rules_test` and `refused_test` have.
ILLEGAL = flag_lines.table("""
--num_gpus=0
 must be at least 1 and at most 1024
--batch_size=-3
 must be at least 1
--num_epochs=1e+16
 must be above 0 and at most 1e9
--num_epochs=0.0
 must be above 0 and at most 1e9
--init_learning_rate=1e+39
 must be at most 3e+38
--num_inter_threads=5000
 must be at least 0 and at most 4096
--gpu_memory_frac_for_testing=7.0
 must be at least 0 and at most 1
--steps_per_loop=0
 must be at least 1
--num_batches=0
 must be at least 1
--summary_verbosity=4
 must be 0, 1, 2 or 3
--model=resnet51
 no such model; did you mean resnet56, resnet50, lenet?
--optimizer=sgdd
 no such optimizer; did you mean sgd?
--data_format=NHCW
 no such data_format; did you mean NHWC, NCHW?
--variable_update=collective_all_reduce
 use --variable_update=replicated with --job_name or --local_cluster
--resize_method=crop
 is among tf_cnn_benchmarks' values, but ends with an error there; choose another
--train_dir=
 must not be empty; leave the flag out instead
--eval --train_dir=d --eval_during_training_every_n_steps=3 \
--eval_during_training_at_specified_steps=1,2
 does not go with --eval_during_training_every_n_steps=3 and \
--eval_during_training_at_specified_steps=1,2; give one
--compact_gradient_transfer=true
 needs 16 bits in --compute_dtype; to round float32 gradients on their way, name the \
dtype: --compact_gradient_transfer=bfloat16
--graph_file=a/../a/b.json --trace_file=a/b.json
 is --trace_file, too; name another file
--learning_rate_decay_factor=0.5
 needs --init_learning_rate and --num_epochs_per_decay
--minimum_learning_rate=0.75 --init_learning_rate=0.5 --num_epochs_per_decay=1 \
--learning_rate_decay_factor=0.5
 is above --init_learning_rate=0.5
--minimum_learning_rate=0.5
 needs --init_learning_rate, --num_epochs_per_decay and --learning_rate_decay_factor
--piecewise_learning_rate_schedule=0.1;80
--piecewise_learning_rate_schedule='0.1;80': has 2 parts; write \
LR0;E1;LR1;...;En;LRn, an odd number
--num_gpus=3 --shard_classifier=2
 is not a multiple of --shard_classifier=2; write --num_gpus=2 or 4, or \
--shard_classifier=1 or 3
--shard_classifier=2 --num_gpus=4 --shard_embeddings=4
 is not --shard_embeddings=4, and both are devices of a tower; write the same \
number twice
--shard_classifier=4 --num_gpus=4 --num_stages=2
 is not --num_stages=2, and both are devices of a tower; write --shard_classifier=2
--min_workers=3 --max_workers=2 --elastic=scale_lr
 is above --max_workers=2
--gpu_indices=0,1
 names 2 GPUs for --num_gpus=1
--gpu_indices=1,1 --num_gpus=2
 names a GPU twice
--batch_norm=tower --num_micro_batches=4
 needs all micro-batches of a stage before one goes on, and --schedule=1f1b sends one \
back before; write --schedule=gpipe, or --batch_norm=micro_batch
""")


def errors(**settings):
    problems = config.check(config.make(**settings), CHOICES)
    return [problem.sentence() for problem in problems]


class MakeTest(parameterized.TestCase):
    def test_puts_each_setting_in_its_section(self):
        settings = config.make(num_gpus=4, model="resnet50", nesterov=False)
        self.assertEqual(settings.devices.num_gpus, 4)
        self.assertEqual(settings.model.model, "resnet50")
        self.assertFalse(settings.optimizer.nesterov)
        self.assertEqual(settings.devices.device, "auto")

    def test_an_unknown_name_is_an_error_that_offers_the_nearest(self):
        with self.assertRaisesRegex(ValueError, r"^num_gpu: .*mean num_gpus"):
            config.make(num_gpu=4)
        with self.assertRaisesRegex(ValueError, r"^zzz: no such flag.*--help"):
            config.make(zzz=4)

    def test_flat_is_its_inverse(self):
        settings = config.make(num_gpus=4, gpu_indices=(3, 2, 1, 0), eval_at_end=False)
        flat = config.flat(settings)
        self.assertEqual(list(flat), list(config.all_flags()))
        self.assertEqual(flat["gpu_indices"], (3, 2, 1, 0))
        self.assertEqual(config.make(**flat), settings)

    def test_a_config_is_frozen_and_hashable(self):
        settings = config.make()
        with self.assertRaises(dataclasses.FrozenInstanceError):
            settings.devices.num_gpus = 2
        self.assertEqual(hash(settings), hash(config.make()))


class CheckTest(parameterized.TestCase):
    @parameterized.parameters(*LEGAL)
    def test_legal(self, line):
        self.assertEqual(errors(**flag_lines.settings(line)), [])

    @parameterized.parameters(*ILLEGAL)
    def test_illegal(self, line, sentence):
        self.assertEqual(errors(**flag_lines.settings(line)), [sentence])

    def test_a_value_that_is_wrong_breaks_no_rule_besides(self):
        problems = errors(
            eval_during_training_every_n_steps=0, stop_at_top_1_accuracy=0.5
        )
        self.assertEqual(
            problems, ["--eval_during_training_every_n_steps=0: must be at least 1"]
        )

    def test_a_value_that_could_not_be_read_breaks_no_rule(self):
        settings = config.make(save_model_steps=5)
        self.assertLen(config.check(settings, CHOICES), 1)
        self.assertEmpty(config.check(settings, CHOICES, unread=["train_dir"]))

    def test_names_are_open_without_a_table(self):
        settings = config.make(model="x", optimizer="y")
        self.assertEqual(config.check(settings, {}), [])

    def test_choices_for_a_flag_that_is_not_there_are_a_bug(self):
        with self.assertRaises(AssertionError):
            config.check(config.make(), {"no_such_flag": ["x"]})

    def test_a_value_of_another_type_is_an_error_not_a_traceback(self):
        for name in config.all_flags():
            with self.subTest(name):
                (error,) = errors(**{name: {"not": "a value"}})
                self.assertStartsWith(error, f"--{name}=")
