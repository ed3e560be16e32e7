"""Goodput over the number of workers: published figures, the tables and the files."""

import contextlib
import io
import json
import math
import os
import tempfile

from absl.testing import absltest

from benchmarks import goodput
from benchmarks.lib import job_simulation


class GoodputTest(absltest.TestCase):
    def test_the_default_rate_gives_the_published_time_to_a_failure(self):
        """Kokolis et al. project it for 16,384 and 131,072 GPUs, 8 of a node."""
        options = goodput.parse(["--workers=2048,16384"])
        for workers, hours in ((2048, 1.8), (16384, 0.23)):
            mtbf = goodput.job_of(options, workers).mtbf / workers
            self.assertAlmostEqual(mtbf / 3600, hours, delta=0.03 * hours)

    def test_the_default_stragglers_are_those_published(self):
        """Chen et al.: the last of 100 gradients within 2 s in 30% of the steps."""
        job = goodput.job_of(goodput.parse([]), 100)
        in_time = 1 - math.exp(-(2.0 / job.step - 1) / job.straggling)
        self.assertAlmostEqual(in_time**100, 0.3, delta=0.01)

    def test_what_is_printed_and_written(self):
        said = io.StringIO()
        with tempfile.TemporaryDirectory() as folder:
            numbers, plot = f"{folder}/numbers.json", f"{folder}/plot.svg"
            flags = ["--workers=50,2,1", "--failures=2000", f"--json={numbers}"]
            with contextlib.redirect_stdout(said):
                self.assertEqual(goodput.main([*flags, f"--plot={plot}"]), 0)
            with open(numbers, encoding="utf-8") as file:
                rows = json.load(file)["rows"]
            with open(plot, encoding="utf-8") as file:
                chart = file.read()
            self.assertLen(os.listdir(folder), 2)
        self.assertEqual([row["workers"] for row in rows], [1, 2, 50])
        for row in rows:
            self.assertEqual(tuple(row["goodput"]), goodput.POLICIES)
            by_policy = row["goodput"]
            self.assertLessEqual(by_policy["restart"], by_policy["elastic"] + 1e-3)
            best = row["interval_seconds"]
            self.assertAlmostEqual(best["simulated"] / best["Daly"], 1, delta=0.02)
            cells = [f"{by_policy[policy]:.3f}" for policy in goodput.POLICIES]
            pattern = rf"(?m)^{row['workers']} +\S+ +{' +'.join(cells)}$"
            self.assertRegex(said.getvalue(), pattern)
        self.assertLess(rows[2]["goodput"]["elastic"], rows[2]["goodput"]["backup"])
        for policy in goodput.POLICIES:
            self.assertIn(f">{policy}</text>", chart)

    def test_an_interval_of_ones_own(self):
        job = goodput.job_of(goodput.parse(["--interval_seconds=77"]), 10)
        self.assertEqual(job.interval, 77.0)
        job = goodput.job_of(goodput.parse([]), 10)
        daly = job_simulation.daly(job.checkpoint, job.mtbf / 10)
        self.assertEqual(job.interval, daly)
