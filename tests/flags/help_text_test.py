"""What `--help` prints."""

from absl.testing import parameterized

from flags import config, help_text, tf_cnn_benchmarks
from flags.help_text import FULL

CHOICES = {"model": ("lenet", "resnet50"), "optimizer": ("sgd", "momentum")}


class HelpTextTest(parameterized.TestCase):
    def test_every_flag_is_there_once_in_its_section(self):
        text = help_text.text(FULL, CHOICES)
        for flag in config.all_flags().values():
            name = f"  --[no]{flag.name}" if flag.switch else f"  --{flag.name}"
            lines = [f"{line} " for line in text.splitlines()]
            lines = [line for line in lines if line.startswith(f"{name} ")]
            self.assertLen(lines, 1, flag.name)
        paragraphs = text.split("\n\n")
        self.assertLen(paragraphs, 13)
        self.assertStartsWith(paragraphs[4], "Devices. Where the towers run.\n")
        self.assertIn("--num_gpus", paragraphs[4])

    def test_the_common_flags_are_twenty_lines(self):
        text = help_text.text("", CHOICES)
        flags = [line for line in text.splitlines() if line.startswith("  --")]
        self.assertLen(flags, 20)
        self.assertLessEqual(len(text.splitlines()), 54)
        self.assertIn("the model (default: lenet)", text)
        self.assertIn("(default: parameter_server)", " ".join(text.split()))

    @parameterized.parameters(*config.KINDS)
    def test_commands_to_copy(self, kind):
        text = help_text.text("", CHOICES, kind)
        for command in kind.commands:
            self.assertIn(f"  python -m {kind.program} {command}\n", text)

    def test_a_group_alone(self):
        text = help_text.text("stages", CHOICES)
        self.assertIn("--num_stages", text)
        self.assertNotIn("--num_gpus ", text)

    @parameterized.product(width=(80, 100), group=("", "devices", FULL))
    def test_lines_fit(self, width, group):
        for line in help_text.text(group, CHOICES, width=width).splitlines():
            self.assertLessEqual(len(line), width)

    def test_a_narrow_terminal_still_shows_all_words(self):
        narrow = help_text.text(FULL, CHOICES, width=10)
        wide = help_text.text(FULL, CHOICES, width=100)
        self.assertEqual(narrow.split(), wide.split())

    def test_defaults_and_choices(self):
        text = " ".join(help_text.text(FULL, CHOICES).split())
        for piece in (
            "(default: lenet; one of: lenet, resnet50, or path/to/file.py:function or "
            "package.module:function)",
            "(default: the recipe's; one of: sgd, momentum)",
            "(default: auto; one of: cpu, gpu, auto)",
            "(default: 1; at least 1)",
            "(default: 1e-08; above 0)",
            "(default: false)",
            "(default: 0,1,2,...; not with --device=cpu or --local_cluster)",
            "(default: false; needs --train_dir; not with --forward_only, --input_only "
            "or --eval_during_training_*)",
        ):
            self.assertIn(piece, text)

    def test_the_full_help_has_the_refused_flags(self):
        full, group = help_text.text(FULL, CHOICES), help_text.text("data", CHOICES)
        for name in tf_cnn_benchmarks.refused():
            self.assertIn(f"\n  --{name}", full)
            self.assertNotIn(f"\n  --{name} ", group)
