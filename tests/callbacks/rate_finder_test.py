"""The rate finder finds where the loss falls, and leaves the run unchanged."""

import os
from unittest import mock
from xml.etree import ElementTree

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from models import pictures
from models.model import Images, Model, Recipe, Schedule
from tests import trainer
from tests.callbacks import metric_runs
from towers.callbacks import RateFinder
from towers.callbacks.rate_finder import _steepest

_CURVATURE = 4.0


def _bowl():
    """A loss of 0.5 x curvature x |value - 1|^2: it diverges at 2 / curvature."""

    def value(x, nn):
        table = nn.variable("table", [8], initializer=tf.compat.v1.zeros_initializer())
        return tf.tile(table[None, :], [x.shape[0], 1])

    return Model(
        name="bowl",
        blocks=(("value", value),),
        inputs=Images((6, 6, 1), 10, data_name="digits"),
        recipe=Recipe(batch_size=16, schedule=Schedule((0.05,)), optimizer="sgd"),
        loss=lambda x, labels: 0.5 * _CURVATURE * tf.reduce_sum((x - 1.0) ** 2, 1),
        metrics=lambda x, labels: {},
    )


class RateFinderTest(metric_runs.MetricRuns):
    @parameterized.parameters(1, 4)
    def test_of_a_loss_whose_rates_are_known(self, towers):
        finder = RateFinder(lowest=0.01, highest=100.0, steps=20)
        lines = self.train(
            finder, get_model=lambda name: _bowl(), num_gpus=towers, batch_size=4
        )
        self.assertBetween(finder.suggestion, 0.02, 2 / _CURVATURE)
        self.assertBetween(finder.rates[-1], 2 / _CURVATURE, 10 * 2 / _CURVATURE)
        self.assertLen(finder.losses, len(finder.rates))
        np.testing.assert_allclose(finder.losses[0], 0.5 * _CURVATURE * 8, 1e-3)
        path = f"{self.directory}/rates.svg"
        ElementTree.parse(path)
        wanted = (
            f"RateFinder: the loss falls fastest at a rate of {finder.suggestion:.3g},"
        )
        self.assertLen([line for line in lines if line.startswith(wanted)], 1)

    def test_a_png_file(self):
        path = f"{self.directory}/rates.png"
        if not pictures.has_matplotlib():
            self.skipTest("matplotlib is not installed")
        self.train(RateFinder(path, steps=20), num_gpus=1)
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            pixels = session.run(tf.io.decode_png(tf.io.read_file(path)))
        self.assertEqual(pixels.shape[:2], (400, 640))
        self.assertGreater(pixels.std(), 1)

    def test_a_png_file_without_matplotlib(self):
        with (
            mock.patch.object(pictures, "Figure", None),
            self.assertRaisesRegex(ValueError, r"a.png needs matplotlib .*\.svg$"),
        ):
            RateFinder("a.png")

    # Other modes are in `user_callbacks_test`, where all callbacks are together.
    @parameterized.parameters(dict(num_gpus=1), dict(variable_update="staged"))
    def test_the_training_is_that_of_a_run_without(self, **settings):
        self.train(**settings)
        plain, self.directory = self.values(), self.create_tempdir().full_path
        self.train(RateFinder(steps=20, highest=1e3), **settings)
        values = self.values()
        self.assertEqual(values.pop("callbacks/rate").tolist(), [1.0, 0.0])
        trainer.assert_same_bits(values, plain)

    def test_a_training_that_is_shorter_has_all_rates(self):
        finder = RateFinder(steps=500, lowest=1e-6, highest=1e-3)
        self.train(finder, num_batches=None, num_epochs=0.2, eval_at_end=False)
        self.assertLess(len(finder.rates), 20)
        np.testing.assert_allclose(finder.rates[-1], 1e-3)

    def test_a_run_that_goes_on_has_no_test(self):
        self.train()
        finder = RateFinder(steps=5)
        self.train(finder, num_batches=16)
        self.assertEmpty(finder.rates)

    def test_where_towers_step_apart(self):
        finder = RateFinder(steps=20)
        self.train(finder, variable_update="asynchronous")
        self.assertNotEmpty(finder.rates)

    def test_rates_that_are_all_too_high(self):
        finder = RateFinder(lowest=1e4, highest=1e6)
        lines = self.train(finder, get_model=lambda name: _bowl())
        self.assertIn("RateFinder: the loss diverges from 10000 on", lines)
        self.assertFalse(os.path.exists(f"{self.directory}/rates.svg"))

    @parameterized.parameters(
        (dict(lowest=1.0, highest=0.1), "write two rates above 0, the lower one first"),
        (dict(lowest=0.0), "write two rates above 0"),
        (dict(steps=2), "steps is 2, and must be at least 3"),
    )
    def test_no_range(self, settings, sentence):
        with self.assertRaisesRegex(ValueError, sentence):
            RateFinder(**settings)

    def test_the_steepest_slope(self):
        rates = [10.0**k for k in range(-6, 2)]
        losses = [5.0, 5.0, 4.9, 4.5, 3.0, 2.9, 2.8, 9.0]
        self.assertEqual(_steepest(rates, losses), 1e-3)
        self.assertIsNone(_steepest(rates, sorted(losses)))
