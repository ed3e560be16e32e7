"""Tests of flags.parse."""

import contextlib
import io
import os
import subprocess
import sys
import tempfile

from absl import flags as absl_flags
from absl.testing import absltest, parameterized

from flags import config, parse, tf_cnn_benchmarks
from flags.problem import Problem
from tests import flag_lines
from tests.processes.programs import ROOT

CHOICES = {
    "model": ("lenet", "resnet50"),
    "optimizer": ("sgd", "momentum"),
    "variable_update": ("parameter_server", "replicated"),
}

REFUSED = flag_lines.table("""
--num_gpus=x
 must be a whole number
--num_gpus=1.5
 must be a whole number
--num_gpus=
 must be a whole number
--init_learning_rate=abc
 must be a number
--eval=yes
 must be true or false
--gpu_indices=0,,1
 must be whole numbers separated by commas
--num_gpus=0
 must be at least 1 and at most 1024
--num_gpus=-1
 must be at least 1 and at most 1024
--num_gpus -1
--num_gpus=-1: must be at least 1 and at most 1024
--num_epochs=1 --num_batches=3
--num_batches=3: does not go with --num_epochs=1.0; give one
--batch_sise=3
 no such flag; did you mean --batch_size, --eval_batch_size, --tower_batch_sizes?
--wholly_new 1
 no such flag; --helpfull lists them
--nomodel
 no such flag; did you mean --model?
--noeval=true
 takes no value; use --eval=true
--trt_mode FP16
 TensorFlow has been built without TensorRT since 2.18; leave it out
train
 stray argument; settings are written --flag=value
--augment False
False: stray argument; to set --augment, write --augment=False
--train_dir=d -- --num_gpus=2
--num_gpus=2: stray argument; settings are written --flag=value
-
 stray argument; settings are written --flag=value
--model
 needs a value, --model=...
--model --augment
 needs a value, --model=...
""")


def parsed(*arguments):
    return parse.parse(["train", *arguments], CHOICES)


def sample(flag):
    """A value that is not the flag's default, as typed and as read."""
    if flag.kind is bool:
        return ("false", False) if flag.default else ("true", True)
    if flag.choices:
        (name, *_) = [name for name in flag.choices if name != flag.default]
        return name.swapcase(), name
    number = 3 if flag.default == 2 else 2
    real = 1.5 if flag.problem(0.25) else 0.25
    value = {int: number, float: real, str: "some/text"}[flag.kind]
    if flag.many:
        return f"{value},{value}", (value, value)
    return str(value), value


