"""Evaluations during training may end it."""

from absl.testing import parameterized

from tests import trainer
from towers.callbacks.evaluate import Evaluate


def _trainer():
    return trainer.Trainer(towers=2, batch_size=4).add_loop().start()


class EvaluateTest(parameterized.TestCase):
    @parameterized.parameters((0.75, 9), (0.76, 12), (None, 14))
    def test_stops_at_the_accuracy(self, stop_at, last_step):
        accuracies = {3: 0.1, 6: 0.5, 9: 0.75, 12: 0.8}
        training = _trainer()

        def evaluate(context, step):
            self.assertEqual(context.session.run(training.train.global_step), step)
            return accuracies[step]

        hook = Evaluate(training.train, evaluate, stop_at=stop_at, steps=3)
        self.assertEqual(training.run([hook], 14), last_step)
