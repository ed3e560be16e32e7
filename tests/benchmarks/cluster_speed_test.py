"""The benchmark of clusters: the command of each task, and the summary."""

import argparse
import contextlib
import io
import unittest.mock

from absl.testing import absltest

from benchmarks import cluster_speed
from benchmarks.lib import process
from benchmarks.lib.cases import BenchmarkCase, Length
from benchmarks.peers.systems import Places

_PLACES = Places("py", "", "/tf_cnn", "old_py")


def _run(round_: int, system: str, rate: float | None) -> dict:
    return {
        "round": round_,
        "system": system,
        "images_per_second": rate,
        "cpu_seconds": 3.0,
    }


class ClusterSpeedTest(absltest.TestCase):
    def _argv(self, name: str) -> list[str]:
        row = cluster_speed.SYSTEMS[name]
        return row.command(
            BenchmarkCase("resnet20", 4, 32), Length(40, 4), _PLACES
        ).argv

    def test_all_train_on_as_many_examples(self):
        ours = self._argv("towers")
        self.assertContainsSubset(
            ["--local_cluster=ps:1,worker:2", "--num_gpus=2", "--batch_size=32"], ours
        )
        self.assertContainsSubset(
            ["--num_gpus=4", "--batch_size=32"], self._argv("one_process")
        )
        theirs = self._argv("tf_cnn_benchmarks")
        self.assertContainsSubset(
            ["--tasks=ps:1,worker:2", "--cwd=/tf_cnn", "old_py", "--num_gpus=2"]
            + ["--batch_size=32", "--job_name={job}", "--worker_hosts={worker}"],
            theirs,
        )
        self.assertEqual(theirs[:3], ["py", "-m", "benchmarks.lib.launch_tasks"])
        self.assertContainsSubset(
            ["--tasks=worker:2", "--num_devices=4", "--strategy=multi_worker"],
            self._argv("keras"),
        )
        self.assertContainsSubset(
            ["--tasks=ps:1,worker:2", "--leader=chief", "--num_devices=4", "old_py"]
            + ["--strategy=parameter_server"],
            self._argv("keras_ps"),
        )
        for name in cluster_speed.SYSTEMS:
            self.assertIn("--num_batches=40", self._argv(name))

    def test_nothing_that_can_run_is_an_error(self):
        lacking = unittest.mock.patch.object(
            cluster_speed.machine, "versions", return_value={}
        )
        with lacking, contextlib.redirect_stdout(io.StringIO()) as said:
            self.assertEqual(cluster_speed.main(["--systems=towers"]), 2)
        self.assertRegex(
            said.getvalue(), "^towers is left out: .* has no tensorflow\n$"
        )

    def test_ratios_are_of_the_same_round(self):
        runs = [_run(1, "towers", 100.0), _run(1, "one_process", 200.0)]
        runs += [_run(2, "towers", 300.0), _run(2, "one_process", 200.0)]
        runs += [_run(1, "keras", None), _run(2, "keras", 100.0)]
        ratios = cluster_speed.summary(runs)
        self.assertEqual(ratios["one_process"]["ratio"], (1.0, 0.5, 1.5))
        self.assertEqual(ratios["keras"]["ratio"], (3.0, 3.0, 3.0))
        self.assertNotIn("tf_cnn_benchmarks", ratios)
        lines = cluster_speed.report(runs)
        self.assertEqual(lines[2].split()[:3], ["towers", "200", "[100,"], lines)

    def test_a_failure_is_kept(self):
        options = argparse.Namespace(
            rounds=2,
            num_batches=10,
            timeout=9,
            case=BenchmarkCase("lenet", 4, 8),
            out=None,
        )
        finished = process.Finished(1, [(0.0, "out of luck")], 1.0)
        with unittest.mock.patch.object(
            cluster_speed.process, "run", return_value=finished
        ):
            runs = cluster_speed.measure(options, ["towers", "keras"], _PLACES)
        self.assertEqual(
            [(run["round"], run["system"], run["failure"]) for run in runs],
            [(n, s, "out of luck") for n in (1, 2) for s in ("towers", "keras")],
        )

    def test_towers_are_shared_by_two_workers(self):
        with self.assertRaises(SystemExit):
            cluster_speed.parse(["--case=lenet:3x8"])
