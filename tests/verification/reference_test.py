"""The references of cases, each trained once."""

import time
from concurrent import futures
from unittest import mock

from absl.testing import absltest

from tests import trainer
from towers.variable_update.modes import VARIABLE_UPDATES
from towers.verification import agreement, cases, reference
from towers.verification.verdict import Case


class ReferencesTest(absltest.TestCase):
    def test_one_property_is_trained_once_for_all_reductions(self):
        choices = cases.exchanges(("pscpu", "xring", "tree"), (0,), (0,))
        wanted = cases.cases((1, 2), choices, names=("relaxed", "independent"))
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

    def test_the_towers_have_the_batches_of_the_case(self):
        case = Case("parameter_server", 3, batch_sizes=(4, 1, 3))
        train = reference.build(trainer.subject(), case, VARIABLE_UPDATES)
        self.assertEqual(train.options.tower_batches(3), (4, 1, 3))
        self.assertEqual(train.examples_per_step, 8)
