"""Learning rates against tables, TensorFlow's functions and published formulas."""

import math

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from towers.optimizers import learning_rate
from towers.optimizers.learning_rate import Scheduled

v1 = tf.compat.v1

_EPOCHS = 12.0
_WARMUP = 2.0
_MINIMUM = 0.05
_RATE = 0.5


def _rates(schedule, epochs):
    with tf.Graph().as_default(), v1.Session() as session:
        return session.run([schedule(tf.constant(float(e))) for e in epochs])


class PiecewiseTest(parameterized.TestCase):
    def test_piecewise_changes_at_its_epochs(self):
        schedule = learning_rate.Piecewise((1.0, 0.5, 0.25), (2.0, 4.0))
        rates = _rates(schedule, [0, 1.9, 2, 3, 4, 100])
        np.testing.assert_array_equal(rates, [1, 1, 0.5, 0.5, 0.25, 0.25])

    @parameterized.parameters(
        (0.1, (), "one rate more"),
        ((0.1, 0.01), (), "one rate more"),
        ((0.1,), (1.0,), "one rate more"),
        ((0.1, 0.2, 0.3), (2.0, 1.0), "must be ascending"),
    )
    def test_rates_that_do_not_fit_their_epochs(self, rates, epochs, words):
        with self.assertRaisesRegex(ValueError, f"^Piecewise.* {words}"):
            learning_rate.Piecewise(rates, epochs)
        learning_rate.Piecewise(np.array([0.1, 0.2]), [1.0])

    def test_constant(self):
        self.assertEqual(_rates(learning_rate.Piecewise((0.5,)), [3]), [0.5])

    def test_warmup_grows_from_zero(self):
        schedule = learning_rate.Piecewise((1.0, 0.5), (8.0,), warmup_epochs=4.0)
        rates = _rates(schedule, [0, 1, 2, 4, 8])
        np.testing.assert_array_equal(rates, [0, 0.25, 0.5, 1, 0.5])
        at_once = learning_rate.Piecewise((1.0, 0.5), (4.0,), warmup_epochs=4.0)
        np.testing.assert_array_equal(_rates(at_once, [2, 4]), [0.5, 0.5])

    def test_staircase_with_floor(self):
        schedule = learning_rate.Staircase(1.0, 0.5, 2.0, minimum=0.2)
        rates = _rates(schedule, [0, 1.9, 2, 4, 6, 40])
        np.testing.assert_allclose(rates, [1, 1, 0.5, 0.25, 0.2, 0.2])

    @parameterized.parameters(0.1, 0.3, 0.7, 1 / 3)
    def test_staircase_steps_down_on_every_boundary(self, period):
        """Also where epoch / period is rounded to just below a whole number."""
        schedule = learning_rate.Staircase(1.0, 0.5, period)
        steps = np.arange(1, 40)
        on = _rates(schedule, list(steps * period))
        np.testing.assert_array_equal(on, 0.5**steps)
        before = _rates(schedule, list(steps * period - 1e-4))
        np.testing.assert_array_equal(before, 0.5 ** (steps - 1.0))


def _tensorflow(function, *args, **settings):
    """A function of TensorFlow, which takes the rate and the step first."""

    def rate(epoch):
        with tf.Graph().as_default(), v1.Session() as session:
            return session.run(function(_RATE, epoch, *args, **settings))

    return rate


def _sgdr(epoch):
    """Equation 5 of Loshchilov & Hutter 2017; cycles of 1.5, 3, 6, ... epochs."""
    cycle, largest = 1.5, _RATE
    while epoch >= cycle:
        epoch, cycle, largest = epoch - cycle, 2 * cycle, 0.9 * largest
    half = 0.5 * (1 + math.cos(math.pi * epoch / cycle))
    return _MINIMUM + (largest - _MINIMUM) * half


