"""The benchmark of the input: what it runs, and what it reports."""

import contextlib
import io
import json
import os
from unittest import mock

from absl.testing import parameterized

from benchmarks import input as input_benchmark
from benchmarks.lib import machine, options, process


def _parse(*argv):
    with contextlib.redirect_stderr(io.StringIO()) as stderr:
        return input_benchmark.parse(argv), stderr.getvalue()


def _finished(line, status=0):
    return process.Finished(status, [(1.0, line)], 2.0)


class InputTest(parameterized.TestCase):
    @parameterized.parameters(("training", "true"), ("evaluation", "false"))
    def test_commands(self, kind, augment):
        there = self.create_tempdir().full_path
        self.create_tempfile(os.path.join(there, "tf_cnn_benchmarks.py"))
        parsed, _ = _parse(f"--tf_cnn_benchmarks={there}", "--data=/d")
        every = input_benchmark.commands(parsed, options.places_of(parsed), kind)
        self.assertEqual(list(every), list(input_benchmark.SYSTEMS))
        ours = str(every["towers"])
        for word in ("--input_only", f"--augment={augment}", "--data_dir=/d/tfrecords"):
            self.assertIn(word, ours)
        self.assertEqual(every["tf_cnn_benchmarks"].cwd, there)
        for name, folder in (
            ("tf_cnn_benchmarks", "/d/tfrecords"),
            ("bare", "/d/tfrecords"),
            ("bare_resized", "/d/tfrecords"),
            ("torch", "/d/folders/train"),
        ):
            wanted = [folder, kind, "64", "10", "60"]
            self.assertEqual(list(every[name].argv[-5:]), wanted)

    def test_what_is_not_given_is_left_out(self):
        parsed, said = _parse("--systems", "tf_cnn_benchmarks", "bare")
        self.assertEqual(parsed.systems, ["towers", "bare"])
        self.assertEqual(
            said, "tf_cnn_benchmarks is left out: no --tf_cnn_benchmarks=PATH\n"
        )

    def test_rounds_and_report(self):
        path = os.path.join(self.create_tempdir(), "numbers.json")
        parsed, _ = _parse(
            *("--systems", "bare", "torch", "--kinds", "training", "--rounds=2"),
            *("--data=/d", f"--json={path}"),
        )
        cores = os.sched_getaffinity(0)
        speeds = iter([300.0, 400.0, 0.0] * 4)

        def run(command, timeout):
            del timeout
            rate = next(speeds)
            if "torch_input" in str(command):
                return _finished("ModuleNotFoundError: no torch", 1)
            return _finished(f"total images/sec: {rate}")

        with (
            mock.patch.object(process, "run", run),
            mock.patch.object(machine, "versions", return_value={}),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            rounds = input_benchmark.Rounds(parsed, options.places_of(parsed))
            rounds.run()
        self.assertEqual(os.sched_getaffinity(0), cores)
        lines = rounds.report()
        row = "training, 1 core: bare 400 [400, 400] 400 [400, 400]"
        row += " 0.750 [0.750, 0.750] 0.85"
        self.assertIn(row, [" ".join(line.split()) for line in lines])
        self.assertEqual(lines[-1], "torch failed: ModuleNotFoundError: no torch")
        with open(path) as file:
            numbers = json.load(file)["images_per_second"]
        self.assertEqual(numbers["training, 1 core: towers"], [300.0, 300.0])
        self.assertEqual(numbers["training, 1 core: torch"], [None, None])
