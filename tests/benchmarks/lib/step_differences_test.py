"""Differences of steps, by numbers that can be checked by hand."""

import json

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from benchmarks.lib import step_differences
from benchmarks.lib.our_steps import Steps

v1 = tf.compat.v1

_NAMES = {"w": "v/w", "average": "v/average"}


class _Run:
    """Our run: each step subtracts 1.1 from the first weight, at a loss of 2."""

    names = _NAMES
    trained = ("w",)

    def restore(self, checkpoint):
        """Reads the variables."""
        reader = tf.train.load_checkpoint(checkpoint)
        self._values = {n: reader.get_tensor(theirs) for n, theirs in _NAMES.items()}

    def step(self):
        """Loss and rate."""
        self._values["w"] = self._values["w"] - [1.1, 0.0]
        return 2.0, 0.1

    def values(self):
        """The variables."""
        return self._values


class StepDifferencesTest(absltest.TestCase):
    def setUp(self):
        """Writes two steps that each subtract 1 from the first weight."""
        super().setUp()
        self.folder = self.create_tempdir().full_path
        for step in range(3):
            with tf.Graph().as_default(), v1.Session() as session:
                weights = np.array([4.0 - step, 0.0])
                values = {"v/w": weights, "v/average": np.array([0.0, 0.0])}
                held = {n: v1.get_variable(n, initializer=v) for n, v in values.items()}
                session.run(v1.global_variables_initializer())
                v1.train.Saver(held).save(session, f"{self.folder}/model.ckpt", step)
        with open(f"{self.folder}/steps.json", "w", encoding="utf-8") as file:
            json.dump([[2.0, 0.1], [1.6, 0.1]], file)

    def test_of_a_run(self):
        average = np.array([0.0, 0.0])
        ours = Steps(
            losses=[2.0, 1.7],
            rates=[0.1, 0.1],
            names=_NAMES,
            first={"w": np.array([3.2, 0.0]), "average": average},
            values={"w": np.array([2.0, 0.1]), "average": average},
            trained=["w"],
        )
        differences = step_differences.compare(ours, self.folder)
        expected = [0.1 / 1.6, 0.0, 0.2, 0.1 / 2, 0.1 / 2]
        np.testing.assert_allclose(differences, expected, rtol=1e-6)
        self.assertTrue(differences.above(0.19))
        self.assertFalse(differences.above(0.21))

    def test_of_each_step(self):
        """The second begins with their weights, and not with ours after the first."""
        differences = step_differences.compare_each(_Run(), self.folder)
        expected = [0.4 / 1.6, 0.0, 0.1, 0.1 / 2, 0.1]
        np.testing.assert_allclose(differences, expected, rtol=1e-6)

    def test_of_another_run_there(self):
        theirs = step_differences.TheirSteps(self.folder, _NAMES).as_ours(["w"])
        differences = step_differences.compare(theirs, self.folder)
        self.assertEqual(differences, (0.0,) * 5)

    def test_no_number_is_above_any_limit(self):
        differences = step_differences.Differences(0.0, 0.0, float("nan"), 0.0, 0.0)
        self.assertTrue(differences.above(1.0))
