"""Towers of which one is slower, with equal and with unequal batches."""

import argparse
from unittest import mock

from absl.testing import absltest

from benchmarks.lib import unequal_towers
from towers.session import tune


class UnequalTowersTest(absltest.TestCase):
    def test_a_step_takes_at_most_six_tenths_of_that_of_equal_batches(self):
        options = argparse.Namespace(num_towers=4, slower=3, wait=0.01, batch_size=10)
        with mock.patch.object(tune, "STEPS", 6):
            numbers = unequal_towers.measure(options)
        self.assertGreater(numbers["equal"], 0.3)
        for name, sizes in (("auto", "sizes"), ("rebalance", "changed")):
            *fast, slow = numbers[sizes]
            self.assertEqual(sum(numbers[sizes]), 40)
            self.assertLess(slow, min(fast) / 2)
            # In units of the wait for one example; seconds would depend on the machine.
            self.assertLess(max(*fast, 3 * slow), 0.6 * 3 * 10)
            self.assertGreater(numbers[name], max(*fast, 3 * slow) * 0.01)
