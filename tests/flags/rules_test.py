"""Tests of flags.rules: every row has an effect, and the docs say the same."""

from absl.testing import absltest, parameterized

from flags import config, field, help_text, problem, rule, rules
from tests.processes.programs import ROOT
from towers import command_line

_DOCS = ROOT / "docs" / "flags.md"
_FLAGS = config.all_flags()
_ROWS = rules.rows(command_line.CHOICES, config.all_flags())


def _value(term: rule.Term):
    """A value for which a term holds, where the default would not do."""
    flag = _FLAGS[term.name]
    if term.value:
        return {"true": True, "false": False}.get(term.value, term.value)
    if flag.kind is bool:
        return not flag.default
    if flag.choices:
        return next(c for c in flag.choices if c != flag.default)
    text = "1;2;3" if term.name == "piecewise_learning_rate_schedule" else "x"
    value = {str: text, int: 1, float: 0.5}[flag.kind]
    if value == flag.default:
        value += 1
    return (value,) if flag.many else value


def _check(*terms: rule.Term, others=None) -> list[str]:
    """The sentences of the table about settings for which these terms hold."""
    settings = {name: flag.default for name, flag in _FLAGS.items()}
    settings |= others or {}
    settings |= {term.name: _value(term) for term in terms}
    given = {n: v for n, v in settings.items() if v != _FLAGS[n].default}
    broken = rules.broken(_ROWS, settings, given)
    return [each.sentence() for each in broken]


class RowsTest(parameterized.TestCase):
    @parameterized.parameters(*_ROWS)
    def test_a_row_is_about_flags_and_breaks(self, flag, relation, others, why):
        row = rule.Rule(flag, relation, others, why)
        for term in (flag, *others):
            self.assertIn(term.name, _FLAGS)
            if term.value and _FLAGS[term.name].choices:
                self.assertIn(term.value, _FLAGS[term.name].choices)
        if why:
            self.assertRegex(why, r"^[,;] .*[^.]$")
        if relation == rules.NEEDS:
            # The default's effect has a value of its own.
            without = {term.name: "another" for term in others if term.value}
            self.assertEqual(_check(flag, others=without).count(self._said(row)), 1)
            for other in others:
                self.assertNotIn(self._said(row), _check(flag, other))
        else:
            for other in others:
                said = f"does not go with {field.spell(other.name, _value(other))}"
                said += problem.with_flags(why)
                self.assertTrue(any(said in s for s in _check(flag, other)), said)
                self.assertFalse(any(said in s for s in _check(flag)))
                self.assertFalse(any(said in s for s in _check(other)))

    def _said(self, row: rule.Rule) -> str:
        others = [str(term) for term in row.others]
        needed = " or ".join([", ".join(others[:-1]), others[-1]]).removeprefix(" or ")
        return f"{field.spell(row.flag.name, _value(row.flag))}: needs {needed}"

    def test_rows_are_not_said_twice(self):
        said = {(row.flag, row.relation, row.others) for row in _ROWS}
        self.assertLen(said, len(_ROWS))

    def test_of_two_needs_that_which_the_other_keeps_is_not_said(self):
        self.assertEqual(
            _check(rule.Term.parse("schedule=interleaved")),
            ["--schedule=interleaved: needs --num_stages"],
        )
        self.assertEqual(
            _check(rule.Term.parse("schedule=gpipe")),
            ["--schedule=gpipe: needs --num_stages or --num_micro_batches"],
        )

    def test_the_defaults_break_nothing(self):
        self.assertEmpty(_check())

    def test_a_program_without_a_flag_has_no_row_about_it(self):
        settings, given = {"eval": True}, {"eval"}
        self.assertLen(list(rules.broken(_ROWS, settings, given)), 1)
        rows = rules.rows(command_line.CHOICES, ["eval"])
        self.assertEmpty(list(rules.broken(rows, settings, given)))


class WordsTest(absltest.TestCase):
    def test_notes_of_a_flag(self):
        self.assertEqual(
            rules.notes(_ROWS, "summary_verbosity"),
            ["needs --train_dir and --save_summaries_steps"],
        )
        self.assertEqual(
            rules.notes(_ROWS, "eval"),
            [
                "needs --train_dir",
                "not with --forward_only, --input_only or --eval_during_training_*",
            ],
        )
        self.assertEqual(
            rules.notes(_ROWS, "variable_update")[-1],
            "auto not with --forward_only, --input_only, --local_cluster or --job_name",
        )
        self.assertEqual(
            rules.notes(_ROWS, "schedule"),
            [
                "needs --num_stages or --num_micro_batches",
                "interleaved needs --num_stages",
            ],
        )
        self.assertEqual(rules.notes(_ROWS, "num_gpus"), [])

    def test_the_docs_are_the_table(self):
        self.assertEqual(
            _DOCS.read_text(encoding="utf-8"),
            help_text.text(help_text.RULES, command_line.CHOICES) + "\n",
            "run python -m towers.train --help=rules > docs/flags.md",
        )
