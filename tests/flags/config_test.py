"""Tests of flags.config."""

import dataclasses

from absl.testing import absltest, parameterized

from flags import config

CHOICES = {
    "model": ("lenet", "resnet50", "resnet56"),
    "optimizer": ("sgd", "momentum"),
    "variable_update": ("parameter_server", "independent"),
}

EVALUATE_OFTEN = (
    "--eval_during_training_every_n_steps, --eval_during_training_every_n_epochs, "
    "--eval_during_training_at_specified_steps or "
    "--eval_during_training_at_specified_epochs"
)


def errors(**settings):
    return config.check(config.make(**settings), CHOICES)


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
    @parameterized.named_parameters(
        ("defaults", {}),
        ("towers", {"num_gpus": 4, "gpu_indices": (0, 1, 2, 3), "device": "gpu"}),
        ("own model", {"model": "package.module:function"}),
        ("any data set", {"data_name": "mnist", "data_dir": "/data"}),
        ("synthetic", {"data_name": "synthetic"}),
        ("whole epochs", {"num_epochs": 2}),
        ("warm-up beside epochs", {"num_epochs": 2.5, "num_warmup_batches": 0}),
        (
            "decay",
            {
                "init_learning_rate": 0.1,
                "num_epochs_per_decay": 2.0,
                "learning_rate_decay_factor": 0.5,
                "minimum_learning_rate": 0.001,
            },
        ),
        (
            "piecewise with warm-up",
            {
                "piecewise_learning_rate_schedule": "0.1;80;0.01;120;0.001",
                "num_learning_rate_warmup_epochs": 5.0,
            },
        ),
        ("constant rate of zero", {"init_learning_rate": 0.0}),
        ("evaluation", {"eval": True, "train_dir": "d", "eval_interval_secs": 60}),
        (
            "early stop",
            {
                "eval_during_training_at_specified_epochs": (1.0, 2.0),
                "stop_at_top_1_accuracy": 0.97,
            },
        ),
        ("checkpoints", {"train_dir": "d", "save_model_steps": 20}),
        (
            "summaries",
            {"train_dir": "d", "summary_verbosity": 3, "save_summaries_steps": 10},
        ),
        ("label", {"benchmark_log_dir": "d", "benchmark_test_id": "x"}),
        ("no evaluation", {"eval_at_end": False}),
        (
            "statistics of a whole batch",
            dict(batch_norm="tower", num_micro_batches=4, schedule="gpipe"),
        ),
        (
            "compact transfer of float16",
            dict(use_fp16=True, compact_gradient_transfer="true"),
        ),
        ("statistics of all towers", dict(batch_norm="sync", num_stages=1)),
        (
            "statistics of a micro-batch of all towers",
            dict(batch_norm="sync_micro_batch", num_micro_batches=4),
        ),
    )
    def test_legal(self, settings):
        self.assertEqual(errors(**settings), [])

    @parameterized.named_parameters(
        (
            "no tower",
            {"num_gpus": 0},
            "--num_gpus=0: must be at least 1 and at most 1024",
        ),
        ("batch", {"batch_size": -3}, "--batch_size=-3: must be at least 1"),
        ("empty batch", {"batch_size": 0}, "--batch_size=0: must be at least 1"),
        (
            "epochs that cannot be counted",
            {"num_epochs": 1e16},
            "--num_epochs=1e+16: must be above 0 and at most 1e9",
        ),
        (
            "no float32",
            {"init_learning_rate": 1e39},
            "--init_learning_rate=1e+39: must be at most 3e+38",
        ),
        (
            "towers that no machine has",
            {"num_gpus": 2**31 - 1},
            "--num_gpus=2147483647: must be at least 1 and at most 1024",
        ),
        (
            "threads that no machine has",
            {"num_inter_threads": 5000},
            "--num_inter_threads=5000: must be at least 0 and at most 4096",
        ),
        (
            "more than a GPU has",
            {"gpu_memory_frac_for_testing": 7.0},
            "--gpu_memory_frac_for_testing=7.0: must be at least 0 and at most 1",
        ),
        ("loop", {"steps_per_loop": 0}, "--steps_per_loop=0: must be at least 1"),
        ("length", {"num_batches": 0}, "--num_batches=0: must be at least 1"),
        (
            "epochs",
            {"num_epochs": 0.0},
            "--num_epochs=0.0: must be above 0 and at most 1e9",
        ),
        (
            "verbosity",
            {"summary_verbosity": 4},
            "--summary_verbosity=4: must be 0, 1, 2 or 3",
        ),
        (
            "model",
            {"model": "resnet51"},
            "--model=resnet51: no such model; did you mean resnet56, resnet50, lenet?",
        ),
        (
            "optimizer",
            {"optimizer": "sgdd"},
            "--optimizer=sgdd: no such optimizer; did you mean sgd?",
        ),
        (
            "layout",
            {"data_format": "NHCW"},
            "--data_format=NHCW: no such data_format; did you mean NHWC, NCHW?",
        ),
        (
            "mode of another name",
            {"variable_update": "collective_all_reduce"},
            "--variable_update=collective_all_reduce: use "
            "--variable_update=replicated with --job_name or --local_cluster",
        ),
        (
            "the old name of a data set",
            {"data_name": "imagenet"},
            "--data_name=imagenet: its TFDS name is imagenet2012",
        ),
        (
            "empty folder name, as from an unset shell variable",
            {"train_dir": ""},
            "--train_dir=: must not be empty; leave the flag out instead",
        ),
        (
            "two lengths",
            {"num_batches": 3, "num_epochs": 1.0},
            "--num_batches=3: does not go with --num_epochs=1.0; give one",
        ),
        (
            "two ways to save",
            {"train_dir": "d", "save_model_secs": 3, "save_model_steps": 1},
            "--save_model_secs=3: does not go with --save_model_steps=1; give one",
        ),
        (
            "two ways to evaluate",
            {
                "eval": True,
                "train_dir": "d",
                "eval_during_training_every_n_steps": 3,
                "eval_during_training_at_specified_steps": (1, 2),
            },
            "--eval: does not go with --eval_during_training_every_n_steps=3 and "
            "--eval_during_training_at_specified_steps=1,2; give one",
        ),
        (
            "two lengths of evaluation",
            {"num_eval_batches": 1, "num_eval_epochs": 1.0},
            "--num_eval_batches=1: does not go with --num_eval_epochs=1.0; give one",
        ),
        ("nothing to evaluate", {"eval": True}, "--eval: needs --train_dir"),
        (
            "early stop without evaluation",
            {"stop_at_top_1_accuracy": 0.5},
            f"--stop_at_top_1_accuracy=0.5: needs {EVALUATE_OFTEN}",
        ),
        (
            "nowhere to save",
            {"save_model_steps": 5},
            "--save_model_steps=5: needs --train_dir",
        ),
        (
            "nothing to keep",
            {"max_ckpts_to_keep": 1},
            "--max_ckpts_to_keep=1: needs --train_dir",
        ),
        (
            "16 bits of nothing",
            {"compact_gradient_transfer": "true"},
            "--compact_gradient_transfer=true: needs 16 bits in --compute_dtype; to "
            "round float32 gradients on their way, name the dtype: "
            "--compact_gradient_transfer=bfloat16",
        ),
        (
            "packs of one copy",
            {"gradient_repacking": 2},
            "--gradient_repacking=2: needs --variable_update=replicated or "
            "--variable_update=relaxed",
        ),
        (
            "sparse gradients that meet no others",
            {"variable_update": "independent", "sparse_to_dense_grads": True},
            "--sparse_to_dense_grads: does not go with --variable_update=independent, "
            "where no gradient leaves its tower",
        ),
        (
            "summaries never written",
            {"train_dir": "d", "summary_verbosity": 1},
            "--summary_verbosity=1: needs --save_summaries_steps",
        ),
        (
            "empty summaries",
            {"train_dir": "d", "save_summaries_steps": 5},
            "--save_summaries_steps=5: needs --summary_verbosity",
        ),
        (
            "label of nothing",
            {"benchmark_test_id": "x"},
            "--benchmark_test_id=x: needs --benchmark_log_dir",
        ),
        (
            "one file for two",
            {"trace_file": "a/b.json", "graph_file": "a/../a/b.json"},
            "--graph_file=a/../a/b.json: is --trace_file, too; name another file",
        ),
        (
            "half a decay",
            {"learning_rate_decay_factor": 0.5},
            "--learning_rate_decay_factor=0.5: needs --init_learning_rate and "
            "--num_epochs_per_decay",
        ),
        (
            "a rate that falls to more than it was",
            dict(
                init_learning_rate=0.5,
                num_epochs_per_decay=1.0,
                learning_rate_decay_factor=0.5,
                minimum_learning_rate=0.75,
            ),
            "--minimum_learning_rate=0.75: is above --init_learning_rate=0.5",
        ),
        (
            "decay of the recipe's schedule",
            {"minimum_learning_rate": 0.5},
            "--minimum_learning_rate=0.5: needs --init_learning_rate, "
            "--num_epochs_per_decay and --learning_rate_decay_factor",
        ),
        (
            "two schedules",
            {
                "piecewise_learning_rate_schedule": "0.1;80;0.01",
                "init_learning_rate": 0.1,
            },
            "--init_learning_rate=0.1: does not go with "
            "--piecewise_learning_rate_schedule='0.1;80;0.01', which says every "
            "learning rate",
        ),
        (
            "two base rates",
            {"init_learning_rate": 0.1, "resnet_base_lr": 0.2},
            "--init_learning_rate=0.1: does not go with --resnet_base_lr=0.2; give one",
        ),
        (
            "schedule",
            {"piecewise_learning_rate_schedule": "0.1;80"},
            "--piecewise_learning_rate_schedule='0.1;80': has 2 parts; write "
            "LR0;E1;LR1;...;En;LRn, an odd number",
        ),
        (
            "devices that make no towers of shards",
            {"num_gpus": 3, "shard_classifier": 2},
            "--num_gpus=3: is not a multiple of --shard_classifier=2; write "
            "--num_gpus=2 or 4, or --shard_classifier=1 or 3",
        ),
        (
            "towers of two sizes",
            {"num_gpus": 4, "shard_classifier": 2, "shard_embeddings": 4},
            "--shard_classifier=2: is not --shard_embeddings=4, and both are devices "
            "of a tower; write the same number twice",
        ),
        (
            "shards beside stages",
            {"num_gpus": 4, "shard_classifier": 4, "num_stages": 2},
            "--shard_classifier=4: is not --num_stages=2, and both are devices of a "
            "tower; write --shard_classifier=2",
        ),
        (
            "a cut of one stage",
            {"partition": "flops"},
            "--partition=flops: needs --num_stages",
        ),
        (
            "a schedule of one pass",
            {"schedule": "gpipe"},
            "--schedule=gpipe: needs --num_stages or --num_micro_batches",
        ),
        (
            "an order of one stage's chunks",
            {"schedule": "interleaved", "num_micro_batches": 4},
            "--schedule=interleaved: needs --num_stages",
        ),
        (
            "chunks that are not interleaved",
            {"chunks_per_stage": 3, "num_stages": 2, "num_gpus": 2},
            "--chunks_per_stage=3: needs --schedule=interleaved",
        ),
        (
            "compiled stages",
            {"num_stages": 2, "num_gpus": 2, "xla_compile": True},
            "--xla_compile: does not go with --num_stages=2, whose passes are "
            "functions of their own",
        ),
        (
            "GPUs of too few towers",
            {"gpu_indices": (0, 1)},
            "--gpu_indices=0,1: names 2 GPUs for --num_gpus=1",
        ),
        (
            "one GPU for two towers",
            {"gpu_indices": (1, 1), "num_gpus": 2},
            "--gpu_indices=1,1: names a GPU twice",
        ),
        (
            "GPU of a CPU",
            {"device": "cpu", "local_parameter_device": "gpu"},
            "--local_parameter_device=gpu: does not go with --device=cpu",
        ),
        (
            "memory of no GPU",
            {"device": "cpu", "allow_growth": False},
            "--noallow_growth: does not go with --device=cpu",
        ),
        (
            "files of synthetic data",
            {"data_name": "synthetic", "data_dir": "/data"},
            "--data_dir=/data: does not go with --data_name=synthetic, which reads no "
            "files",
        ),
        (
            "statistics of a whole batch in 1f1b",
            dict(batch_norm="tower", num_micro_batches=4),
            "--batch_norm=tower: needs all micro-batches of a stage before one goes "
            "on, and --schedule=1f1b sends one back before; write --schedule=gpipe, or "
            "--batch_norm=micro_batch",
        ),
        (
            "statistics of all rounds",
            dict(batch_norm="sync", accumulate_steps=2),
            "--batch_norm=sync: does not go with --accumulate_steps=2, of whose rounds "
            "one ends before the next begins; --num_micro_batches can wait for one "
            "another",
        ),
        (
            "statistics of micro-batches that there are not",
            dict(batch_norm="sync_micro_batch"),
            "--batch_norm=sync_micro_batch: needs --num_micro_batches or "
            "--accumulate_steps",
        ),
    )
    def test_illegal(self, settings, *expected):
        self.assertEqual(errors(**settings), list(expected))

    def test_all_errors_are_found_at_once(self):
        problems = errors(
            num_gpus=0, optimizer="x", num_batches=1, num_epochs=1, eval=True
        )
        self.assertEqual(
            [error.split(":")[0] for error in problems],
            ["--num_gpus=0", "--optimizer=x", "--num_batches=1", "--eval"],
        )

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


if __name__ == "__main__":
    absltest.main()
