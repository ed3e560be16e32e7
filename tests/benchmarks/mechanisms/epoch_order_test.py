"""The benchmark of epoch orders reads both orders."""

import argparse

from absl.testing import absltest

from benchmarks.mechanisms import epoch_order


class EpochOrderTest(absltest.TestCase):
    def test_measures_both_orders_in_every_round(self):
        options = argparse.Namespace(examples=1000, batches=10, rounds=1)
        measured = epoch_order.measure(options)
        self.assertEqual(list(measured), ["keyed", "permuted"])
        for [numbers] in measured.values():
            self.assertLen(numbers, len(epoch_order.COLUMNS))
            self.assertGreater(numbers[0], 0)

    def test_report(self):
        lines = epoch_order.report({"keyed": [[0.5, 1.0, 0.0], [0.7, 1.0, 0.0]]})
        words = "keyed 0.600 [0.500, 0.700] 1.00 [1.00, 1.00] 0 [0, 0]"
        self.assertEqual(lines[2].split(), words.split())
