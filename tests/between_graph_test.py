"""Between-graph replication in real processes, as users start it.

Each worker is a client; the results are those of one tower on the joined batch.
"""

import os
import signal

from absl.testing import absltest

import models
from benchmarks import launched
from tests import runs, trainer

_FLAGS = {
    "model": "lenet",
    "batch_size": 8,
    "num_warmup_batches": 0,
    "init_learning_rate": 0.01,
    "save_model_steps": 5,
}


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
        tasks = self._launch(*flags, tasks="ps:2,worker:2", num_batches=20)
        self.assertEqual(tasks.end(), 0, tasks.lines)
        self.assertEmpty(tasks.left())
        self._assert_equals_one_tower(20)

    def test_asynchronous_clients_make_as_many_updates_as_the_one_graph(self):
        tasks = self._launch("--cross_replica_sync=false", num_batches=10)
        self.assertEqual(tasks.end(), 0, tasks.lines)
        self.assertEmpty(tasks.left())
        (line,) = [line for line in tasks.lines if line.startswith("Staleness of ")]
        self.assertGreater(int(line.split()[2]), 30)
        found = self.values()
        self.assertEqual((found["global_step"], found["position"]), (40, 40 * 8))
        self.assertEqual([5, 10, 15, 20, 25, 30, 35, 40][-5:], self.steps())

    def test_a_killed_worker_is_named_and_loses_nothing(self):
        tasks = self._launch("--stall_secs=2", num_batches=60)
        tasks.line("^Initializing graph")
        worker = tasks.pid("worker", 1)
        tasks.line(r"^10\t")
        os.kill(worker, signal.SIGKILL)
        tasks.line(r"^No step for 2 s: worker 1 at 127.0.0.1:\d+: ")
        tasks.line("Resuming from ")
        self.assertEqual(tasks.end(), 0, tasks.lines[-20:])
        self.assertEmpty(tasks.left())
        self._assert_equals_one_tower(60)


if __name__ == "__main__":
    absltest.main()
