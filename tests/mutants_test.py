"""The table of planted faults fits the tree, and what plants them tells who is caught.

The faults themselves are planted by hand: `python -m tests.mutants`.
"""

import collections
import importlib.util
import pathlib
import unittest

from absl.testing import absltest

from tests import mutants
from tests.mutants import __main__ as main
from tests.mutants import runner
from tests.mutants.fault import Fault, read
from tests.processes.programs import ROOT

_LEAST = 120  # rows

_TOY = {
    "towers/__init__.py": "",
    "towers/sums.py": "def mean(a, b):\n    return (a + b) / 2\n\n\nUNUSED = 1\n",
    "tests/sums_test.py": (
        "import os\nimport unittest\n\nfrom towers import sums\n\n\n"
        "class SumsTest(unittest.TestCase):\n"
        "    def test_mean(self):\n"
        "        self.assertEqual(sums.mean(1, 3), 2)\n\n"
        "    def test_other(self):\n"
        "        self.assertEqual(os.getcwd(), os.environ['PYTHONPATH'])\n"
    ),
}


_TABLE = """# Sums.

towers/data/stream.py
  test_order (hangs)
- a
-     b
+ c
- d
+
  test_seed data/source_test::test_x
- e
+ f
towers/models/__init__.py
  test_all
- g
+ h
"""


class TableTest(absltest.TestCase):
    def test_reads_a_table(self):
        order, stream = "data/stream_test::test_order", "towers/data/stream.py"
        seed = "data/stream_test::test_seed data/source_test::test_x"
        every = "models/models_test::test_all"
        self.assertEqual(
            read(_TABLE),
            [
                Fault(stream, "a\n    b", "c", order, hangs=True),
                Fault(stream, "d", "", order, hangs=True),
                Fault(stream, "e", "f", seed),
                Fault("towers/models/__init__.py", "g", "h", every),
            ],
        )

    def test_each_old_text_is_in_its_file_once(self):
        for fault in mutants.FAULTS:
            text = (ROOT / fault.file).read_text(encoding="utf-8")
            self.assertEqual(text.count(fault.old), 1, fault)
            self.assertNotEqual(fault.old, fault.new, fault)

    def test_each_test_is_there(self):
        for fault in mutants.FAULTS:
            for word in fault.tests.split():
                stem, _, name = word.partition("::")
                path = ROOT / "tests" / f"{stem}.py"
                self.assertTrue(path.is_file(), fault)
                text = path.read_text(encoding="utf-8")
                self.assertIn(f"    def {name or 'test_'}", text, fault)

    def test_all_folders_have_rows_and_no_row_is_there_twice(self):
        self.assertGreaterEqual(len(mutants.FAULTS), _LEAST)
        counts = collections.Counter((f.file, f.old, f.new) for f in mutants.FAULTS)
        self.assertEqual(max(counts.values()), 1, counts.most_common(1))
        folders = {str(pathlib.PurePath(file).parent) for file, _, _ in counts}
        wanted = [p.parent.name for p in (ROOT / "towers").glob("*/__init__.py")]
        wanted = [f"towers/{name}" for name in wanted]
        self.assertContainsSubset(["flags", "models", "towers", *wanted], folders)


@unittest.skipUnless(importlib.util.find_spec("pytest"), "Bazel has no pytest")
class RunnerTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.create_tempdir())
        for path, text in _TOY.items():
            (self.root / path).parent.mkdir(exist_ok=True)
            (self.root / path).write_text(text)

    def run_faults(self, *rows: tuple, seconds: float = 60.0) -> dict[str, str]:
        """What became of the faults: old text -> kind."""
        faults = [Fault("towers/sums.py", *row) for row in rows]
        outcomes = runner.run(
            faults, self.root, _TOY, processes=2, seconds=seconds, imported=()
        )
        return {outcome.fault.old: outcome.kind for outcome in outcomes}

    def test_a_fault_is_caught_or_survives_and_the_tree_stays(self):
        outcome = self.run_faults(
            ("(a + b) / 2", "(a + b)", "sums_test"),
            ("UNUSED = 1", "UNUSED = 2", "sums_test"),
            ("a + b", "a * b", "sums_test::test_other"),
            ("def mean", "define", "sums_test"),
        )
        wanted = {
            "(a + b) / 2": runner.CAUGHT,
            "UNUSED = 1": runner.SURVIVED,
            "a + b": runner.SURVIVED,
            "def mean": runner.BROKEN,
        }
        self.assertEqual(outcome, wanted)
        for path, text in _TOY.items():
            self.assertEqual((self.root / path).read_text(), text)

    def test_tests_that_do_not_end_are_ended(self):
        endless = ("return", "while True:\n        pass\n    return", "sums_test")
        self.assertEqual(self.run_faults(endless, seconds=1.0), {"return": runner.HUNG})

    def test_what_does_not_fit_is_an_error_before_anything_runs(self):
        for row, words in (
            (("a - b", "", "sums_test"), "0 times"),
            (("a", "c", "sums_test"), "3 times"),
            (("a + b", "", "other_test"), "tests/other_test.py is not there"),
            (("a + b", "", "sums_test::test_none"), "no test sums_test::test_none"),
        ):
            with self.assertRaisesRegex(runner.UnfitError, words):
                self.run_faults(row)

    def test_tests_that_fail_without_a_fault_catch_none(self):
        (self.root / "towers/sums.py").write_text("def mean(a, b):\n    return 0\n")
        with self.assertRaisesRegex(runner.UnfitError, "fail without a fault"):
            self.run_faults(("return 0", "return 1", "sums_test"))


class ScoreTest(absltest.TestCase):
    def test_the_status_is_that_of_the_share(self):
        caught = runner.Outcome(mutants.FAULTS[0], runner.CAUGHT, 1.0, "")
        missed = caught._replace(kind=runner.HUNG)
        self.assertEqual(main.conclude([caught] * 97 + [missed] * 3), 0)
        self.assertEqual(main.conclude([caught] * 96 + [missed] * 3), 1)
        hung = missed._replace(fault=missed.fault._replace(hangs=True))
        self.assertEqual(main.conclude([hung]), 0)
