"""The flags of what a run prints."""

from absl.testing import parameterized

from flags import config


class OutputTest(parameterized.TestCase):
    @parameterized.parameters((-0.1, False), (0.01, True), (1.0, True), (1.5, False))
    def test_the_weight_of_the_latest_step(self, weight, right):
        settings = config.make(display_perf_ewma=weight)
        problems = [str(problem) for problem in config.check(settings, {})]
        wrong = [f"display_perf_ewma={weight}: must be at least 0 and at most 1"]
        self.assertEqual(problems, [] if right else wrong)
