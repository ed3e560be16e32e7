"""Command lines of tf_cnn_benchmarks, and those of `towers.train` that they become."""

import os
import shlex

from absl.testing import parameterized

import models
from flags import config, parse
from flags.tf_cnn_translation import translate
from tests.flags.tf_cnn_commands import parsed
from towers import command_line

_STARTS = "--conv_initializer=lecun_normal --dense_initializer=truncated_normal"
_GPU = (
    "TF_ENABLE_WINOGRAD_NONFUSED=1 TF_SYNC_ON_FINISH=0 TF_GPU_THREAD_MODE=gpu_private "
    "TF_GPU_THREAD_COUNT=2"
)


def translated(line, gpus=False, known=models.MODELS):
    return translate(parsed(*line.split()), models=known, gpus=gpus)


def settings(line, **options):
    return translated(line, **options).settings


class TranslationTest(parameterized.TestCase):
    def test_nothing_said(self):
        self.assertEqual(
            translated("").line,
            "python -m towers.train --model=trivial --data_name=synthetic "
            "--synthetic_pixels=unscaled --batch_size=32 --device=cpu "
            "--data_format=NHWC --variable_update=parameter_server --num_batches=100 "
            "--nostop_on_nan --optimizer=sgd --weight_decay=4e-05 "
            f"--init_learning_rate=0.005 {_STARTS}",
        )

    def test_their_readme(self):
        """The line that README.md says to reach about 76 %."""
        line = (
            "--data_format=NCHW --batch_size=256 --model=resnet50 --optimizer=momentum "
            "--variable_update=replicated --nodistortions --gradient_repacking=8 "
            "--num_gpus=8 --num_epochs=90 --weight_decay=1e-4 --use_fp16 "
            "--data_dir=/data/imagenet --train_dir=/ckpt"
        )
        # 0.128 / 8 GPUs x 2048 / 256, times 8 by the sum; 625 steps to an epoch.
        self.assertEqual(
            translated(line, gpus=True).line,
            f"{_GPU} python -m towers.train --model=resnet50 --data_name=imagenet "
            "--data_dir=/data/imagenet --input_preprocessor=tf_cnn_benchmarks "
            "--background_class --nocolor_distortions --batch_size=256 --device=gpu "
            "--data_format=NCHW --variable_update=replicated --all_reduce_spec=psgpu "
            "--compact_gradient_transfer=true --gradient_factor=8.0 "
            "--batch_norm_averages=first_tower --num_batches=56302 --nostop_on_nan "
            "--optimizer=momentum --weight_decay=0.0001 "
            "--piecewise_learning_rate_schedule="
            "'0.128;30;0.0128;60;0.00128;80;0.000128;90;1.28e-05' "
            "--num_learning_rate_warmup_epochs=4.99864264 --use_fp16 --num_gpus=8 "
            f"--gradient_repacking=8 --train_dir=/ckpt {_STARTS}",
        )

    @parameterized.parameters(
        "",
        "--model=resnet50 --num_gpus=2 --optimizer=rmsprop --rmsprop_decay=0.8",
        "--model=resnet20 --data_name=cifar10 --optimizer=momentum --momentum=0.8",
        "--num_gpus=2 --variable_update=replicated --all_reduce_spec=xring",
        "--model=lenet --num_gpus=2 --variable_update=independent --use_fp16",
        "--model=lenet --num_gpus=2 --use_fp16 --fp16_loss_scale=8",
        "--model=lenet --init_learning_rate=0.1 --num_learning_rate_warmup_epochs=2",
        "--model=lenet --num_gpus=2 --nocross_replica_sync",
        "--model=lenet --num_gpus=2 --forward_only --freeze_when_forward_only "
        "--display_perf_ewma=0.5 --tfprof_file=p --partitioned_graph_file_prefix=g.txt",
        "--model=lenet --num_gpus=2 --staged_vars --gradient_clip=0.5",
        "--model=lenet --num_gpus=2 --variable_update=replicated "
        "--variable_consistency=relaxed --hierarchical_copy",
        "--model=ncf --optimizer=adam --weight_decay=0 --sparse_to_dense_grads",
    )
    def test_what_it_becomes_is_legal_and_copies_back(self, line):
        translation = translated(line)
        read = command_line.read_command_line(["train", *translation.arguments])
        typed = parse.parse(shlex.split(translation.line)[2:], command_line.CHOICES)
        self.assertEqual(read.config, typed)
        self.assertEqual(typed, config.make(**translation.settings))

    @parameterized.parameters(
        ("--batch_size=0 --model=alexnet", {"batch_size": 512}),
        ("--batch_size=7 --num_gpus=3", {"batch_size": 7, "num_gpus": 3}),
        ("--num_epochs=2 --batch_size=100", {"num_batches": 25_624}),
        ("--autotune_threshold=2", {"num_warmup_batches": 20}),
        ("--num_warmup_batches=0", {"num_warmup_batches": 0}),
        ("--num_gpus=2 --variable_update=replicated", {"gradient_factor": 2.0}),
        ("--num_gpus=2", {"batch_norm_averages": "first_tower"}),
        ("--model=inception3", {"model": "tf_cnn_inception3"}),
        ("--model=resnet50_v1.5", {"zero_gamma": False}),
        (
            "--job_name=worker --ps_hosts=a:1 --worker_hosts=b:1,c:1",
            {"replication": "between_graph", "gradient_factor": 2.0},
        ),
        (
            "--job_name=worker --worker_hosts=b:1,c:1 --num_gpus=2 "
            "--variable_update=distributed_all_reduce --all_reduce_spec=xring "
            "--controller_host=a:1",
            {"variable_update": "replicated", "gradient_factor": 4.0},
        ),
        ("--eval --train_dir=d", {"num_eval_batches": 100, "eval": True}),
        (
            "--eval --train_dir=d --num_eval_epochs=1 --eval_batch_size=100",
            {"num_eval_batches": 500, "eval_dir": "/tmp/tf_cnn_benchmarks/eval"},
        ),
        (
            "--eval_during_training_every_n_steps=40",
            {
                "eval_during_training_at_specified_steps": (50, 90),
                "eval_at_end": True,
                "num_eval_batches": 100,
            },
        ),
        (
            "--eval_during_training_at_specified_epochs=1,2.5 --num_epochs=3 "
            "--batch_size=1000",
            {"eval_during_training_at_specified_steps": (1292, 3213)},
        ),
        (
            "--eval_during_training_every_n_epochs=1 --num_epochs=3 --batch_size=1000",
            {"eval_during_training_at_specified_steps": (1292, 2573)},
        ),
        ("--num_gpus=2 --use_fp16", {"compact_gradient_transfer": "false"}),
        (
            "--backbone_model_path=run/model.ckpt-5",
            {"init_checkpoint": "run/model.ckpt-5"},
        ),
        ("--forward_only --eval_batch_size=9", {"forward_only": True}),
    )
    def test_settings(self, line, wanted):
        actual = settings(line)
        self.assertEqual({name: actual[name] for name in wanted}, wanted)

    @parameterized.parameters(
        (
            "--data_dir=/x/cifar10 --model=resnet20",
            {
                "data_name": "cifar10",
                "data_dir": "/x/cifar10",
                "input_preprocessor": "tf_cnn_benchmarks_cifar",
                "augment": False,
                "num_classes": 11,
            },
        ),
        ("--data_dir=/x/cifar10 --model=resnet20 --distortions", {"augment": True}),
        (
            "--data_dir=/x/imagenet",
            {
                "data_name": "imagenet",
                "input_preprocessor": "tf_cnn_benchmarks",
                "background_class": True,
                "color_distortions": False,
                "resize_method": None,
                "synthetic_pixels": None,
            },
        ),
        ("--data_dir=/x/imagenet --distortions", {"color_distortions": True}),
        ("--data_dir=/x/imagenet --resize_method=area", {"resize_method": "area"}),
        (
            "--data_dir=/x --data_name=imagenet --ml_perf --nodistort_color_in_yiq",
            {
                "input_preprocessor": "tf_cnn_benchmarks_ml_perf",
                "distort_color_in_yiq": False,
            },
        ),
        (
            "--data_dir=/x/imagenet --input_preprocessor=official_models_imagenet",
            {
                "input_preprocessor": "official_models_imagenet",
                "color_distortions": None,
            },
        ),
    )
    def test_images_that_are_read(self, line, wanted):
        actual = settings(line)
        self.assertEqual({name: actual.get(name) for name in wanted}, wanted)

    @parameterized.parameters(
        ("", {"local_parameter_device": "gpu", "data_format": "NCHW"}),
        ("--local_parameter_device=cpu", {"local_parameter_device": None}),
        ("--num_gpus=2 --variable_update=replicated", {"all_reduce_spec": "psgpu"}),
        (
            "--num_gpus=2 --variable_update=replicated --local_parameter_device=cpu",
            {"all_reduce_spec": None},
        ),
        (
            "--num_gpus=2 --variable_update=replicated --hierarchical_copy",
            {"all_reduce_spec": "hierarchical"},
        ),
        ("--data_format=NHWC", {"data_format": "NHWC"}),
    )
    def test_on_gpus(self, line, wanted):
        actual = settings(line, gpus=True)
        self.assertEqual({name: actual.get(name) for name in wanted}, wanted)

    @parameterized.parameters(
        ("", {"TF_GPU_THREAD_COUNT": "2", "TF_SYNC_ON_FINISH": "0"}),
        ("--gpu_thread_mode=gpu_shared --num_gpus=4", {"TF_GPU_THREAD_COUNT": "8"}),
        ("--gpu_thread_mode=global", {"TF_GPU_THREAD_COUNT": None}),
        ("--per_gpu_thread_count=3", {"TF_GPU_THREAD_COUNT": "3"}),
        ("--nowinograd_nonfused", {"TF_ENABLE_WINOGRAD_NONFUSED": None}),
        ("--autotune_threshold=3", {"TF_AUTOTUNE_THRESHOLD": "3"}),
        ("--sync_on_finish", {"TF_SYNC_ON_FINISH": "1"}),
        ("--use_unified_memory", {"TF_FORCE_UNIFIED_MEMORY": "1"}),
        (
            "--mkl --kmp_blocktime=3",
            {"KMP_BLOCKTIME": "3", "KMP_SETTINGS": "1", "OMP_NUM_THREADS": None},
        ),
        ("--mkl --num_intra_threads=2", {"OMP_NUM_THREADS": "2"}),
    )
    def test_environment(self, line, wanted):
        actual = translated(line, gpus=True).environment
        self.assertEqual({name: actual.get(name) for name in wanted}, wanted)

    def test_on_cpus_only_mkl_sets_variables(self):
        self.assertEqual(translated("--sync_on_finish").environment, {})
        names = {"KMP_BLOCKTIME", "KMP_AFFINITY", "KMP_SETTINGS"}
        self.assertEqual(set(translated("--mkl").environment), names)
        self.assertEqual(os.environ.get("KMP_BLOCKTIME"), None)

    @parameterized.parameters(
        ("--momentum=0.8", "--momentum has no effect: it needs --optimizer=momentum"),
        (
            "--gradient_repacking=8",
            "--gradient_repacking has no effect: it needs --variable_update=replicated",
        ),
        (
            "--freeze_when_forward_only",
            "--freeze_when_forward_only has no effect: it needs --forward_only",
        ),
        (
            "--datasets_repeat_cached_sample",
            "--datasets_repeat_cached_sample has no effect: it needs --data_dir",
        ),
        (
            "--nouse_tf_layers",
            "--use_tf_layers sets nothing here: there is one set of layers, on tf.nn",
        ),
    )
    def test_a_flag_without_effect_is_left_out_with_a_note(self, line, note):
        translation = translated(line)
        self.assertEqual(translation.notes, (note,))
        self.assertEqual(translation.line, translated("").line)

    @parameterized.parameters(
        ("--model=lenett", "--model=lenett: no such model of imagenet; did you mean"),
        (
            "--model=lenet --data_name=cifar10",
            "--model=lenet: no such model of cifar10",
        ),
        ("--model=ssd300", "--model=ssd300: is not among the models here"),
        ("--model=deepspeech2", "--model=deepspeech2: is not among the models here"),
        ("--data_dir=/data", "--data_dir=/data: no data set's name is in it"),
        ("--data_name=coco", "--data_name=coco: ssd300 is not among the models"),
        (
            "--data_name=librispeech --model=deepspeech2",
            "--data_name=librispeech: deepspeech2 is not among the models",
        ),
        (
            "--eval_during_training_every_n_steps=1 --num_batches=9999",
            "--eval_during_training_every_n_steps: would be 9998 evaluations",
        ),
    )
    def test_what_cannot_be_translated(self, line, sentence):
        with self.assertRaises(ValueError) as caught:
            translated(line)
        [problem] = caught.exception.problems
        self.assertStartsWith(problem.sentence(), sentence)

    def test_a_model_that_is_not_here(self):
        with self.assertRaisesRegex(ValueError, "lenet: is not among the models here"):
            translated("--model=lenet", known=["vgg16"])
