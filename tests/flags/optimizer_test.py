"""Tests of flags.optimizer: what its schedules admit."""

from absl.testing import parameterized

from flags import optimizer


class RegexTest(parameterized.TestCase):
    @parameterized.parameters(
        ("conv.*=0.1,fc.*=10", {"conv.*": 0.1, "fc.*": 10.0}),
        (r"^conv\d{1,2}/=0", {r"^conv\d{1,2}/": 0.0}),
        ("(?=a)b=1e-3", {"(?=a)b": 0.001}),
    )
    def test_reads(self, text, factors):
        self.assertEqual(optimizer.parse_factors(text), factors)

    @parameterized.parameters(
        ("", "does not end in a factor"),
        ("conv", "does not end in a factor"),
        ("a=1,b", "does not end in a factor"),
        ("=1", "has an empty regular expression"),
        ("a=", "factor '' of 'a' is not a number"),
        ("a=x", "factor 'x' of 'a' is not a number"),
        ("a=-1", "factor -1 of 'a' must be finite, at least 0"),
        ("a=inf", "factor inf of 'a' must be finite"),
        ("a=nan", "factor nan of 'a' must be finite"),
        ("a=1,a=2", "has 'a' twice"),
        ("(=1", r"'\(' is no regular expression: missing \)"),
    )
    def test_refuses(self, text, message):
        with self.assertRaisesRegex(ValueError, message):
            optimizer.parse_factors(text)

    def test_an_expression(self):
        optimizer.check_regex("^a|b$")
        for text, words in (("", "has an empty"), ("*", r"'\*' is no regular")):
            with self.assertRaisesRegex(ValueError, words):
                optimizer.check_regex(text)


class ScheduleTest(parameterized.TestCase):
    @parameterized.parameters(
        ("0.1", (0.1,), ()),
        ("0.3;10;0.2;25;0.1", (0.3, 0.2, 0.1), (10.0, 25.0)),
        ("0;0.5;1e-3", (0.0, 0.001), (0.5,)),
    )
    def test_reads(self, text, rates, epochs):
        self.assertEqual(optimizer.parse_piecewise_rates(text), (rates, epochs))

    @parameterized.parameters(
        ("", "'' is not a number"),
        ("0.1;80", "has 2 parts"),
        ("0.1;x;0.01", "'x' is not a number"),
        ("0.1;80;-1", "learning rate -1 must be at least 0"),
        ("nan", "learning rate nan must be at least 0"),
        ("0.1;0;0.01", "epoch 0 must come after 0"),
        ("0.1;9;0.01;9;0.001", "epoch 9 must come after 9"),
        ("0.1;inf;0.01", "epoch inf must come after 0"),
    )
    def test_refuses(self, text, message):
        with self.assertRaisesRegex(ValueError, message):
            optimizer.parse_piecewise_rates(text)
