"""The reference of a case, and how much rounding can change it."""

from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import trainer
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.optimizer import Update
from towers.variable_update.modes import VARIABLE_UPDATES
from towers.verification import agreement, reference, rounding_reference
from towers.verification.verdict import Case

_EPSILON = np.finfo(np.float32).eps


def _trained(
    num_steps: int, rate: float = 0.05
) -> rounding_reference.RoundingReference:
    subject = trainer.subject(update=Update("sgd", Piecewise((rate,))))
    train = reference.build(subject, Case("parameter_server", 1), VARIABLE_UPDATES)
    return rounding_reference.RoundingReference(train, num_steps)


def _farthest(reference: rounding_reference.RoundingReference) -> list[float]:
    """How far rounding has taken the variable that it takes farthest."""
    return [max(step) for step in zip(*reference.grown.values())]


class RoundingReferenceTest(parameterized.TestCase):
    def test_a_start_is_off_by_sixteen_roundings(self):
        [start] = _farthest(_trained(0))
        self.assertBetween(start, 15.4 * _EPSILON, 16.6 * _EPSILON)

    def test_units_that_seldom_turn_over_are_known(self):
        """Each is so many roundings away from where its derivative is another."""
        offsets = 1.0 + np.array([3, 6, 9, 12, 15], np.float32) * _EPSILON

        def kinks(x, nn):
            scale = nn.variable("scale", [5], initializer=tf.ones_initializer())
            return tf.nn.relu(scale - offsets) + 0.0 * nn.flatten(x)[:, :5]

        subject = trainer.subject(model=trainer.model_of(kinks))
        train = reference.build(subject, Case("parameter_server", 1), VARIABLE_UPDATES)
        self.assertGreater(
            _farthest(rounding_reference.RoundingReference(train, 1))[1], 1e-3
        )

    @parameterized.parameters((2.0, 4), (5.0, 16))
    def test_starts_that_differ_much_are_not_the_last(self, farther, count):
        reference = _trained(1)
        others = [[0.0, 0.0]] * (len(reference.values[0]) - 1)
        moved = [[[1e-6, end], *others] for end in (1e-6, farther * 1e-6)]
        with mock.patch.object(reference, "_moved", side_effect=moved * 8) as call:
            self.assertEqual(_farthest(reference), [1e-6, farther * 1e-6])
        self.assertEqual(call.call_count, count)

    def test_it_is_known_how_far_that_goes(self):
        grown = _farthest(_trained(3))
        self.assertLen(grown, 4)
        self.assertEqual(grown, sorted(grown))
        self.assertBetween(grown[-1], _EPSILON, 1e-4)
        still = _farthest(_trained(3, rate=0.0))
        self.assertEqual(still, still[:1] * 4)

    def test_what_is_nothing_but_rounding_excuses_nothing_else(self):
        """As the gradient of a bias before batch norm."""

        def block(x, nn):
            x = nn.batch_norm(nn.conv(x, 4, 3))
            return nn.dense(nn.flatten(x), nn.num_classes)

        subject = trainer.subject(model=trainer.model_of(block))
        train = reference.build(subject, Case("parameter_server", 1), VARIABLE_UPDATES)
        grown = rounding_reference.RoundingReference(train, 2).grown
        noise = {name for name, steps in grown.items() if steps[-1] > 0.1}
        self.assertEqual(noise, {"block/conv/bias", "block/conv/bias/Momentum"})
        self.assertLess(max(grown[n][-1] for n in set(grown) - noise), 1e-3)

    def test_what_little_has_moved_is_held_to_that(self):
        reference = _trained(2, rate=1e-5)
        start, end = (values["hidden/dense/kernel"] for values in reference.values[::2])
        way = np.max(np.abs(end - start))
        twice = end + (end - start)
        ulps, relative = reference.distance("hidden/dense/kernel", 2, twice)
        self.assertLess(way / np.max(np.abs(end)), 1e-4)
        self.assertBetween(relative, 0.5, 1.5)
        self.assertGreater(ulps, 4)
        two_each = end + np.float32(4) * np.spacing(np.max(np.abs(end)))
        relative = reference.distance("hidden/dense/kernel", 2, two_each)[1]
        self.assertLess(relative, 1e-5)

    def test_what_was_trained_is_left_as_it_was(self):
        one_tower, other = _trained(2), _trained(2)
        self.assertGreater(_farthest(one_tower)[-1], 0.0)
        for mine, its in zip(one_tower.values, other.values, strict=True):
            trainer.assert_same_bits(mine, its)

    @parameterized.parameters(*VARIABLE_UPDATES)
    def test_a_case_starts_where_the_reference_does(self, name):
        subject = trainer.subject(num_steps=0)
        [outcome] = agreement.compare(subject, [Case(name, 2)])
        self.assertEqual((outcome.agrees, outcome.largest.relative), (True, 0.0))
