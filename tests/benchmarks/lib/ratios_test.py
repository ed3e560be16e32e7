"""Medians, spreads and ratios, against values computed by hand."""

import math

from absl.testing import parameterized

from benchmarks.lib import ratios


class RatiosTest(parameterized.TestCase):
    def test_spread(self):
        self.assertEqual(ratios.spread([4.0, 1.0, 2.0]), (2.0, 1.0, 4.0))
        self.assertEqual(ratios.spread(iter([1.0, 2.0])), (1.5, 1.0, 2.0))
        self.assertIsNone(ratios.spread([]))

    def test_pairs_only_rounds_with_both(self):
        ours, theirs = [2.0, None, 3.0, 8.0], [1.0, 5.0, None, 2.0, 7.0]
        self.assertEqual(ratios.paired(ours, theirs), [2.0, 4.0])

    def test_a_gain_and_a_loss_cancel(self):
        self.assertAlmostEqual(ratios.geometric_mean([2.0, 0.5]), 1.0)
        self.assertIsNone(ratios.geometric_mean([]))

    @parameterized.parameters(
        (0.97312, "0.973"),
        (1.0, "1.00"),
        (12.345, "12.3"),
        (341.27, "341"),
        (34127.4, "34127"),
        (0.0, "0"),
        (math.nan, "nan"),
    )
    def test_number(self, value, text):
        self.assertEqual(ratios.number(value), text)

    def test_text(self):
        self.assertEqual(str(ratios.Spread(1.0, 0.5, 20.0)), "1.00 [0.500, 20.0]")
