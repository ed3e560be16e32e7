"""The learning rate is reduced as by Keras, in a resumed run, too."""

import types

import numpy as np
from absl.testing import parameterized

from tests import trainer
from tests.callbacks import metric_runs
from towers.callbacks import CsvLog, ReduceRate
from towers.callbacks.base import TrainingRun
from towers.callbacks.user_callbacks import CallbackError
from towers.optimizers.learning_rate import AdjustableRate, Piecewise
from towers.optimizers.optimizer import Update
from towers.session import loop

tf, v1 = trainer.tf, trainer.v1


def _keras_factors(values, settings):
    """What Keras multiplies the rate by after each of these values."""
    optimizer = tf.keras.optimizers.SGD(1.0)
    names = {"min_change": "min_delta", "best": "mode"}
    settings = {names.get(name, name): value for name, value in settings.items()}
    callback = tf.keras.callbacks.ReduceLROnPlateau(monitor="loss", **settings)
    callback.set_model(types.SimpleNamespace(optimizer=optimizer))
    callback.on_train_begin()
    factors = []
    for epoch, value in enumerate(values):
        callback.on_epoch_end(epoch, {"loss": value})
        factors.append(float(optimizer.learning_rate))
    return factors


class ReduceRateTest(parameterized.TestCase):
    @parameterized.product(patience=(1, 2, 3), cooldown=(0, 1, 3), best=("min", "max"))
    def test_as_keras(self, best, **settings):
        random = np.random.default_rng(3)
        values = random.integers(0, 40, 60) / 10.0 + np.linspace(0.0, 1.0, 60)
        settings = dict(factor=0.5, min_change=0.3, best=best, **settings)
        update = Update("sgd", AdjustableRate(Piecewise((0.4,))))
        training = trainer.Trainer(towers=2, update=update)
        reduce = ReduceRate("loss", **settings)
        with training.train.graph.as_default():
            reduce.set_up(
                TrainingRun(training.train, evaluates=True, log=lambda line: None)
            )
            training.session.run(v1.global_variables_initializer())
        loop.start(training.train, training.session, lambda session: None)
        context, factors = v1.train.SessionRunContext(None, training.session), []
        for step, value in enumerate(values):
            reduce.after_evaluation(context, step, {"loss": value})
            factors.append(training.session.run(training.train.learning_rate) / 0.4)
        np.testing.assert_allclose(factors, _keras_factors(values, settings), 1e-6)
        self.assertLess(factors[-1], 0.51)

    @parameterized.parameters(0.0, 1.0, -0.5)
    def test_a_factor_that_does_not_reduce(self, factor):
        with self.assertRaisesRegex(ValueError, "must be above 0 and below 1"):
            ReduceRate("loss", best="min", factor=factor)


class ResumedTest(metric_runs.MetricRuns):
    @parameterized.parameters(
        (dict(), 8, "after_evaluation"),  # between a checkpoint and its evaluation
        (dict(steps_per_loop=3), 10, "after_run"),
        (dict(variable_update="replicated"), 12, "after_evaluation"),
        (dict(num_gpus=4, num_stages=2, num_micro_batches=2), 10, "after_run"),
    )
    def test_equals_a_run_that_was_never_killed(self, settings, step, method):
        def reduce():  # the metric only gets worse, so it reduces at 12 and 20
            return ReduceRate("own", best="min", factor=0.5, patience=2)

        settings = dict(num_batches=24, save_model_steps=4, **settings)
        whole = self.create_tempdir().full_path
        self.train(CsvLog(every=4), reduce(), **{**settings, "train_dir": whole})
        log = CsvLog(every=4)
        with self.assertRaisesRegex(CallbackError, "the run is saved in .*ckpt-"):
            failure = metric_runs.Fails(step, method)
            self.train(failure, log, reduce(), **settings)
        self.train(CsvLog(every=4), reduce(), **settings)
        values, (self.directory, other) = self.values(), (whole, self.directory)
        trainer.assert_same_bits(values, self.values())
        self.assertEqual(values["callbacks/rate"].tolist(), [0.25, 0.0])
        with open(f"{whole}/log.csv") as first, open(f"{other}/log.csv") as second:
            self.assertEqual(first.read(), second.read())

    def test_an_evaluation_that_the_checkpoint_holds_is_counted_once(self):
        """The step at which the first run ends is evaluated again by the second."""

        def reduce():
            return ReduceRate("own", best="min", factor=0.5, patience=2)

        whole = self.create_tempdir().full_path
        self.train(CsvLog(every=4), reduce(), train_dir=whole, num_batches=24)
        for steps in (8, 24):
            self.train(CsvLog(every=4), reduce(), num_batches=steps)
        values, (self.directory, other) = self.values(), (whole, self.directory)
        trainer.assert_same_bits(values, self.values())
        with open(f"{whole}/log.csv") as first, open(f"{other}/log.csv") as second:
            self.assertEqual(first.read(), second.read())

    def test_a_checkpoint_without_its_state_and_a_run_without_it(self):
        self.train()
        self.train(ReduceRate("own", best="min", patience=1), num_batches=20)
        self.assertEqual(self.values()["callbacks/rate"][0], np.float32(0.01))
        self.train(num_batches=24)
        self.assertEqual(self.steps()[-1], 24)
        self.assertNotIn("callbacks/rate", self.values())
