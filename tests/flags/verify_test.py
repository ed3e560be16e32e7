"""Tests of flags.verify: the list of flags, on purpose, and how they are read."""

from absl.testing import absltest

from flags import config, help_text, parse

# A flag is a promise.  Whoever adds one adds it here too, on purpose.
FLAGS = """
    num_towers variable_update all_reduce_spec gradient_repacking
    agg_small_grads_max_bytes accumulate_steps compact_gradient_transfer pipelines
    num_stages num_micro_batches schedule recompute num_shards batch_norm num_steps
    bound device logical_gpus tf_random_seed
    """.split()
SHARED = ("model", "data", "images", "optimizer")  # sections of a run's flags

CHOICES = {"variable_update": ("replicated", "independent")}


def parsed(*arguments: str) -> config.VerifyConfig:
    """Of a command line of towers.verify."""
    return parse.parse(["verify", *arguments], CHOICES, config.VerifyConfig)


class VerifyTest(absltest.TestCase):
    def test_the_flags_are_those_of_the_list_and_of_a_run(self):
        run = config.all_flags().items()
        names = [name for name, flag in run if flag.section in SHARED]
        flags_listed = config.all_flags(config.VerifyConfig)
        self.assertEqual(list(flags_listed), names + FLAGS)

    def test_nothing_said(self):
        settings = parsed()
        self.assertEqual(settings, config.make(config.VerifyConfig))
        self.assertEqual(settings.verify.num_steps, 5)
        self.assertEqual(
            config.make(config.VerifyConfig, **config.flat(settings)), settings
        )

    def test_reads_many(self):
        settings = parsed(
            "--variable_update=independent,replicated", "--num_towers=2,3"
        )
        self.assertEqual(settings.verify.variable_update, ("independent", "replicated"))
        self.assertEqual(settings.verify.num_towers, (2, 3))

    def test_a_run_refuses_them(self):
        with self.assertRaises(parse.UsageError) as caught:
            parse.parse(["train", "--num_towers=2"], {})
        self.assertEqual(
            caught.exception.errors,
            ["--num_towers: is a flag of python -m towers.verify, not of this"],
        )

    def test_the_help_is_its_own(self):
        text = " ".join(help_text.text("verify", CHOICES, config.VerifyConfig).split())
        self.assertStartsWith(text, "Usage: python -m towers.verify [--flag=value ...]")
        self.assertIn("(default: all; one of: replicated, independent)", text)
        self.assertIn("(default: 0,1024)", text)
        self.assertNotIn("--num_gpus", text)