def _one_cycle(epoch):
    """As PyTorch's OneCycleLR, whose `total_steps - 1` is the length here."""
    rising = 0.3 * _EPOCHS
    if epoch < rising:
        first, last, done = _RATE / 25, _RATE, epoch / rising
    else:
        first, last = _RATE, 0.0
        done = min((epoch - rising) / (_EPOCHS - rising), 1.0)
    return last + (first - last) / 2 * (1 + math.cos(math.pi * done))


_DECAY = _EPOCHS - _WARMUP
# Row of the table -> settings, and the rate at so many epochs after the warm-up.
_PUBLISHED = {
    "exponential": (
        {"factor": 0.7, "period": 3.0},
        _tensorflow(v1.train.exponential_decay, 3.0, 0.7),
    ),
    "polynomial": (
        {"power": 2.0, "minimum": _MINIMUM},
        _tensorflow(v1.train.polynomial_decay, _DECAY, _MINIMUM, power=2.0),
    ),
    "cosine": (
        {"minimum": _MINIMUM},
        _tensorflow(v1.train.cosine_decay, _DECAY, alpha=_MINIMUM / _RATE),
    ),
    "cosine_restarts": (
        {"period": 1.5, "growth": 2.0, "factor": 0.9, "minimum": _MINIMUM},
        _sgdr,
    ),
    "one_cycle": ({"warmup_epochs": 0.0}, _one_cycle),
    "inverse_sqrt": ({}, lambda epoch: _RATE * math.sqrt(_WARMUP / (epoch + _WARMUP))),
}


class ScheduledTest(parameterized.TestCase):
    def test_every_row_has_a_test(self):
        self.assertEqual(set(_PUBLISHED), set(learning_rate.SCHEDULES))

    @parameterized.parameters(sorted(_PUBLISHED))
    def test_its_published_formula_at_every_step(self, name):
        settings, published = _PUBLISHED[name]
        settings = {"warmup_epochs": _WARMUP, **settings}
        schedule = Scheduled(name, _RATE, _EPOCHS, **settings)
        warmup = settings["warmup_epochs"]
        after = np.arange(0, _EPOCHS - warmup + 1, 0.25)
        np.testing.assert_allclose(
            _rates(schedule, after + warmup), [published(e) for e in after], rtol=1e-5
        )
        for epoch in np.arange(0, warmup, 0.25):
            [rate] = _rates(schedule, [epoch])
            self.assertAlmostEqual(rate, _RATE * epoch / warmup)

    @parameterized.parameters(0.1, 0.3, 0.7, 1 / 3)
    def test_a_cycle_begins_at_its_first_step(self, period):
        schedule = Scheduled("cosine_restarts", _RATE, _EPOCHS, period=period)
        np.testing.assert_allclose(
            _rates(schedule, np.arange(1, 30) * period), [_RATE] * 29, rtol=1e-6
        )

    def test_one_cycle_rises_over_the_warmup(self):
        schedule = Scheduled("one_cycle", _RATE, _EPOCHS, warmup_epochs=4.0)
        np.testing.assert_allclose(
            _rates(schedule, [0, 4, _EPOCHS]), [_RATE / 25, _RATE, 0], atol=1e-7
        )

    @parameterized.parameters("exponential", "inverse_sqrt")
    def test_a_floor_where_there_is_no_end(self, name):
        settings = {"factor": 0.1, "period": 0.5} if name == "exponential" else {}
        schedule = Scheduled(name, _RATE, _EPOCHS, 0.001, minimum=_MINIMUM, **settings)
        self.assertEqual(_rates(schedule, [_EPOCHS]), [np.float32(_MINIMUM)])

    @parameterized.parameters(
        ("cosin", {}, "must be one of exponential, .*cosine"),
        ("exponential", {"factor": 0.5}, "Scheduled.period is 0, and exponential"),
        ("inverse_sqrt", {}, "Scheduled.warmup_epochs is 0, and inverse_sqrt needs"),
        ("cosine", {"minimum": 1.0}, "Scheduled.minimum is 1, and must not be above"),
    )
    def test_settings_that_make_no_schedule(self, name, settings, sentence):
        with self.assertRaisesRegex(ValueError, sentence):
            Scheduled(name, _RATE, _EPOCHS, **settings)
