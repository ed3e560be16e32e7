"""Between-graph replication in real processes, as users start it.

Each worker is a client; the results are those of one tower on the joined batch.
"""

import os
import signal

import models
from tests import digit_runs, in_process_cluster, trainer
from tests.processes import forked_cluster, programs

_TRAINING = 1442  # examples of the digits
_FLAGS = {
    "model": "lenet",
    "batch_size": 8,
    "num_warmup_batches": 0,
    "init_learning_rate": 0.01,
    "save_model_steps": 5,
}

# Starts the tasks of a TFJob, which differ in TF_CONFIG only; tells how each ended.
_JOB = """
import json, sys
from tests.processes import manual_tasks
from towers.cluster import local_cluster

flags = json.loads(sys.argv[1])[0]
jobs = ("ps", "worker", "chief")
hosts = dict(zip(jobs, [[address] for address in local_cluster.free_addresses(3)]))

def start(kind):
    task = {"type": kind, "index": 0}
    config = {"cluster": hosts, "task": task, "environment": "cloud"}
    return manual_tasks.Task(flags, {"TF_CONFIG": json.dumps(config)})

started = {kind: start(kind) for kind in (*jobs, "evaluator")}
try:
    found = {kind: (task.end(), task.lines) for kind, task in started.items()}
finally:
    for task in started.values():
        task.process.kill()
print(json.dumps(found))
"""


class BetweenGraphTest(digit_runs.Runs):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        programs.need_private_networks()

    def _flags(self, *flags: str, **length: float) -> list[str]:
        common = {**_FLAGS, "replication": "between_graph", "num_gpus": 2}
        common |= {"train_dir": self.directory, **length}
        return [*(f"--{name}={value}" for name, value in common.items()), *flags]

    def _train(self, *flags: str, **length: float) -> list[str]:
        """On two ps tasks and two workers; returns the chief's lines."""
        flags = self._flags(*flags, "--partition_bytes=20000", **length)
        ended = in_process_cluster.ended(
            *flags, data_dir=digit_runs.data_dir(), between=True, ps=2
        )
        self.assertLen(ended, 4)
        return ended["worker 0"]

    def _assert_equals_one_tower(self, **length: float) -> None:
        values = self.values()
        self.directory = os.path.join(self.create_tempdir(), "alone")
        settings = {**_FLAGS, "batch_size": 32, "train_dir": self.directory}
        self.run_flags(get_model=models.get, **length, **settings)
        self.assertLess(trainer.difference(self.values(), values), 1e-5)

    def test_replicas_of_parts_take_the_steps_of_one_tower(self):
        mode = "--variable_update=distributed_replicated"
        self._train(mode, "--check_mean", num_batches=20)
        self._assert_equals_one_tower(num_batches=20)

    def test_a_short_last_batch_is_that_of_one_tower(self):
        # Of the last batch the first worker's towers have 8 and 3 examples, the
        # second's none.
        whole, last = 4, 11
        length = {"num_epochs": (whole * 32 + last) / _TRAINING, "eval_at_end": False}
        self._train(**length)
        values = self.values()
        self.assertEqual(values["global_step"], whole + 1)
        self.assertEqual(values["position"], whole * 32 + last)
        self._assert_equals_one_tower(**length)

    def test_asynchronous_clients_make_as_many_updates_as_the_one_graph(self):
        lines = self._train(
            "--cross_replica_sync=false", "--check_mean", num_batches=10
        )
        (line,) = [line for line in lines if line.startswith("Staleness of ")]
        self.assertGreater(int(line.split()[2]), 30)
        values = self.values()
        self.assertEqual((values["global_step"], values["position"]), (40, 40 * 8))
        self.assertEqual([5, 10, 15, 20, 25, 30, 35, 40][-5:], self.steps())

    def test_tf_config_says_who_is_who(self):
        ends = in_process_cluster.manual_tasks(
            _JOB, self._flags(num_batches=20), data_dir=digit_runs.data_dir()
        )
        for kind, (status, lines) in ends.items():
            self.assertEqual(status, 0, (kind, lines))
        said = "\n".join(ends["worker"][1])
        self.assertRegex(said, "worker 0 follows chief 0 at 127.0.0.1:")
        self.assertIn("2 clients, 2 towers each", "\n".join(ends["chief"][1]))
        self.assertNotEmpty(digit_runs.accuracies(ends["evaluator"][1]))
        self._assert_equals_one_tower(num_batches=20)

    def test_a_killed_worker_is_named_at_once_and_loses_nothing(self):
        """Though nobody has a call to it that fails; the chief is killed, too."""
        cluster = forked_cluster.ForkedCluster(
            *self._flags("--stall_secs=600", num_batches=60),
            data_dir=digit_runs.data_dir(),
        )
        self.addCleanup(cluster.kill)
        cluster.line("^Initializing graph")
        worker = cluster.pid("worker", 1)
        cluster.line(r"^10\t")
        os.kill(worker, signal.SIGKILL)
        cluster.line(r"^Lost worker 1 at 127.0.0.1:\d+: ", seconds=20)
        cluster.line("^Resuming from ")
        os.kill(cluster.pid("worker", 0), signal.SIGKILL)
        cluster.line("^worker 0 was killed by SIGKILL; it is started again")
        cluster.line("^Resuming from ")
        self.assertEqual(cluster.end(), 0, cluster.lines[-20:])
        self.assertEmpty(cluster.left())
        self._assert_equals_one_tower(num_batches=60)
