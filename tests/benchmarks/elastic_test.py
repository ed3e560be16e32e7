"""A worker is lost and another joins; what was lost is counted, from logs by hand."""

import math

import numpy as np
from absl.testing import absltest

from benchmarks import elastic
from benchmarks.lib.disturbances import Disturbance
from tests.processes import programs


class ElasticTest(absltest.TestCase):
    def test_examples_are_counted(self):
        whole = [(1, [[0, 2], [2, 1]]), (2, [[3, 3]]), (3, [[6, 3]])]
        self.assertEqual(elastic.lost_examples(whole, 3, 3), (0, 0))
        # The run goes back to step 1: its step 2 counts as it was the second time.
        back = [*whole[:2], (2, [[3, 1], [5, 1], [4, 1]]), whole[2]]
        self.assertEqual(elastic.lost_examples(back, 3, 3), (0, 0))
        lacks = [*whole[:1], (2, [[3, 2]]), whole[2]]
        self.assertEqual(elastic.lost_examples(lacks, 3, 3), (1, 0))
        twice = [*whole[:1], (2, [[3, 2], [4, 1]]), whole[2]]
        self.assertEqual(elastic.lost_examples(twice, 3, 3), (1, 1))
        # A step after the last one that was saved counts for nothing.
        self.assertEqual(
            elastic.lost_examples([*twice[:1], (2, [[0, 9]])], 1, 3), (0, 0)
        )

    def test_variables_are_compared(self):
        first = {"a": np.float32([1.0, 4.0]), "step": np.int64(3)}
        self.assertEqual(elastic.apart(first, dict(first)), 0.0)
        other = {**first, "a": np.float32([1.5, 4.0])}
        self.assertAlmostEqual(elastic.apart(other, first), 0.125)
        self.assertEqual(elastic.apart(first, {"a": first["a"]}), math.inf)
        self.assertEqual(elastic.apart(first, {**first, "step": np.int64(4)}), math.inf)

    def test_the_total(self):
        record = elastic.Measured(None, {})
        seed = dict(seed=0, events=3, steps=90, hangs=0, left=0, missing=0, doubled=0)
        seed |= dict(faults=[], apart=0.0)
        timed = [("worker killed", s) for s in (1.0, 2.0, 3.0, 5.0)]
        record.seeds = [
            {**seed, "timed": timed},
            {**seed, "timed": [("ps frozen", 9.0)]},
        ]
        self.assertTrue(record.is_right("keep_towers"))
        first, second, *rows = record.total()
        self.assertStartsWith(
            first, "6 events in 2 runs of 180 steps: 0 hangs, 0 other"
        )
        self.assertEqual(second, "0 examples missing, 0 doubled, variables 0 apart")
        self.assertEqual(rows[2].split(), "ps frozen 1 9.00 - 9.00".split())
        wanted = "worker killed 4 2.50 1.75 to 3.50 5.00"
        self.assertEqual(rows[3].split(), wanted.split())
        for name, value in (("missing", 1), ("apart", 1e-6), ("faults", ["words"])):
            record.seeds = [{**seed, "timed": [], name: value}]
            self.assertFalse(record.is_right("keep_towers"), name)
        record.seeds = [{**seed, "timed": [], "apart": 1e-6}]
        self.assertTrue(record.is_right("keep_batch"))

    def test_real_tasks(self):
        programs.need_private_networks()
        soon = dict(after=0.1, away=1.0, hasty=False)
        measured = elastic.measure(
            "keep_towers",
            [
                Disturbance("worker killed", 1, **soon, unknown=True),
                Disturbance("ps killed", 0, **soon, unknown=False),
            ],
        )
        counts = [measured[name] for name in ("hangs", "left", "missing", "doubled")]
        self.assertEqual((measured["faults"], counts), ([], [0] * 4))
        self.assertEqual(measured["apart"], 0.0)
        self.assertGreater(measured["steps"], 4)
        self.assertIn("worker killed", [what for what, _ in measured["timed"]])
