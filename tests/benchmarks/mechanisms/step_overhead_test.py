"""The benchmark of the loop's overhead: its variants and its ratios."""

import argparse

import tensorflow as tf

from benchmarks.mechanisms import step_overhead


class StepOverheadTest(tf.test.TestCase):
    def test_measures_every_variant_in_every_round(self):
        options = argparse.Namespace(
            model="mlp", num_towers=2, batch_size=2, num_batches=20, rounds=1
        )
        measured = step_overhead.measure(options)
        self.assertEqual(list(measured), list(step_overhead.VARIANTS))
        for seconds in measured.values():
            self.assertLen(seconds, 1)
            self.assertBetween(seconds[0], 1e-6, 10.0)

    def test_ratios_are_speeds_over_the_bare_loop(self):
        lines = step_overhead.report({"bare": [1e-3, 2e-3], "run": [2e-3, 2e-3]})
        self.assertEqual(
            lines[2].split(), "bare 1500 [1000, 2000] 1.00 [1.00, 1.00]".split()
        )
        self.assertEqual(
            lines[3].split(), "run 2000 [2000, 2000] 0.750 [0.500, 1.00]".split()
        )
