"""Tests of flags.rule: what a term says, and when it holds."""

from absl.testing import parameterized

from flags import rule


class TermTest(parameterized.TestCase):
    @parameterized.parameters(
        ("a", {"a": 2}, ["a"], True, "--a"),
        ("a", {"a": 2}, [], False, "--a"),
        ("a=2", {"a": 2}, [], True, "--a=2"),
        ("a=2", {"a": 22}, ["a"], False, "--a=2"),
        ("a=false", {"a": False}, ["a"], True, "--noa"),
        ("a=true", {"a": False}, ["a"], False, "--a"),
        ("a=1", {}, [], False, "--a=1"),
    )
    def test_holds(self, text, settings, given, holds, shown):
        term = rule.Term.parse(text)
        self.assertEqual(term.holds(settings, given), holds)
        self.assertEqual(str(term), shown)
