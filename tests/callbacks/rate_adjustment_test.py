"""The learning rate is factor x the schedule's rate + offset."""

from absl.testing import absltest

from tests import trainer
from towers.callbacks.base import TrainingRun
from towers.callbacks.rate_adjustment import RateAdjustment
from towers.optimizers.learning_rate import AdjustableRate, Piecewise
from towers.optimizers.optimizer import Update


class RateAdjustmentTest(absltest.TestCase):
    def test_steps_use_what_was_written(self):
        update = Update("sgd", AdjustableRate(Piecewise((0.5,))))
        training = trainer.Trainer(towers=2, update=update)
        with training.train.graph.as_default():
            rate = RateAdjustment(TrainingRun(training.train))
        training.start()
        session = training.session
        self.assertEqual(session.run(training.train.learning_rate), 0.5)
        rate.write(session, 0.25, 0.125)
        self.assertEqual(rate.factor(session), 0.25)
        self.assertEqual(session.run(training.train.learning_rate), 0.25)
        rate.write(session, 0.0)
        before = training.values()
        after = training.steps(3)
        self.assertEqual(after.pop("global_step"), before.pop("global_step") + 3)
        del before["position"], after["position"]
        trainer.assert_same_bits(before, after)  # the rate was 0, so nothing changed
