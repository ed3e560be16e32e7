"""Which value of a metric counts as better."""

from absl.testing import parameterized

from towers.callbacks.best_so_far import BestSoFar


class BestSoFarTest(parameterized.TestCase):
    @parameterized.parameters(
        ("min", 0.0, 1.0, 2.0, True),
        ("min", 0.0, 2.0, 2.0, False),
        ("min", 0.5, 1.6, 2.0, False),
        ("min", 0.5, 1.4, 2.0, True),
        ("max", 0.0, 1.0, 2.0, False),
        ("max", 0.0, 3.0, 2.0, True),
        ("max", 1.5, 3.0, 2.0, False),
        ("min", 0.0, 1.0, float("inf"), True),
        ("max", 0.0, 1.0, -float("inf"), True),
        ("min", 0.0, float("nan"), 2.0, False),
    )
    def test_is_better(self, best, change, value, known, wanted):
        metric = BestSoFar("StopEarly", "loss", best, change)
        self.assertEqual(metric.is_better(value, known), wanted)
