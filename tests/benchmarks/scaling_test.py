"""The benchmark of scaling: its commands, and its tables."""

import contextlib
import io
import json
import math
import os
from unittest import mock

from absl.testing import parameterized

from benchmarks import scaling
from benchmarks.lib import process


def _run(command, **options) -> process.Finished:
    """Stands in for the measurements: `tree` fails, the others are linear."""
    flags = dict(a[2:].split("=") for a in command.argv if a.startswith("--"))
    if "slower" in flags:
        numbers = {"sizes": [12, 12, 12, 4], "equal": 0.3, "auto": 0.12}
        numbers |= {"changed": [13, 13, 13, 1], "rebalance": 0.13}
        return process.Finished(0, [(1.0, json.dumps(numbers))], 1.0)
    if "mode" not in flags:  # it asks for the versions of packages
        return process.Finished(0, [(1.0, "{}")], 1.0)
    towers = int(flags["num_towers"])
    if flags["mode"] == "nope":
        return process.Finished(2, [(1.0, "error: there is no nope")], 1.0)
    if flags["mode"] == "replicated:tree":
        return process.Finished(1, [(1.0, "error: no tree grows here")], 1.0)
    numbers = dict.fromkeys(("client", "build", "process"), 0.001 * towers)
    numbers |= {"step": 0.2 + 0.01 * towers, "first": 0.5, "operations": 10 * towers}
    return process.Finished(0, [(1.0, "a word"), (2.0, json.dumps(numbers))], 3.0)


def _main(*arguments: str) -> tuple[int, str]:
    output = io.StringIO()
    with (
        contextlib.redirect_stdout(output),
        mock.patch.object(process, "run", side_effect=_run),
    ):
        status = scaling.main(arguments)
    return status, output.getvalue()


class ScalingTest(parameterized.TestCase):
    def test_measures(self):
        prefix = os.path.join(self.create_tempdir().full_path, "scaling")
        status, text = _main(
            *"--modes parameter_server --towers 1 2 4 8 --rounds 2".split(),
            f"--out={prefix}",
        )
        self.assertEqual(status, 0)
        self.assertIn("[2/2] parameter_server, 8 towers: step / wait 1.40", text)
        self.assertIn("grows as towers ^ client 1.00, build 1.00, first 0.00", text)
        with open(prefix + ".json", encoding="utf-8") as file:
            report = json.load(file)
        summary = report["summary"]["parameter_server"]
        self.assertAlmostEqual(summary["step_over_wait"]["4"], 1.2)
        self.assertLen(report["runs"]["parameter_server"]["2"], 2)

    def test_a_slow_tower(self):
        status, text = _main("--slower=3", "--rounds=2")
        self.assertEqual(status, 0)
        self.assertIn("[2/2] auto, 12, 12, 12, 4: 0.400\n", text)
        self.assertIn("[2/2] rebalance, 13, 13, 13, 1: 0.433\n", text)
        self.assertIn("step with auto / of equal batches: 0.400", text)
        self.assertIn("step with rebalance / of equal batches: 0.433", text)

    def test_a_failure_is_named_and_stops_nothing(self):
        modes = "--modes replicated:tree replicated:xring --towers 2 --rounds 1"
        status, text = _main(*modes.split())
        self.assertEqual(status, 1)
        last = "[1/1] replicated:tree, 2 towers: error: no tree grows here"
        self.assertEqual(text.splitlines()[-1], last)
        self.assertIn("replicated:xring, 2 towers: step / wait 1.10", text)

    def test_a_mode_that_does_not_exist_ends_it_at_once(self):
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            status, text = _main("--modes", "nope", "parameter_server")
        self.assertEqual((status, text), (2, ""))
        self.assertEqual(errors.getvalue(), "error: there is no nope\n")

    @parameterized.parameters(0.5, 1.0, 2.0)
    def test_growth_is_the_exponent(self, power):
        costs = {n: 3 * n**power for n in (1, 2, 4, 8, 16)}
        self.assertAlmostEqual(scaling.growth(costs), power)
        # A cost that is the same for each size is no growth.
        costs = {n: 3.0 + 0 * n for n in costs}
        self.assertAlmostEqual(scaling.growth(costs), 0)

    def test_growth_of_one_number_is_unknown(self):
        self.assertIsNone(scaling.growth({4: 1.0}))

    def test_every_mode_is_one(self):
        options = scaling.parse([])
        self.assertEqual(options.modes, list(scaling.MODES))
        self.assertEqual(options.towers[-1], 64)
        self.assertTrue(math.isfinite(options.wait))
