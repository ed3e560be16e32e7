"""The benchmark of sharded classifiers."""

from absl.testing import absltest

from benchmarks.mechanisms import sharding


class ShardingTest(absltest.TestCase):
    def test_two_devices_have_half_each(self):
        first, second = sharding.measure(
            [1, 2], "classifier", classes=4000, batch_size=8, steps=1
        )
        # Weights, biases and their slots; the counters are on the first device.
        self.assertEqual(first.held, 2 * 4 * 257 * 4000 + 24)
        self.assertEqual(second.held, 2 * 4 * 257 * 2000 + 24)
        self.assertBetween(second.peak / first.peak, 0.45, 0.6)
        self.assertGreater(second.nodes, first.nodes)

    def test_a_table_that_is_the_classifier_is_spread_for_both_uses(self):
        first, second = sharding.measure(
            [1, 2], "tied", classes=4000, batch_size=8, steps=1
        )
        self.assertEqual(first.held, 2 * 4 * 256 * 4000 + 24)
        self.assertEqual(second.held, 2 * 4 * 256 * 2000 + 24)
        self.assertBetween(second.peak / first.peak, 0.45, 0.6)

    def test_ratios_are_to_the_first(self):
        rows = [
            sharding.ShardingResult(1, 8, 10, 2.0, 5),
            sharding.ShardingResult(2, 4, 6, 2.2, 9),
        ]
        lines = sharding.report(rows)
        self.assertEqual(lines[-1].split(), "2 0.0 0.0 0.600 1.10 9".split())
