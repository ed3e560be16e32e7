"""The comparison runs all systems in turn, and goes on if one fails."""

import contextlib
import io
import json
import os
from unittest import mock

from absl.testing import parameterized

from benchmarks import compare
from benchmarks.lib import machine, process
from benchmarks.lib.process import Command
from benchmarks.peers.systems import System


def _fast(case, length, places):
    speed = case.examples * length.steps
    return Command([places.python, "-c", f"print('total images/sec: {speed}')"])


def _broken(case, length, places):
    return Command([places.python, "-c", "raise ValueError('sorry')"])


def _one_tower_only(case, length, places):
    return _fast(case, length, places) if case.towers == 1 else None


SYSTEMS = {
    "fast": System(_fast, "python", ()),
    "broken": System(_broken, "python", ()),
    "single": System(_one_tower_only, "python", ()),
    "absent": System(_fast, "python", ("no-such-package",)),
}


def _compare(*arguments: str) -> tuple[int, str]:
    """Exit status and output of a comparison of the systems above."""
    output = io.StringIO()
    with (
        mock.patch.object(compare, "SYSTEMS", SYSTEMS),
        mock.patch("benchmarks.peers.systems.SYSTEMS", SYSTEMS),
        mock.patch("signal.signal"),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(output),
    ):
        try:
            status = compare.main(arguments)
        except SystemExit as error:
            status = error.code
    return status, output.getvalue()


class CompareTest(parameterized.TestCase):
    def test_compares(self):
        out = os.path.join(self.create_tempdir().full_path, "found")
        status, said = _compare(
            "--cases=n:1x4,n:2x2", "--rounds=2", "--num_batches=5", f"--out={out}"
        )
        self.assertEqual(status, 0)
        with open(out + ".json", encoding="utf-8") as file:
            report = json.load(file)
        self.assertEqual(
            [(r["round"], r["case"], r["system"]) for r in report["runs"]],
            [
                (number, *run)
                for number in (1, 2)
                for run in (
                    ("n:1x4", "fast"),
                    ("n:1x4", "broken"),
                    ("n:1x4", "single"),
                    ("n:2x2", "fast"),
                    ("n:2x2", "broken"),
                )
            ],
        )
        self.assertEqual(report["runs"][0]["images_per_second"], 20.0)
        self.assertEqual(report["runs"][1]["failure"], "ValueError: sorry")
        self.assertEqual(report["summary"]["against"]["single"]["n:1x4"]["median"], 1)
        self.assertEqual(report["summary"]["scaling"]["fast"]["n:2x2"]["most"], 1)
        self.assertEqual(set(report["systems"]), {"fast", "broken", "single"})
        self.assertIn("absent is left out", said)
        self.assertIn("[10/10] round 2 n:2x2 broken: failed", said)
        self.assertIn("broken failed on n:1x4 in round 1: ValueError: sorry", said)
        self.assertIn("fast / peer", said)
        self.assertIn("n:2x2 / n:1x4", said)

    def test_a_disturbed_run_is_made_again(self):
        def finished(speed: float, others: float) -> process.Finished:
            lines = [(0.0, f"total images/sec: {speed}")]
            return process.Finished(0, lines, 1.0, others=others)

        runs = [finished(1, 0.9), finished(2, 0.1), finished(3, 0.9)]
        runs += [finished(4, 0.6), finished(5, 0.8)]
        with (
            mock.patch.object(process, "run", side_effect=runs) as run,
            mock.patch.object(machine, "versions", return_value={}),
        ):
            status, said = _compare(
                "--cases=n:1x4", "--rounds=2", "--systems=fast", "--max_others=0.5"
            )
        self.assertEqual((status, run.call_count), (0, 5))
        self.assertRegex(said, r"\nn:1x4 +3\.00 \[2\.00, 4\.00\]")

    def test_goes_on_with_a_comparison(self):
        out = os.path.join(self.create_tempdir().full_path, "found")
        flags = ["--cases=n:1x4", "--num_batches=5", f"--out={out}"]
        _compare(*flags, "--rounds=1")
        status, said = _compare(*flags, "--rounds=2", "--resume")
        self.assertEqual(status, 0)
        self.assertNotIn("round 1 n:1x4 fast", said)
        self.assertIn("round 1 n:1x4 broken: failed", said)  # again
        self.assertIn("[6/6] round 2 n:1x4 single", said)
        with open(out + ".json", encoding="utf-8") as file:
            runs = json.load(file)["runs"]
        self.assertLen(runs, 6)
        self.assertGreater(runs[0]["peak_bytes"], 1 << 20)

    @parameterized.parameters(
        ('{"machine": {}}', "json is not of a comparison"),
        (
            '{"arguments": {"seconds": 3, "num_batches": 5, "max_others": "inf"}, '
            '"runs": []}',
            "it was begun with --seconds=3",
        ),
    )
    def test_does_not_go_on_with_another(self, text, sentence):
        path = self.create_tempfile("found.json", text).full_path
        out = path.removesuffix(".json")
        status, said = _compare("--num_batches=5", f"--out={out}", "--resume")
        self.assertEqual(status, 2)
        self.assertRegex(said, rf"\nerror: --resume: .*{sentence}\n$")

    def test_one_command_for_both(self):
        options = compare.parse(["--same_command"])
        self.assertSequenceEqual(options.systems, compare.SAME_COMMAND)
        self.assertEqual(options.cases, compare.cases.of_image_models((1, 4)))
        self.assertNotIn(compare.SAME_COMMAND[0], compare.parse([]).systems)

    def test_nothing_to_run(self):
        status, said = _compare("--systems=absent")
        self.assertEqual(status, 2)
        self.assertIn("none of the systems", said)