class ParseTest(parameterized.TestCase):
    def errors(self, *arguments):
        with self.assertRaises(parse.UsageError) as caught:
            parsed(*arguments)
        return caught.exception.errors

    def test_nothing_said(self):
        self.assertEqual(parsed(), config.make())

    def test_arguments_is_its_inverse(self):
        settings = parsed("--num_gpus=4", "--gpu_indices=3,2,1,0", "--train_dir=a b,c")
        made_again = parsed(*parse.arguments(settings))
        self.assertEqual(made_again, settings)
        settings = parsed("--noeval_at_end", "--num_epochs=2.5", "--model=resnet50")
        self.assertEqual(parsed(*parse.arguments(settings)), settings)
        left = parse.arguments(settings, without=("model", "num_epochs"))
        self.assertEqual(left, ["--eval_at_end=False"])

    @parameterized.named_parameters(
        ("equals", ["--num_gpus=4"], {"num_gpus": 4}),
        ("two words", ["--num_gpus", "4"], {"num_gpus": 4}),
        ("one dash", ["-num_gpus=4"], {"num_gpus": 4}),
        ("the last one counts", ["--num_gpus=4", "--num_gpus=2"], {"num_gpus": 2}),
        ("float", ["--num_epochs=1e-2"], {"num_epochs": 0.01}),
        ("whole float", ["--num_epochs=3"], {"num_epochs": 3.0}),
        ("switch on", ["--augment"], {"augment": True}),
        ("switch off", ["--noaugment"], {"augment": False}),
        ("switch true", ["--augment=true"], {"augment": True}),
        ("switch False", ["--augment=False"], {"augment": False}),
        ("unset switch", ["--noeval_at_end"], {"eval_at_end": False}),
        (
            "many",
            ["--gpu_indices=1,0", "--num_gpus=2"],
            {"gpu_indices": (1, 0), "num_gpus": 2},
        ),
        (
            "many floats",
            ["--eval_during_training_at_specified_epochs", "1,2.5"],
            {"eval_during_training_at_specified_epochs": (1.0, 2.5)},
        ),
        ("any case", ["--device=CPU", "--data_format=nhwc"], None),
        ("equals in the value", ["--train_dir=a=b"], {"train_dir": "a=b"}),
        (
            "value that starts with no",
            ["--train_dir", "noaugment"],
            {"train_dir": "noaugment"},
        ),
    )
    def test_reads(self, arguments, settings):
        settings = settings or {"device": "cpu", "data_format": "NHWC"}
        self.assertEqual(parsed(*arguments), config.make(**settings))

    @parameterized.parameters(
        ("--{}", "true"),
        ("--no{}", "false"),
        ("--{}=True", "true"),
        ("--{}=FALSE", "false"),
        ("--{}=float16", "float16"),
    )
    def test_a_switch_may_have_more_than_two_positions(self, typed, wanted):
        typed = typed.format("compact_gradient_transfer")
        settings = parsed(typed, "--compute_dtype=bfloat16", "--noaugment")
        self.assertEqual(settings.variables.compact_gradient_transfer, wanted)
        self.assertIs(settings.data.augment, False)

    def test_every_flag_reads_a_value_that_it_admits(self):
        for flag in config.all_flags().values():
            with self.subTest(flag.name):
                text, expected = sample(flag)
                self.assertEqual(parse.parser(flag).parse(text), expected)
                self.assertNotEqual(expected, flag.default)
                self.assertEqual(flag.problem(expected), "")

    def test_home_is_expanded_in_paths_as_no_shell_does_after_an_equals_sign(self):
        settings = parsed("--train_dir=~/runs", "--data_name=~", "--eval_dir=a~b")
        self.assertEqual(settings.output.train_dir, os.path.expanduser("~/runs"))
        self.assertEqual(settings.data.data_name, "~")
        self.assertEqual(settings.evaluation.eval_dir, "a~b")
        paths = [flag.name for flag in config.all_flags().values() if flag.path]
        self.assertLen(paths, 12)

    def test_the_readme_of_tf_cnn_benchmarks(self):
        settings = parsed(
            *"--num_gpus=1 --batch_size=32 --model=resnet50 "
            "--variable_update=parameter_server".split()
        )
        self.assertEqual(settings, config.make(batch_size=32, model="resnet50"))
        settings = parsed(
            *"--data_format=NCHW --batch_size=256 --model=resnet50 "
            "--optimizer=momentum --variable_update=replicated --noaugment "
            "--gradient_repacking=8 --num_gpus=8 --num_epochs=90 "
            "--weight_decay=1e-4 --data_dir=/data --use_fp16 --train_dir=/ckpt"
            "".split()
        )
        self.assertTrue(settings.model.use_fp16)
        self.assertEqual(settings.variables.gradient_repacking, 8)

    @parameterized.parameters(*REFUSED)
    def test_refuses(self, line, sentence):
        self.assertEqual(self.errors(*line.split()), [sentence])

    def test_refuses_what_it_knows_of_tf_cnn_benchmarks(self):
        for switch in ("--mkl", "--nomkl"):
            said = f"--mkl: {tf_cnn_benchmarks.SWITCHES['mkl']}"
            self.assertEqual(self.errors(switch), [said])

    def test_what_cannot_be_printed_is_quoted(self):
        said = r"'a\nb': stray argument; settings are written --flag=value"
        self.assertEqual(self.errors("a\nb"), [said])

    def test_all_errors_are_reported_together(self):
        problems = self.errors(
            *"--num_gpus=x --nosuch=1 --mkl stray --batch_size=-3 --model=resnet51 "
            "--num_epochs=1 --num_batches=3".split()
        )
        starts = ["--num_gpus=x", "--nosuch=1", "--mkl", "stray"]
        starts += ["--model=resnet51", "--batch_size=-3", "--num_batches=3"]
        self.assertEqual([error.split(":")[0] for error in problems], starts)

    def test_a_refused_flag_is_one_error_in_each_form(self):
        settings, switches = tf_cnn_benchmarks.SETTINGS, tf_cnn_benchmarks.SWITCHES
        for names, form in (
            (tf_cnn_benchmarks.refused(), ["--{}=1"]),
            (settings, ["--{}", "1"]),
            (switches, ["--{}"]),
            (switches, ["--no{}"]),
        ):
            problems = self.errors(*(word.format(n) for n in names for word in form))
            self.assertLen(problems, len(names), problems)
            for error in problems:
                self.assertRegex(error, r"^--\w+: [^\n]{20,}$")

    def test_the_error_is_a_value_error_with_a_line_each(self):
        error = parse.UsageError(*(Problem("", None, text) for text in "ab"))
        self.assertIsInstance(error, ValueError)
        self.assertEqual(str(error), "a\nb")

    def test_absl_flags_of_the_process_are_untouched(self):
        before = set(absl_flags.FLAGS)
        parsed("--num_gpus=2")
        self.assertEqual(set(absl_flags.FLAGS), before)


class FlagfileTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        # absltest's create_tempdir needs parsed absl flags, and pytest parses none.
        self.folder = self.enter_context(tempfile.TemporaryDirectory())

    def write(self, text):
        path = os.path.join(self.folder, "flags")
        with open(path, "wb") as file:
            file.write(text)
        return path

    def test_its_lines_take_its_place(self):
        path = self.write(b"# a comment\n--num_gpus=4\n\n--model=resnet50\n")
        for arguments in (["--flagfile", path], [f"--flagfile={path}"]):
            settings = parsed("--num_gpus=2", "--augment", *arguments)
            self.assertEqual(
                settings, config.make(num_gpus=4, model="resnet50", augment=True)
            )
        self.assertEqual(
            parsed(f"--flagfile={path}", "--num_gpus=2").devices.num_gpus, 2
        )

    def test_its_errors_are_those_of_the_command_line(self):
        with self.assertRaisesRegex(parse.UsageError, "^--num_gpus=x: must be"):
            parsed(f"--flagfile={self.write(b'--num_gpus=x')}")

    def test_no_such_file(self):
        with self.assertRaisesRegex(parse.UsageError, "^--flagfile: .*No such file"):
            parsed(f"--flagfile={self.folder}/none")

    def test_not_a_text_file(self):
        with self.assertRaisesRegex(parse.UsageError, "^--flagfile: .*utf-8"):
            parsed(f"--flagfile={self.write(bytes(range(256)))}")

    def test_no_name(self):
        with self.assertRaisesRegex(parse.UsageError, "^--flagfile: "):
            parsed("--flagfile")


class HelpTest(parameterized.TestCase):
    @parameterized.parameters(
        ("--help", "Stages. How"),
        ("-h", "Stages. How"),
        ("-help", "Stages. How"),
        ("--helpshort", "Stages. How"),
        ("--help=true", "Stages. How"),
        ("--helpfull", "--chunks_per_stage"),
        ("--help=stages", "--chunks_per_stage"),
        ("--help stages", "--chunks_per_stage"),
    )
    def test_asking_prints_it_and_exits_with_status_0(self, words, shown):
        printed = io.StringIO()
        with self.assertRaises(SystemExit) as caught:
            with contextlib.redirect_stdout(printed):
                parsed("--num_gpus=x", *words.split())
        self.assertEqual(caught.exception.code, 0)
        self.assertStartsWith(printed.getvalue(), "Usage: python -m towers.train")
        self.assertIn(shown, printed.getvalue())

    def test_a_group_that_is_none_offers_the_nearest(self):
        for words in ("--help=stage", "--help stage"):
            with self.assertRaisesRegex(
                parse.UsageError, "^--help=stage: no such group.*did you mean stages"
            ):
                parsed(*words.split())

    def test_a_value_that_reads_help_does_not_ask_for_it(self):
        self.assertEqual(parsed("--train_dir", "help").output.train_dir, "help")


class ImportTest(absltest.TestCase):
    def test_the_package_needs_no_tensorflow(self):
        program = (
            "import sys; from flags import parse; "
            "sys.exit('tensorflow' in sys.modules or 'numpy' in sys.modules)"
        )
        subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)
