"""Charts are drawn if matplotlib is installed, and left out otherwise."""

import os
import unittest
from unittest import mock

from absl.testing import absltest

from benchmarks.lib import cases, chart
from benchmarks.lib.results import Results, Run


def _results(**speeds: float) -> Results:
    """One run of each system."""
    runs = [
        Run(1, "n:1x4", system, speed, None, 1.0, 1.0, None, "")
        for system, speed in speeds.items()
    ]
    return Results(cases.parse_list("n:1x4,n:2x2"), list(speeds), runs)


class ChartTest(absltest.TestCase):
    @unittest.skipIf(chart.Figure is None, "needs matplotlib")
    def test_draws(self):
        path = os.path.join(self.create_tempdir().full_path, "a.png")
        self.assertIsNone(chart.write(_results(ours=3.0, theirs=2.0), path))
        with open(path, "rb") as file:
            self.assertEqual(file.read(4), b"\x89PNG")

    @unittest.skipIf(chart.Figure is None, "needs matplotlib")
    def test_nothing_to_draw(self):
        path = os.path.join(self.create_tempdir().full_path, "a.png")
        self.assertIn("nothing to compare", chart.write(_results(ours=3.0), path))
        self.assertFalse(os.path.exists(path))

    def test_without_matplotlib(self):
        with mock.patch.object(chart, "Figure", None):
            said = chart.write(_results(ours=3.0, theirs=2.0), "/no/such/folder/a.png")
        self.assertEqual(said, chart.MISSING)

    @unittest.skipIf(chart.Figure is None, "needs matplotlib")
    def test_draws_curves(self):
        path = os.path.join(self.create_tempdir().full_path, "a.png")
        lines = {"tree": {"1": 1.0, "16": 1.5, "2": 1.25}, "none": {}}
        self.assertIsNone(chart.curves(lines, path, ("towers", "step / wait")))
        with open(path, "rb") as file:
            self.assertEqual(file.read(4), b"\x89PNG")
