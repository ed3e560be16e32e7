"""Tests of flags.field."""

import dataclasses

from absl.testing import parameterized

from flags import field


@dataclasses.dataclass(frozen=True)
class Example:
    """An example."""

    whole: int = field.field(1, "a whole number", must=field.AT_LEAST_1)
    real: float = field.field(0.5, "a real number", must=field.BELOW_1)
    switch: bool = field.field(False, "a switch")
    maybe: float | None = field.field(
        None, "a number or none", unset="none", must=field.ABOVE_0
    )
    many: tuple[int, ...] = field.field(
        (), "some numbers", unset="none", must=field.AT_LEAST_0
    )
    layout: str = field.field("row", "a choice", choices=("row", "column"))
    table: str = field.field("sgd", "a name in a table", user_defined=True)
    path: str | None = field.field(None, "any text", unset="none")


FLAGS = {flag.name: flag for flag in field.flags_of("example", Example)}


class FlagTest(parameterized.TestCase):
    @parameterized.parameters(
        ("whole", int, False),
        ("real", float, False),
        ("switch", bool, False),
        ("maybe", float, False),
        ("many", int, True),
        ("layout", str, False),
        ("path", str, False),
    )
    def test_the_annotation_tells_the_kind(self, name, kind, many):
        self.assertEqual((FLAGS[name].kind, FLAGS[name].many), (kind, many))

    def test_the_rest_is_as_declared(self):
        flag = FLAGS["whole"]
        self.assertEqual(flag.section, "example")
        self.assertEqual((flag.default, flag.text), (1, "a whole number"))
        self.assertIs(flag.must, field.AT_LEAST_1)

    @parameterized.parameters(
        ("whole", 1),
        ("whole", 2**31 - 1),
        ("real", 0),
        ("real", 0.999),
        ("switch", True),
        ("maybe", None),
        ("maybe", 1e-300),
        ("many", ()),
        ("many", (0, 3)),
        ("layout", "column"),
        ("table", "anything"),
        ("path", None),
        ("path", "/tmp/a b"),
    )
    def test_admits(self, name, value):
        self.assertEqual(FLAGS[name].problem(value), "")

    @parameterized.parameters(
        ("path", "a\0b", "must be text, in UTF-8"),
        ("path", "a\udc80", "must be text, in UTF-8"),
        ("whole", 0, "must be at least 1"),
        ("whole", None, "must be a whole number"),
        ("whole", 1.0, "must be a whole number"),
        ("whole", "1", "must be a whole number"),
        ("whole", True, "must be a whole number"),
        ("whole", 2**31, "must be below 2147483648"),
        ("real", 1, "must be at least 0 and below 1"),
        ("real", True, "must be a number"),
        ("real", float("nan"), "must be finite"),
        ("maybe", float("inf"), "must be finite"),
        ("maybe", 0, "must be above 0"),
        ("switch", 1, "must be true or false"),
        ("many", 3, "must be whole numbers separated by commas"),
        ("many", (1, -1), "must be at least 0"),
        ("many", ("a",), "must be whole numbers separated by commas"),
        ("layout", "Row", "no such layout; did you mean row?"),
        ("layout", "diagonal", "no such layout; choose from row, column"),
        ("layout", "", "must not be empty; leave the flag out instead"),
        ("path", "", "must not be empty; leave the flag out instead"),
        ("path", 3, "must be text"),
    )
    def test_refuses(self, name, value, problem):
        self.assertEqual(FLAGS[name].problem(value), problem)

    def test_names_of_a_table(self):
        flag, names = FLAGS["table"], ["sgd", "adam"]
        self.assertEqual(flag.problem("adam", names), "")
        self.assertEqual(flag.problem("package.module:function", names), "")
        self.assertEqual(flag.problem("~/file.py:function", names), "")
        self.assertIn("file.py:function", flag.problem("file.py", names))
        self.assertEqual(
            flag.problem("sgdd", names), "no such table; did you mean sgd?"
        )

    def test_only_a_flag_that_says_so_takes_the_users_own(self):
        self.assertIn("no such", FLAGS["layout"].problem("package.module:function"))


class BoundTest(parameterized.TestCase):
    @parameterized.parameters(
        (field.AT_LEAST_0, (0, 1, 7), (-1, -1e-9)),
        (field.AT_LEAST_1, (1, 7), (0, -1)),
        (field.ABOVE_0, (1e-9, 7), (0, -1)),
        (field.BELOW_1, (0, 0.5), (-0.1, 1, 2)),
        (field.ABOVE_0_UP_TO_1, (0.1, 1), (0, 1.1, -1)),
        (field.UP_TO_3, (0, 1, 2, 3), (-1, 4)),
    )
    def test_holds(self, bound, inside, outside):
        for number in inside:
            self.assertTrue(bound.holds(number), number)
        for number in outside:
            self.assertFalse(bound.holds(number), number)


class WordsTest(parameterized.TestCase):
    @parameterized.parameters(
        (3, "--name=3"),
        (0.1, "--name=0.1"),
        (True, "--name"),
        (False, "--noname"),
        ("text", "--name=text"),
        ("", "--name="),
        ("two words", "--name='two words'"),
        ("two\nlines", r"--name='two\nlines'"),
        ((1, 2), "--name=1,2"),
    )
    def test_spell(self, value, typed):
        self.assertEqual(field.spell("name", value), typed)

    def test_a_byte_that_is_no_character_can_be_printed(self):
        field.quote("\udcff").encode("ascii")

    def test_did_you_mean(self):
        names = ["resnet50", "resnet101", "lenet"]
        self.assertEqual(
            field.did_you_mean("resnet51", names, prefix="--"),
            "did you mean --resnet50, --resnet101, --lenet?",
        )
        self.assertEqual(field.did_you_mean("zzz", names), "")
