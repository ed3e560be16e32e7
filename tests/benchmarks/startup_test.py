"""The benchmark of the start: its runs are legal, and its tables."""

import contextlib
import io
import json
import os
from unittest import mock

from absl.testing import absltest

from benchmarks import startup
from benchmarks.lib import machine, process
from flags import parse


def _numbers(seconds: float, speed: float) -> dict[str, float]:
    return {
        "build": seconds,
        "start": seconds,
        "first_step": seconds,
        "images_per_second": speed,
    }


def _run(command, **options) -> process.Finished:
    """Stands in for the three programs."""
    if "towers.train" in command.argv:
        lines = [(2.0, "Running warm up"), (5.0, startup.WARM)]
    elif "benchmarks.lib.many_towers" in command.argv:
        numbers = _numbers(1.0, 20.0)
        if "--graph_optimizers" in command.argv:
            numbers = _numbers(4.0, 10.0)
        if "--plain" in command.argv:
            numbers = _numbers(5.0, 16.0)
        lines = [(8.0, json.dumps(numbers))]
    else:
        lines = [(3.0, startup.IMPORTED)]
    return process.Finished(0, lines, 9.0)


def _main(*arguments: str) -> tuple[int, str]:
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        status = startup.main(arguments)
    return status, output.getvalue()


class StartupTest(absltest.TestCase):
    def test_the_command_is_legal(self):
        settings = parse.parse(startup.TRAIN[1:], {})
        self.assertEqual(settings.model.model, "lenet")
        self.assertEqual(settings.training.num_warmup_batches, 1)

    def test_measures(self):
        path = os.path.join(self.create_tempdir().full_path, "a.json")
        with (
            mock.patch.object(process, "run", _run),
            mock.patch.object(machine, "versions", return_value={}),
        ):
            status, said = _main("--rounds=2", "--towers", "1", "32", f"--json={path}")
        self.assertEqual(status, 0)
        self.assertRegex(said, r"minus the first +2\.00 \[2\.00, 2\.00\]")
        self.assertRegex(said, r"\n32 +3\.00 .* 12\.0 .* 0\.25\d* .* 15\.0 .* 0\.200 ")
        self.assertRegex(said, r"\n32 .* 0\.200 \[.* 3\.00 \[.* 1\.00 \[")
        self.assertRegex(said, r"\n32 +20\.0 .* 10\.0 .* 2\.00 .* 16\.0 .* 1\.25 \[")
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        self.assertLen(report["command"], 2)
        ways = [f"{count} {way}" for count in (1, 32) for way in ("off", "on", "plain")]
        self.assertCountEqual(report["towers"][0], ways)

    def test_models_beside_the_peer(self):
        seconds = {"inception4": (6.0, 12.0), "resnet152": (9.0, 10.0)}
        commands = []

        def run(command, **options):
            commands.append(command)
            [model] = [m for m in seconds if f"--model={m}" in command.argv]
            took = seconds[model]["tf_cnn_benchmarks.py" in command.argv]
            lines = [(4.0, startup.BUILDS), (4.0 + took, startup.WARM)]
            return process.Finished(0, lines, 20.0)

        checkout = self.create_tempdir()
        checkout.create_file("tf_cnn_benchmarks.py")
        flags = ["--parts", "models", "--models", *seconds, "--rounds=2"]
        with (
            mock.patch.object(process, "run", run),
            mock.patch.object(startup, "missing", return_value=""),
            mock.patch.object(machine, "versions", return_value={}),
        ):
            status, said = _main(*flags, f"--tf_cnn_benchmarks={checkout.full_path}")
        self.assertEqual(status, 0)
        self.assertRegex(said, r"\ninception4 +6\.00 .* 12\.0 .* 0\.500 \[")
        self.assertRegex(said, r"\nresnet152 +9\.00 .* 10\.0 .* 0\.900 \[")
        self.assertLen(commands, 8)
        for ours, theirs in zip(commands[::2], commands[1::2]):
            self.assertIn("towers.tf_cnn_benchmarks", ours.argv)
            self.assertEqual(ours.argv[3:], theirs.argv[2:])
            words = {"--num_gpus=8", "--batch_size=1", "--num_warmup_batches=1"}
            self.assertContainsSubset(words, ours.argv)

    def test_fails_in_one_sentence(self):
        failed = process.Finished(1, [(0.0, "ValueError: sorry")], 1.0)
        with mock.patch.object(process, "run", return_value=failed):
            status, said = _main("--rounds=1")
        self.assertEqual(status, 1)
        self.assertRegex(said, r"\nerror: .*ValueError: sorry\n$")
