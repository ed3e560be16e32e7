"""Steps are compared, and a difference is found; tf_cnn_benchmarks is played."""

import contextlib
import functools
import io
import json
import os
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks import same_steps
from benchmarks.lib import our_steps, shared_networks, tf_cnn

v1 = tf.compat.v1

_KERNELS = {
    "conv0/conv2d/kernel": (5, 5, 3, 32),
    "conv1/conv2d/kernel": (5, 5, 32, 64),
    "affine0/weights": (3136, 512),
    "affine1/weights": (512, 1001),
}


def _save(folder: str, values: dict[str, np.ndarray], step: int) -> None:
    """Writes a checkpoint."""
    os.makedirs(folder, exist_ok=True)
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


def _slots(values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The momentum of each variable before the first step."""
    return {f"{name}/Momentum": 0 * value for name, value in values.items()}


def _played(name, runs, path, *, places, timeout, change=0.0, losses=1.0):
    """Writes what the driver would: our own steps, with a change.

    The momentum is left out after the first step, so each step there begins without.
    """
    del name, path, places, timeout
    for run in runs:
        folder, told, values = run["folder"], [], _initial()
        _save(folder, values | _slots(values), 0)
        start = f"{folder}/model.ckpt-0"
        with np.load(run["batches"]) as arrays:
            ours = our_steps.OurRun(
                same_steps.arguments_of(run["flags"]),
                dict(arrays),
                start,
                dropout=False,
            )
        with ours:
            for step in range(1, 4):
                if len(run["saved"]) > 3:  # each step
                    ours.restore(f"{folder}/model.ckpt-{step - 1}")
                loss, rate = ours.step()
                told.append([loss * losses, rate])
                values = {ours.names[n]: value for n, value in ours.values().items()}
                values["v/cg/affine1/weights"] *= np.float32(1 + change)
                if step in run["saved"]:
                    _save(folder, values | _slots(values), step)
        with open(f"{folder}/steps.json", "w", encoding="utf-8") as file:
            json.dump(told, file)
    return ""


class SameStepsTest(parameterized.TestCase):
    def _compared(self, played, *flags) -> tuple[int, str, dict]:
        """Exit status, output and JSON file of a comparison."""
        path = os.path.join(self.create_tempdir().full_path, "numbers.json")
        output = io.StringIO()
        arguments = "--models lenet --optimizers momentum --towers 2 --steps 3".split()
        arguments += ["--variable_updates", "replicated"]
        with (
            mock.patch.object(tf_cnn, "run_driver", played),
            mock.patch.object(same_steps, "missing", return_value=""),
            contextlib.redirect_stdout(output),
        ):
            status = same_steps.main([*arguments, *flags, f"--json={path}"])
        with open(path, encoding="utf-8") as file:
            return status, output.getvalue(), json.load(file)

    def test_the_same_steps(self):
        modes = ["--variable_updates", *same_steps.MODES]
        status, said, numbers = self._compared(_played, *modes)
        self.assertEqual(status, 0)
        self.assertIn("0 of 2 cases are above 0.0001; 0 failed", said)
        case = numbers["differences"]["lenet replicated x2 momentum"]
        self.assertEqual(set(case.values()), {0.0})

    @parameterized.parameters(
        (dict(change=1e-3), (), ("update", "variables", "change")),
        (dict(change=1e-3), ("--step_by_step",), ("update", "variables", "change")),
        (dict(losses=1.001), (), ("loss",)),
        (dict(losses=1.001), ("--step_by_step",), ("loss",)),
    )
    def test_a_difference_is_found(self, changes, flags, columns):
        played = functools.partial(_played, **changes)
        status, said, numbers = self._compared(played, *flags)
        self.assertEqual(status, 1)
        self.assertIn("1 of 1 cases are above", said)
        case = numbers["differences"]["lenet replicated x2 momentum"]
        self.assertEqual({n for n, v in case.items() if v > 1e-4}, set(columns))

    def test_each_step_begins_with_theirs(self):
        """The played runs lose their momentum after each step."""
        status, said, numbers = self._compared(_played, "--step_by_step")
        self.assertEqual(status, 0, said)
        case = numbers["differences"]["lenet replicated x2 momentum"]
        self.assertEqual(set(case.values()), {0.0})

    def test_a_chaotic_network_is_compared_in_another_way(self):
        saved, plain = [], []

        def played(name, runs, path, **options):
            saved.extend((run["flags"]["num_gpus"], run["saved"]) for run in runs)
            return _played(name, runs, path, **options)

        def run(*args, plain_gradients=False, **options):
            plain.append(plain_gradients)
            return our_run(*args, **options)

        our_run, net = our_steps.OurRun, shared_networks.NETS["lenet"]
        with (
            mock.patch.dict(shared_networks.NETS, lenet=net._replace(chaotic=True)),
            mock.patch.object(our_steps, "OurRun", run),
        ):
            status, said, numbers = self._compared(played, "--towers", "1", "2")
        self.assertEqual(status, 0, said)
        self.assertEqual(saved, [(1, [0, 1, 3]), (2, [0, 1, 2, 3])])
        self.assertEqual(plain, [False, True, False, False])  # there, here, there, here
        compared = {
            "lenet replicated x1 momentum": "plain gradients",
            "lenet replicated x2 momentum": "each step",
        }
        self.assertEqual(numbers["compared"], compared)

    def test_how_far_it_is_from_itself(self):
        threads = []

        def played(name, runs, path, **options):
            (run,) = runs
            threads.append(run["flags"]["num_intra_threads"])
            change = 1e-3 if threads[-1] == 2 else 0.0
            return _played(name, runs, path, **options, change=change)

        status, said, numbers = self._compared(played, "--spread")
        self.assertEqual(status, 0)
        self.assertEqual(threads, [1, 2])
        self.assertIn("there, two runs", said)
        case = "lenet replicated x2 momentum"
        self.assertEqual(numbers["differences"][case]["variables"], 0.0)
        self.assertGreater(numbers["spreads"][case]["variables"], 1e-4)

    def test_a_run_that_fails_there(self):
        status, said, numbers = self._compared(lambda *args, **options: "sorry")
        self.assertEqual(status, 1)
        self.assertIn("tf_cnn_benchmarks failed: sorry", said)
        self.assertLen(numbers["failures"], 1)

    def test_the_sum_of_gradients_in_replicated(self):
        factors = {}
        for mode in same_steps.MODES:
            flags = shared_networks.TrainingCase("lenet", mode, 2, "sgd").flags(1)
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
