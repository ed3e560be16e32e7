"""The table of modes: each trains one model, or says that it does not."""

import tensorflow as tf
from absl.testing import parameterized

from tests import trainer
from towers.variable_update.base import VariableUpdate
from towers.variable_update.modes import DEFAULT, VARIABLE_UPDATES


class VariableUpdateTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.reference = trainer.trained(DEFAULT).values()

    @parameterized.parameters(*VARIABLE_UPDATES)
    def test_modes_take_the_steps_of_one_tower_or_say_that_they_do_not(self, name):
        mode = VARIABLE_UPDATES[name]
        self.assertTrue(issubclass(mode, VariableUpdate))
        reference, values = self.reference, trainer.trained(name).values()
        missing = set(reference) - set(values)
        extra = {n for n in set(values) - set(reference) if "carried/" not in n}
        self.assertEqual((missing, extra), (set(), set()))
        shared = {n: values[n] for n in reference if n != "position"}
        wanted = {n: reference[n] for n in shared}
        same = trainer.difference(wanted, shared) < 1e-5
        self.assertEqual(same, mode.exact)
        self.assertEqual("NOT" in mode.description, not mode.exact)
