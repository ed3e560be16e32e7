"""What cases are held against: trained once, and how far rounding takes it."""

import time
from concurrent import futures
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from tests import trainer
from towers.updates.optimizer import Piecewise, Update
from towers.updates.variable_update import VARIABLE_UPDATES
from towers.verification import agreement, reference, ways
from towers.verification.verdict import Case

_EPSILON = np.finfo(np.float32).eps


def _trained(num_steps: int, rate: float = 0.05) -> reference.Reference:
    subject = trainer.subject(update=Update("sgd", Piecewise((rate,))))
    train = reference.build(subject, Case("parameter_server", 1), VARIABLE_UPDATES)
    return reference.Reference(train, num_steps)


class ReferencesTest(absltest.TestCase):
    def test_one_property_is_trained_once_for_all_reductions(self):
        choices = ways.exchanges(("pscpu", "xring", "tree"), (0,), (0,))
        wanted = ways.cases((1, 2), choices, names=("relaxed", "independent"))
        with mock.patch.object(reference, "build", wraps=reference.build) as built:
            list(agreement.compare(trainer.subject(num_steps=1), wanted))
        trained = [call.args[1].variable_update for call in built.mock_calls]
        self.assertLen(wanted, 4 + 2)
        self.assertEqual(trained.count("relaxed"), 4 + 2)
        self.assertLen(trained, 6 + 2 + (1 + 2))


class BuildTest(absltest.TestCase):
    def test_graphs_are_built_one_after_the_other(self):
        """As a model may keep tensors of the graph that is being built."""
        inside, most = [], []

        def build(*args, **options):
            inside.append(None)
            most.append(len(inside))
            time.sleep(0.05)
            inside.pop()

        case = Case("parameter_server", 1)
        with (
            mock.patch.object(reference.graph, "build", build),
            futures.ThreadPoolExecutor(3) as threads,
        ):
            for _ in range(3):
                threads.submit(
                    reference.build, trainer.subject(), case, VARIABLE_UPDATES
                )
        self.assertEqual(most, [1, 1, 1])


class ReferenceTest(parameterized.TestCase):
    def test_a_start_is_off_by_sixteen_roundings(self):
        [start] = _trained(0).grown
        self.assertBetween(start, 15.4 * _EPSILON, 16.6 * _EPSILON)

    def test_units_that_seldom_turn_over_are_known(self):
        """Each is so many roundings away from where its derivative is another."""
        offsets = 1.0 + np.array([3, 6, 9, 12, 15], np.float32) * _EPSILON

        def kinks(x, nn):
            scale = nn.variable("scale", [5], initializer=tf.ones_initializer())
            return tf.nn.relu(scale - offsets) + 0.0 * nn.flatten(x)[:, :5]

        subject = trainer.subject(model=trainer.model_of(kinks))
        train = reference.build(subject, Case("parameter_server", 1), VARIABLE_UPDATES)
        self.assertGreater(reference.Reference(train, 1).grown[1], 1e-3)

    @parameterized.parameters((2.0, 4), (5.0, 16))
    def test_starts_that_differ_much_are_not_the_last(self, farther, count):
        one = _trained(1)
        moved = [[1e-6, 1e-6], [1e-6, farther * 1e-6]]
        with mock.patch.object(one, "_moved", side_effect=moved * 8) as call:
            self.assertEqual(one.grown, [1e-6, farther * 1e-6])
        self.assertEqual(call.call_count, count)

    def test_it_is_known_how_far_that_goes(self):
        grown = _trained(3).grown
        self.assertLen(grown, 4)
        self.assertEqual(grown, sorted(grown))
        self.assertBetween(grown[-1], _EPSILON, 1e-4)
        still = _trained(3, rate=0.0).grown
        self.assertEqual(still, still[:1] * 4)

    def test_what_was_trained_is_left_as_it_was(self):
        one, other = _trained(2), _trained(2)
        self.assertGreater(one.grown[-1], 0.0)
        for mine, its in zip(one.values, other.values, strict=True):
            trainer.assert_same_bits(mine, its)

    @parameterized.parameters(*VARIABLE_UPDATES)
    def test_a_case_starts_where_the_reference_does(self, name):
        subject = trainer.subject(num_steps=0)
        [outcome] = agreement.compare(subject, [Case(name, 2)])
        self.assertEqual((outcome.agrees, outcome.largest.relative), (True, 0.0))


if __name__ == "__main__":
    tf.test.main()
