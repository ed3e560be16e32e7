"""Optimizers against their formulas in numpy."""

import dataclasses

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from towers.optimizers import optimizer
from towers.optimizers.learning_rate import Piecewise

v1 = tf.compat.v1
_START = np.array([[1.0, -2.0, 0.5]], np.float32)
_GRADIENTS = np.array([[[1, 2, -1]], [[0.5, -1, 2]], [[-2, 1, 1]]], np.float32)

# All different, so that a mix-up shows.
_SETTINGS = optimizer.Hyperparameters(
    momentum=0.85,
    rmsprop_decay=0.8,
    rmsprop_momentum=0.7,
    rmsprop_epsilon=0.5,
    adam_beta1=0.75,
    adam_beta2=0.95,
    adam_epsilon=0.0625,
    lamb_epsilon=0.03125,
    lars_eeta=0.25,
    lars_epsilon=0.125,
)


def _sgd(s, rate):
    del s
    value = _START.astype("f8")
    for g in _GRADIENTS:
        value = value - rate * g
    return value


def _momentum(s, rate):
    value, slot = _START.astype("f8"), 0.0
    for g in _GRADIENTS:
        slot = s.momentum * slot + g
        value = value - rate * (g + s.momentum * slot if s.nesterov else slot)
    return value


def _rmsprop(s, rate):
    value, slot, square = _START.astype("f8"), 0.0, 1.0
    for g in _GRADIENTS:
        square = s.rmsprop_decay * square + (1 - s.rmsprop_decay) * g**2
        step = rate * g / np.sqrt(square + s.rmsprop_epsilon)
        slot = s.rmsprop_momentum * slot + step
        value = value - slot
    return value


def _adam(s, rate):
    value, mean, square = _START.astype("f8"), 0.0, 0.0
    for t, g in enumerate(_GRADIENTS, 1):
        mean = s.adam_beta1 * mean + (1 - s.adam_beta1) * g
        square = s.adam_beta2 * square + (1 - s.adam_beta2) * g**2
        corrected = rate * np.sqrt(1 - s.adam_beta2**t) / (1 - s.adam_beta1**t)
        value = value - corrected * mean / (np.sqrt(square) + s.adam_epsilon)
    return value


_FORMULAS = {
    "sgd": _sgd,
    "momentum": _momentum,
    "rmsprop": _rmsprop,
    "adam": _adam,
}


class OptimizerTest(parameterized.TestCase):
    def test_every_optimizer_has_a_formula_here_or_in_adamw_lars_lamb_test(self):
        formulas = {*_FORMULAS, "adamw", "lamb", "lars"}
        self.assertEqual(formulas, set(optimizer.OPTIMIZERS))

    @parameterized.product(
        name=sorted(_FORMULAS), nesterov=(True, False), called=(True, False)
    )
    def test_three_steps_follow_the_formula(self, name, nesterov, called):
        settings = dataclasses.replace(_SETTINGS, nesterov=nesterov)
        rate = 0.125
        with tf.Graph().as_default():
            variable = v1.get_variable("v", initializer=_START, use_resource=True)
            gradient = v1.placeholder(tf.float32, [1, 3])
            optimizer_made = optimizer.OPTIMIZERS[name].make(
                (lambda: tf.constant(rate)) if called else tf.constant(rate), settings
            )
            step = optimizer_made.apply_gradients([(gradient, variable)])
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                for value in _GRADIENTS:
                    session.run(step, {gradient: value})
                actual = session.run(variable)
        np.testing.assert_allclose(actual, _FORMULAS[name](settings, rate), rtol=1e-5)

    def test_every_number_here_is_its_own(self):
        numbers, defaults = (
            [value for value in vars(s).values() if isinstance(value, float)]
            for s in (_SETTINGS, optimizer.Hyperparameters())
        )
        self.assertLen(numbers, 10)
        self.assertLen(set(numbers), 10)
        self.assertEmpty(set(numbers) & set(defaults))

    def test_one_that_there_is_not(self):
        with self.assertRaisesRegex(ValueError, "^Update.optimizer is 'sdg', .* sgd,"):
            optimizer.Update("sdg", Piecewise((0.1,)))

    def test_weight_decay_touches_what_the_recipe_says(self):
        update = optimizer.Update(
            "sgd",
            Piecewise((0.1,)),
            weight_decay=0.5,
            decayed=lambda name: name != "free",
        )
        with tf.Graph().as_default():
            variables = [
                v1.get_variable(name, initializer=_START, use_resource=True)
                for name in ("decayed", "free")
            ]
            ones = tf.ones([1, 3])
            gradients = update.rules.decay([ones] * 2, variables)
            penalty = update.penalty({v.op.name: v.read_value() for v in variables})
            # No tensor of the variable's size is computed before the gradient.
            [_, product] = gradients[0].op.inputs
            waits = [op for x in product.op.inputs for op in x.op.control_inputs]
            self.assertIn(ones.op, waits)
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                (decayed, free), loss = session.run([gradients, penalty])
        np.testing.assert_array_equal(decayed, 1 + 0.5 * _START)
        np.testing.assert_array_equal(free, np.ones((1, 3)))
        self.assertEqual(loss, 0.25 * np.sum(_START**2))

    @parameterized.parameters(*sorted(_FORMULAS))
    def test_a_callable_rate_is_called_at_each_update(self, name):
        calls = []

        def rate():
            calls.append(name)
            return tf.constant(0.1)

        with tf.Graph().as_default():
            variable = v1.get_variable("v", initializer=_START, use_resource=True)
            optimizer_made = optimizer.Update(name, Piecewise((1.0,))).make(rate)
            for _ in range(2):
                optimizer_made.apply_gradients([(tf.ones([1, 3]), variable)])
        self.assertLen(calls, 2)


class ClipTest(parameterized.TestCase):
    _DENSE = np.array([3.0, -4.0, 0.5], np.float32)
    _ROWS = np.array([[0.0, 12.0]], np.float32)

    def _clipped(self, **limits):
        update = optimizer.Update("sgd", Piecewise((1.0,)), **limits)
        with tf.Graph().as_default(), v1.Session() as session:
            rows = tf.IndexedSlices(tf.constant(self._ROWS), [1], [4, 2])
            dense, none, sparse = update.rules.clip(
                [tf.constant(self._DENSE), None, rows]
            )
            self.assertIsNone(none)
            self.assertIsInstance(sparse, tf.IndexedSlices)
            return session.run([dense, sparse.values])

    def test_by_value(self):
        dense, rows = self._clipped(clip_value=2.0)
        np.testing.assert_array_equal(dense, [2, -2, 0.5])
        np.testing.assert_array_equal(rows, [[0, 2]])

    @parameterized.parameters(6.5, 1.0)
    def test_by_the_norm_of_all(self, limit):
        norm = np.sqrt(np.sum(self._DENSE**2) + np.sum(self._ROWS**2))
        dense, rows = self._clipped(clip_norm=limit)
        np.testing.assert_allclose(dense, self._DENSE * limit / norm, rtol=1e-6)
        np.testing.assert_allclose(rows, self._ROWS * limit / norm, rtol=1e-6)

    def test_small_gradients_are_left_alone(self):
        dense, rows = self._clipped(clip_norm=100.0, clip_value=50.0)
        np.testing.assert_array_equal(dense, self._DENSE)
        np.testing.assert_array_equal(rows, self._ROWS)
