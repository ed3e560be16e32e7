"""Ratios and tables of the runs of a comparison."""

from absl.testing import absltest

from benchmarks.lib import cases
from benchmarks.lib.results import Results, Run


def _run(number, case, system, speed):
    return Run(
        round=number,
        case=case,
        system=system,
        images_per_second=speed,
        failure=None if speed else "out of luck",
        seconds=1.0,
        cpu_seconds=1.0,
        others=0.0,
        command="",
        peak_bytes=(3 if system == "b" else 1.5) * 2**20,
    )


def _results() -> Results:
    """Two cases in two rounds; `b` fails in the second round, `c` always."""
    speeds = {
        ("n:1x4", "a"): (40.0, 50.0),
        ("n:1x4", "b"): (20.0, None),
        ("n:2x2", "a"): (30.0, 45.0),
        ("n:2x2", "b"): (60.0, 15.0),
        ("n:2x2", "c"): (None, None),
    }
    return Results(
        cases.parse_list("n:1x4,n:2x2"),
        ["a", "b", "c"],
        [
            _run(number, *where, speed)
            for number in (1, 2)
            for where, both in speeds.items()
            for speed in [both[number - 1]]
        ],
    )


class ResultsTest(absltest.TestCase):
    def test_ratios_are_taken_within_rounds(self):
        results = _results()
        first, second = results.cases
        self.assertEqual(results.speeds(first, "b"), [20.0, None])
        self.assertEqual(results.against(first, "b"), (2.0, 2.0, 2.0))
        self.assertEqual(results.against(second, "b"), (1.75, 0.5, 3.0))
        self.assertIsNone(results.against(first, "c"))
        self.assertAlmostEqual(results.over_cases("b"), (2.0 * 1.75) ** 0.5)
        self.assertIsNone(results.over_cases("c"))

    def test_memory(self):
        results = _results()
        first = results.cases[0]
        self.assertEqual(results.peaks(first, "b"), [3.0, None])
        self.assertEqual(results.memory_against(first, "b"), (0.5, 0.5, 0.5))
        self.assertIsNone(results.memory_against(first, "c"))
        lines = results.memory_table()
        self.assertRegex(lines[3], r"n:2x2 +0\.500 \[0\.500, 0\.500\] +-$")
        self.assertRegex(lines[-1], r"geometric mean +0\.500 +-$")

    def test_scaling(self):
        results = _results()
        self.assertEqual([str(case) for case in results.pairs], ["n:2x2"])
        self.assertEqual(results.scaling(results.pairs[0], "a"), (0.825, 0.75, 0.9))
        self.assertEqual(results.scaling(results.pairs[0], "b"), (3.0, 3.0, 3.0))

    def test_tables(self):
        results = _results()
        first, second = results.speed_table()[2:]
        self.assertEqual(first.split()[:4], ["n:1x4", "45.0", "[40.0,", "50.0]"])
        self.assertEqual((first.split()[-1], second.split()[-1]), ("-", "failed"))
        *_, mean = results.ratio_table()
        self.assertEqual(mean.split(), ["geometric", "mean", "1.87", "-"])
        title, _, pair = results.scaling_table()
        self.assertEqual(title.split(), ["towers", "/", "one", "tower", "a", "b"])
        self.assertStartsWith(pair, "n:2x2 / n:1x4")

    def test_failures_are_told_once_each(self):
        lines = _results().failure_lines()
        self.assertLen(lines, 3)
        self.assertIn("b failed on n:1x4 in round 2: out of luck", lines)
