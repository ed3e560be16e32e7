"""Tests of flags.tf_cnn_flags: each flag of tf_cnn_benchmarks is taken or refused."""

from absl.testing import parameterized

from flags import config, parse, tf_cnn_flags
from flags.tf_cnn_flags import ENVIRONMENT, FLAGS, NO_EFFECT, REFUSED, SAME, TRANSLATED
from tests.flags.tf_cnn_commands import THEIRS, parsed
from tests.processes.programs import ROOT

OURS = config.all_flags()


def other(name):
    """A value that is not the flag's default, as typed."""
    row = FLAGS[name]
    flag = config.all_flags(config.TfCnnBenchmarksConfig)[name]
    if row.kind is bool:
        return "false" if row.default else "true"
    if flag.choices:
        return next(choice for choice in flag.choices if choice != row.default)
    return "3" if flag.kind in (int, float) else "some/text"


class TableTest(parameterized.TestCase):
    def test_it_has_all_their_flags(self):
        self.assertCountEqual(FLAGS, THEIRS)
        self.assertLen(FLAGS, 138)

    def test_a_flag_that_is_the_same_is_one_of_ours_with_its_kind(self):
        for name, row in FLAGS.items():
            if row.effect == SAME:
                with self.subTest(name):
                    many = OURS[name].many
                    kind = row.kind.__args__[0] if many else row.kind
                    self.assertEqual(kind, OURS[name].kind)

    def test_every_other_row_says_something(self):
        for name, row in FLAGS.items():
            if row.effect != SAME:
                with self.subTest(name):
                    self.assertRegex(row.words, r"^[^\n]{8,}[^.]$")

    def test_the_docs_have_the_table(self):
        page = (ROOT / "docs/tf_cnn_benchmarks.md").read_text(encoding="utf-8")
        self.assertTrue(f"\n{tf_cnn_flags.table()}\n" in page, "print it there again")

    def test_their_defaults_are_accepted_in_every_form(self):
        for name, row in FLAGS.items():
            value = row.default
            if isinstance(value, bool):
                form = f"--{name}" if value else f"--no{name}"
            elif value is None or value in ("", ()):
                continue
            else:
                form = f"--{name}={value}"
            with self.subTest(form):
                self.assertEqual(parsed(form), parsed())

    def test_every_refused_flag_is_one_sentence(self):
        for name, row in FLAGS.items():
            if row.effect == REFUSED:
                with self.subTest(name):
                    with self.assertRaises(parse.UsageError) as caught:
                        parsed(f"--{name}={other(name)}")
                    [error] = caught.exception.errors
                    self.assertIn(row.words, error.replace("`", ""))

    def test_every_other_flag_is_taken(self):
        for name, row in FLAGS.items():
            if row.effect in (SAME, TRANSLATED, ENVIRONMENT, NO_EFFECT):
                with self.subTest(name):
                    value = other(name)
                    try:
                        settings = parsed(f"--{name}={value}")
                    except parse.UsageError as error:
                        # The flag needs another, or does not go with another's default.
                        self.assertRegex(str(error), "needs|does not go|Horovod")
                    else:
                        self.assertNotEqual(settings[name], row.default)
