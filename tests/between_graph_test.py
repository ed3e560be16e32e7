"""Between-graph replication in real processes, as users start it.

Each worker is a client; the results are those of one tower on the joined batch.
"""

import os
import signal
from unittest import mock

from absl.testing import absltest

import models
from benchmarks import launched
from tests import runs, tasks, trainer

_FLAGS = {
    "model": "lenet",
    "batch_size": 8,
    "num_warmup_batches": 0,
    "init_learning_rate": 0.01,
    "save_model_steps": 5,
}

# Starts the tasks of a TFJob, which differ in TF_CONFIG only; tells how each ended.
_JOB = """
import json, os, subprocess, sys, tempfile, time
from benchmarks import launched
from tests import tasks
from towers.tasks import local_cluster

jobs = ("ps", "worker", "chief")
hosts = dict(zip(jobs, [[address] for address in local_cluster.free_addresses(3)]))

def start(kind):
    task = {"type": kind, "index": 0}
    config = {"cluster": hosts, "task": task, "environment": "cloud"}
    log = tempfile.TemporaryFile("w+")
    return log, subprocess.Popen(
        [sys.executable, "-m", "towers.train", *sys.argv[1:]],
        env={**os.environ, "TF_CONFIG": json.dumps(config)},
        stdout=log, stderr=subprocess.STDOUT)

def ended(log, process):
    try:
        status = process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        status = process.wait()
    log.seek(0)
    return status, log.read().splitlines()

until = time.monotonic() + 0.9 * launched.PATIENCE
started = {kind: start(kind) for kind in (*jobs, "evaluator")}
tasks.tell({kind: ended(*started[kind]) for kind in started})
"""


class BetweenGraphTest(runs.Runs):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not launched.have_private_networks():
            raise absltest.SkipTest("this system has no private networks")

    def _launch(
        self, *flags: str, num_batches: int, tasks: str = "ps:1,worker:2"
    ) -> launched.Launched:
        common = [f"--{name}={value}" for name, value in _FLAGS.items()]
        cluster = launched.Launched(
            *common,
            "--replication=between_graph",
            "--num_gpus=2",
            f"--num_batches={num_batches}",
            f"--train_dir={self.directory}",
            *flags,
            tasks=tasks,
            data_dir=runs.data_dir(),
        )
        self.addCleanup(cluster.kill)
        return cluster

    def _assert_equals_one_tower(self, num_batches: int) -> None:
        found = self.values()
        self.directory = os.path.join(self.create_tempdir(), "alone")
        settings = {**_FLAGS, "batch_size": 32, "train_dir": self.directory}
        self.run_flags(get_model=models.get, num_batches=num_batches, **settings)
        self.assertLess(trainer.difference(self.values(), found), 1e-5)

    def test_replicas_of_parts_take_the_steps_of_one_tower(self):
        flags = ("--variable_update=distributed_replicated", "--partition_bytes=20000")
        cluster = self._launch(*flags, tasks="ps:2,worker:2", num_batches=20)
        self.assertEqual(cluster.end(), 0, cluster.lines)
        self.assertEmpty(cluster.left())
        self._assert_equals_one_tower(20)

    def test_asynchronous_clients_make_as_many_updates_as_the_one_graph(self):
        flags = ("--cross_replica_sync=false", "--partition_bytes=20000")
        cluster = self._launch(*flags, tasks="ps:2,worker:2", num_batches=10)
        self.assertEqual(cluster.end(), 0, cluster.lines)
        self.assertEmpty(cluster.left())
        (line,) = [line for line in cluster.lines if line.startswith("Staleness of ")]
        self.assertGreater(int(line.split()[2]), 30)
        found = self.values()
        self.assertEqual((found["global_step"], found["position"]), (40, 40 * 8))
        self.assertEqual([5, 10, 15, 20, 25, 30, 35, 40][-5:], self.steps())

    def test_tf_config_says_who_is_who(self):
        flags = {**_FLAGS, "num_batches": 20, "num_gpus": 2}
        flags |= {"replication": "between_graph", "train_dir": self.directory}
        environment = {
            "TFDS_DATA_DIR": runs.data_dir(),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "CUDA_VISIBLE_DEVICES": "",
        }
        with mock.patch.dict(os.environ, environment):
            found = tasks.found_inside(
                _JOB, *(f"--{name}={value}" for name, value in flags.items())
            )
        for kind, (status, lines) in found.items():
            self.assertEqual(status, 0, (kind, lines))
        said = "\n".join(found["worker"][1])
        self.assertRegex(said, "worker 0 follows chief 0 at 127.0.0.1:")
        self.assertIn("2 clients, 2 towers each", "\n".join(found["chief"][1]))
        self.assertNotEmpty(runs.accuracies(found["evaluator"][1]))
        self._assert_equals_one_tower(20)

    def test_a_killed_worker_is_named_at_once_and_loses_nothing(self):
        """Though nobody has a call to it that fails."""
        cluster = self._launch("--stall_secs=600", num_batches=60)
        cluster.line("^Initializing graph")
        worker = cluster.pid("worker", 1)
        cluster.line(r"^10\t")
        os.kill(worker, signal.SIGKILL)
        cluster.line(r"^Lost worker 1 at 127.0.0.1:\d+: ", seconds=20)
        cluster.line("^Resuming from ")
        self.assertEqual(cluster.end(), 0, cluster.lines[-20:])
        self.assertEmpty(cluster.left())
        self._assert_equals_one_tower(60)


if __name__ == "__main__":
    absltest.main()
