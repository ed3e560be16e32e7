"""Steps are compared, and a difference is found; tf_cnn_benchmarks is played."""

import contextlib
import io
import json
import os
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks import same_steps
from benchmarks.lib import our_steps

v1 = tf.compat.v1

_KERNELS = {
    "conv0/conv2d/kernel": (5, 5, 3, 32),
    "conv1/conv2d/kernel": (5, 5, 32, 64),
    "affine0/weights": (3136, 512),
    "affine1/weights": (512, 1001),
}


def _save(folder: str, values: dict[str, np.ndarray], step: int) -> None:
    """Writes a checkpoint."""
    os.makedirs(folder)
    with tf.Graph().as_default(), v1.Session() as session:
        held = {
            name: v1.get_variable(name, initializer=v) for name, v in values.items()
        }
        session.run(v1.global_variables_initializer())
        v1.train.Saver(held).save(session, f"{folder}/model.ckpt", step)


def _initial() -> dict[str, np.ndarray]:
    """lenet's variables as tf_cnn_benchmarks names them."""
    rng, values = np.random.default_rng(0), {}
    for name, shape in _KERNELS.items():
        scale = np.sqrt(1 / np.prod(shape[:-1]))
        values[f"v/cg/{name}"] = scale * rng.standard_normal(shape, np.float32)
        layer = name.partition("/")[0]
        values[f"v/cg/{layer}/biases"] = np.zeros(shape[-1], np.float32)
    return values


def _played(runs, folder, places, timeout, *, change=0.0, losses=1.0):
    """Writes what the driver would: our own steps, with a change."""
    del folder, places, timeout
    for run in runs:
        _save(f"{run['folder']}/start", _initial(), 0)
        with np.load(run["batches"]) as arrays:
            steps = our_steps.take(
                same_steps.arguments_of(run["flags"]),
                dict(arrays),
                f"{run['folder']}/start/model.ckpt-0",
                dropout=False,
            )
        for when, values in (("first", steps.first), ("end", steps.values)):
            theirs = {steps.names[name]: value for name, value in values.items()}
            theirs["v/cg/affine1/weights"] *= np.float32(1 + change)
            _save(f"{run['folder']}/{when}", theirs, 1 if when == "first" else 3)
        told = [[loss * losses, rate] for loss, rate in zip(steps.losses, steps.rates)]
        with open(f"{run['folder']}/steps.json", "w", encoding="utf-8") as file:
            json.dump(told, file)
    return ""


class SameStepsTest(parameterized.TestCase):
    def _compared(self, played) -> tuple[int, str, dict]:
        """Exit status, output and JSON file of a comparison."""
        path = os.path.join(self.create_tempdir().full_path, "numbers.json")
        output = io.StringIO()
        arguments = "--models lenet --optimizers momentum --towers 2 --steps 3".split()
        with (
            mock.patch.object(same_steps, "run_theirs", played),
            mock.patch.object(same_steps, "missing", return_value=""),
            contextlib.redirect_stdout(output),
        ):
            status = same_steps.main([*arguments, f"--json={path}"])
        with open(path, encoding="utf-8") as file:
            return status, output.getvalue(), json.load(file)

    def test_the_same_steps(self):
        status, said, numbers = self._compared(_played)
        self.assertEqual(status, 0)
        self.assertIn("0 of 2 cases are above 0.0001; 0 failed", said)
        case = numbers["differences"]["lenet replicated x2 momentum"]
        self.assertEqual(set(case.values()), {0.0})

    @parameterized.parameters(
        (dict(change=1e-3), ("first", "variables", "change")),
        (dict(losses=1.001), ("loss",)),
    )
    def test_a_difference_is_found(self, changes, columns):
        def played(*args):
            return _played(*args, **changes)

        status, said, numbers = self._compared(played)
        self.assertEqual(status, 1)
        self.assertIn("2 of 2 cases are above", said)
        case = numbers["differences"]["lenet parameter_server x2 momentum"]
        self.assertEqual({n for n, v in case.items() if v > 1e-4}, set(columns))

    def test_a_run_that_fails_there(self):
        status, said, numbers = self._compared(lambda *args: "sorry")
        self.assertEqual(status, 1)
        self.assertIn("tf_cnn_benchmarks failed: sorry", said)
        self.assertLen(numbers["failures"], 2)

    def test_the_sum_of_gradients_in_replicated(self):
        factors = {}
        for mode in same_steps.MODES:
            flags = same_steps.TrainingCase("lenet", mode, 2, "sgd").flags(1)
            arguments = same_steps.arguments_of(flags)
            factors[mode] = [a for a in arguments if "gradient_factor" in a]
        self.assertEqual(
            factors,
            {"parameter_server": [], "replicated": ["--gradient_factor=2.0"]},
        )

    def test_without_a_checkout(self):
        errors = io.StringIO()
        with (
            self.assertRaises(SystemExit) as raised,
            contextlib.redirect_stderr(errors),
        ):
            same_steps.main([])
        self.assertEqual(raised.exception.code, 2)
        self.assertIn("give --tf_cnn_benchmarks, the path", errors.getvalue())
