"""One copy's updates: a rate for each variable, against one of that rate alone."""

import dataclasses

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import arrays
from towers.layout.graph_names import checkpoint_name
from towers.optimizers.copy_optimizer import CopyOptimizer
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.optimizer import OPTIMIZERS, Update

v1 = tf.compat.v1

_START = np.arange(12, dtype=np.float32).reshape(4, 3) / 8 - 0.5
_RATE = 0.125
_UPDATE = Update("sgd", Piecewise((_RATE,)), weight_decay=0.25)


def _trained(update, rates, *, sparse=False, steps=3):
    """Values and slots after some steps of one optimizer, by name.

    Args:
      update: the optimizer, its factors and weight decay.
      rates: name of each variable -> the rate that the optimizer is given.
      sparse: whether two rows only have a gradient, one of them twice.
    """
    (rate,) = set(rates.values())
    with tf.Graph().as_default():
        variables = [
            v1.get_variable(name, initializer=_START, use_resource=True)
            for name in rates
        ]
        wave = tf.sin(tf.range(12, dtype=tf.float32) + 1.0)
        gradients = [tf.reshape(wave, [4, 3]) for _ in variables]
        if sparse:
            gradients = [
                tf.IndexedSlices(g[:3], tf.constant([2, 0, 2]), tf.constant([4, 3]))
                for g in gradients
            ]
        optimizer = update.make(lambda: tf.constant(rate))
        decayed = gradients if sparse else update.rules.decay(gradients, variables)
        step = optimizer.apply_gradients(list(zip(decayed, variables)))
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for _ in range(steps):
                session.run(step)
            return {
                checkpoint_name(variable): session.run(variable)
                for variable in v1.global_variables()
            }


class RatesByVariableTest(parameterized.TestCase):
    @parameterized.product(name=sorted(OPTIMIZERS), sparse=(False, True))
    def test_each_variable_has_the_bits_of_an_optimizer_of_its_rate(self, name, sparse):
        factors = {"one": 0.3, "two": 7.0, "^t": 5.0, "still": 0.0}
        names = ("one", "two", "three", "four", "one_more", "still")
        update = dataclasses.replace(_UPDATE, optimizer=name)
        together = _trained(
            dataclasses.replace(update, learning_rate_factors=factors),
            dict.fromkeys(names, _RATE),
            sparse=sparse,
        )
        expected = (0.3, 7.0, 5.0, 1.0, 0.3, 0.0)
        for variable, factor in zip(names, expected):
            rate = float(np.float32(_RATE) * np.float32(factor))
            alone = _trained(update, {variable: rate}, sparse=sparse)
            for name_there, value in alone.items():
                arrays.assert_same_bits(value, together[name_there], name_there)
        np.testing.assert_array_equal(together["still"], _START)

    def test_sgd_by_hand(self):
        update = dataclasses.replace(
            _UPDATE, weight_decay=0.0, learning_rate_factors={"^w$": 0.5}
        )
        values = _trained(update, {"w": _RATE, "ww": _RATE}, steps=1)
        gradient = np.sin(np.arange(12) + 1.0).reshape(4, 3)
        np.testing.assert_allclose(
            values["w"], _START - 0.0625 * gradient, rtol=1e-6, atol=1e-7
        )
        np.testing.assert_allclose(
            values["ww"], _START - 0.125 * gradient, rtol=1e-6, atol=1e-7
        )

    def test_decoupled_decay_follows_the_factor(self):
        """As with PyTorch's parameter groups: AdamW takes rate x factor x decay."""
        update = dataclasses.replace(
            _UPDATE, optimizer="adamw", learning_rate_factors={"w": 0.5}
        )
        with tf.Graph().as_default():
            variable = v1.get_variable("w", initializer=_START, use_resource=True)
            gradient = tf.zeros_like(variable)
            step = update.make(_RATE).apply_gradients([(gradient, variable)])
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                session.run(step)
                after = session.run(variable)
        np.testing.assert_allclose(after, _START * (1 - 0.5 * _RATE * 0.25), rtol=1e-6)

    def test_no_factor_adds_no_operation(self):
        with tf.Graph().as_default() as graph:
            variable = v1.get_variable("w", initializer=_START, use_resource=True)
            optimizer = _UPDATE.make(tf.constant(_RATE))
            optimizer.apply_gradients([(tf.ones_like(variable), variable)])
        self.assertNotIn("Mul", {op.type for op in graph.get_operations()})


class CopyOptimizerTest(parameterized.TestCase):
    def _apply(self, update, gradients, rates=(1.0,), start=(0.0, 0.0)):
        """The values of a variable after each of some updates; names of all."""
        with tf.Graph().as_default(), v1.Session() as session:
            gradients = [g and tf.constant(g) for g in gradients]
            w = v1.get_variable("w", initializer=np.float32(start), use_resource=True)
            copy = CopyOptimizer()
            steps = [
                copy.apply(update.rules, update.make, gradients, [w], rate=rate)
                for rate in rates
            ]
            session.run(v1.global_variables_initializer())
            values = []
            for step in steps:
                session.run(step)
                values.append(session.run(w))
            return values, [v.op.name for v in v1.global_variables()]

    def test_two_updates_share_the_slots_and_have_rates_of_their_own(self):
        update = Update("momentum", Piecewise((1.0,)))
        values, names = self._apply(update, [[1.0, 1.0]], (1.0, 0.5))
        self.assertEqual(names, ["w", "w/Momentum"])
        # Nesterov: slot 1, then 1.9; w -= rate x (gradient + 0.9 x slot).
        np.testing.assert_allclose(values[0], -1.9 * np.ones(2), rtol=1e-6)
        np.testing.assert_allclose(values[1], -(1.9 + 0.5 * 2.71) * np.ones(2), 1e-6)

    @parameterized.parameters(
        (dict(clip_value=2.0), [-2.0, 2.0]),  # not 0.5 x 6 - 2, not 0.5 x -8 + 2
        (dict(clip_norm=2.5), [-1.5, 2.0]),
    )
    def test_clips_what_weight_decay_has_been_added_to(self, limits, gradient):
        update = Update("sgd", Piecewise((1.0,)), weight_decay=0.5, **limits)
        start = np.array([6.0, -8.0], np.float32)
        # Decayed the gradients are -3 and 4, of the norm 5.
        [value], _ = self._apply(update, [[-6.0, 8.0]], start=start)
        np.testing.assert_array_equal(value, start - gradient)

    @parameterized.parameters(({}, [-6.0, 8.0]), (dict(clip_value=7.0), [-6.0, 7.0]))
    def test_factor_multiplies_after_weight_decay_and_before_clipping(
        self, limits, gradient
    ):
        settings = dict(weight_decay=0.5, gradient_factor=2.0, **limits)
        update = Update("sgd", Piecewise((1.0,)), **settings)
        start = np.array([6.0, -8.0], np.float32)
        [value], _ = self._apply(update, [[-6.0, 8.0]], start=start)
        np.testing.assert_array_equal(value, start - gradient)

    def test_no_gradient_at_all_is_refused(self):
        update = Update("momentum", Piecewise((1.0,)))
        with self.assertRaisesRegex(ValueError, "no variable gets a gradient"):
            self._apply(update, [None])
