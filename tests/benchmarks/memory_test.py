"""The benchmark of memory: its runs are legal, and the table has all peaks."""

import contextlib
import io
import json
import os
from unittest import mock

from absl.testing import absltest

from benchmarks import memory
from benchmarks.lib import cases, machine, process
from benchmarks.peers.systems import Places
from flags import parse

_PLACES = Places("python", "", "/checkout", "python-tf")


def _run(command, **options) -> process.Finished:
    """Stands in for the runs: ours take 100 MiB, theirs 200, one of theirs fails."""
    theirs = "tf_cnn_benchmarks.py" in command.argv
    if theirs and "--variable_update=independent" in command.argv:
        return process.Finished(1, [(1.0, "no such thing")], 1.0)
    peak = (200 if theirs else 100) << 20
    return process.Finished(0, [], 1.0, peak_bytes=peak)


class MemoryTest(absltest.TestCase):
    def _main(self, *arguments: str) -> tuple[int, str]:
        output = io.StringIO()
        with (
            contextlib.redirect_stdout(output),
            mock.patch.object(process, "run", side_effect=_run),
            mock.patch.object(memory, "missing", return_value=""),
            mock.patch.object(machine, "versions", return_value={}),
        ):
            status = memory.main(arguments)
        return status, output.getvalue()

    def test_ours_are_legal_command_lines(self):
        wanted = memory.commands(cases.parse_list("lenet:4x8"), [memory.OURS], _PLACES)
        self.assertLen(wanted, 1 + len(memory.MODES))
        for (_, mode, _), command in wanted.items():
            if mode in memory.MODES:
                settings = parse.parse(["train", *command.argv[3:]], {})
                self.assertEqual(settings.variables.variable_update, mode)
                self.assertEqual(settings.devices.num_gpus, 4)

    def test_their_mode_is_said_last(self):
        wanted = memory.commands(
            cases.parse_list("lenet:4x8"), [memory.OURS, *memory.PEERS], _PLACES
        )
        argv = wanted["lenet:4x8", "replicated", memory.PEERS[0]].argv
        self.assertEqual(
            argv[-2:], ["--variable_update=replicated", "--all_reduce_spec=pscpu"]
        )

    def test_measures(self):
        path = os.path.join(self.create_tempdir().full_path, "memory.json")
        flags = ("--cases=lenet:4x8", "--rounds=2", f"--json={path}")
        status, text = self._main(*flags)
        self.assertEqual(status, 1)
        both = r"( +200 \[200, 200\] +0\.500 \[0\.500, 0\.500\]){2}\n"
        self.assertRegex(text, r"lenet:4x8 replicated +100 \[100, 100\]" + both)
        self.assertRegex(text, r"lenet:4x8 independent +100 \[100, 100\]( +-){4}\n")
        self.assertIn("[2] lenet:4x8 independent tf_cnn_benchmarks failed: no", text)
        with open(path, encoding="utf-8") as file:
            report = json.load(file)["peak_mebibytes"]
        self.assertEqual(report["lenet:4x8 replicated towers"], [100.0, 100.0])


class EstimatesTest(absltest.TestCase):
    def test_a_row_is_what_the_run_says(self):
        lines = ["1\timages/sec: 8", f"estimate: {3 * 2**20}, grew by: {4 * 2**20}"]
        self.assertEqual(memory.estimate_row("x", lines), ["x", "3", "4", "0.75"])
        self.assertIsNone(memory.estimate_row("x", lines[:1]))
