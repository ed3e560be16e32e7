"""Steps that a loss scale skips are reported."""

from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from tests import trainer
from towers.callbacks.report_skips import ReportSkips
from towers.optimizers.loss_scale import LossScaling


def _trainer():
    options = {"dtype": tf.float16, "loss_scaling": LossScaling(2.0**24, 1000)}
    return trainer.Trainer(towers=2, batch_size=4, **options).add_loop().start()


class SkipsTest(parameterized.TestCase):
    @parameterized.parameters(1, 50)
    def test_says_how_many_and_the_factor(self, steps_per_loop):
        training = _trainer()
        lines = []
        training.run([ReportSkips(training.train, lines.append)], 20, steps_per_loop)
        scale = training.train.loss_scale
        value, skipped = training.session.run((scale.value, scale.skipped))
        self.assertGreater(skipped, 0)
        self.assertLess(skipped, 20)
        self.assertEqual(value, 2.0**24 / 2**skipped)
        self.assertRegex(
            lines[-1],
            f"skipped: .* the loss scale is now {value:g} .{skipped} skipped in all.",
        )

    def test_a_step_is_one_session_call(self):
        """What it says belongs to the step, and costs no call of its own."""
        training = _trainer()
        lines, calls = [], []
        skips = ReportSkips(training.train, lines.append)
        for last_step in (3, 9):
            with mock.patch.object(
                training.session, "run", wraps=training.session.run
            ) as run:
                training.run([skips], last_step)
            calls.append(run.call_count)
        self.assertEqual(calls[0], calls[1])
        for number, line in enumerate(lines, 1):
            scale = f"{2.0 ** (24 - number):g}"
            self.assertStartsWith(line, "A step was skipped: ")
            self.assertEndsWith(line, f" now {scale} ({number} skipped in all)")
        self.assertGreater(len(lines), 2)
