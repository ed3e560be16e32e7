"""The benchmark of checkpoints: what it measures, and its table."""

import argparse

import tensorflow as tf

from benchmarks.mechanisms import checkpoints


class CheckpointsTest(tf.test.TestCase):
    def test_measures_every_kind_in_every_round(self):
        options = argparse.Namespace(
            model="trivial", device="cpu", batch_size=1, rounds=2
        )
        measured = checkpoints.measure(options)
        self.assertEqual(list(measured), ["update", "blocking", "held"])
        for seconds in measured.values():
            self.assertLen(seconds, 2)
            self.assertLess(max(seconds), 60.0)

    def test_parts_of_the_blocking_one(self):
        lines = checkpoints.report({"blocking": [0.5, 1.0], "held": [0.05, 0.1]})
        self.assertEqual(
            lines[3].split(), "held 75.0 [50.0, 100] 0.100 [0.100, 0.100]".split()
        )
