"""Tasks are killed while steps do not wait for the slowest worker."""

import os
import signal

import numpy as np
from absl.testing import parameterized

from tests import digit_runs, trainer
from tests.processes import forked_cluster, programs
from towers.membership_log import FILE, MembershipLog

# Enough for the run to last until the last task is killed, also on a busy machine.
_EPOCHS = 3
_EXAMPLES = _EPOCHS * 1442  # of the digits
_WORKERS, _BATCH = 4, 8
_FLAGS = (
    "--model=tests.digit_runs:small_model",
    "--num_gpus=1",
    f"--batch_size={_BATCH}",
    f"--num_epochs={_EPOCHS}",
    "--num_warmup_batches=0",
    "--eval_at_end=false",
    "--replication=between_graph",
    "--backup_workers=1",
    "--save_model_steps=10",
    "--stall_secs=5",
)


class BackupWorkersKillsTest(digit_runs.Runs):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        programs.need_private_networks()

    @parameterized.parameters("skip", "replay")
    def test_a_run_whose_tasks_are_killed_can_be_repeated(self, dropped):
        """A worker, the worker that updates, and the ps, one after the other."""
        killed = self._start("killed", f"--dropped_examples={dropped}")
        killed.line(r"^20\t")  # The checkpoint of step 10 has been written.
        for name in (("worker", 2), ("worker", 0), ("ps", 0)):
            os.kill(killed.pid(*name), signal.SIGKILL)
            killed.line("^Resuming from ")
            killed.line(r"^\d+\timages/sec")
        self.assertEqual(killed.end(), 0, killed.lines[-20:])
        values = self.values(name="killed")
        path = os.path.join(self.directory, "killed", FILE)
        self._assert_each_example_counts_once(values, MembershipLog.read(path))
        again = self._start(
            "again", f"--dropped_examples={dropped}", f"--replay_membership={path}"
        )
        self.assertEqual(again.end(), 0, again.lines[-20:])
        trainer.assert_same_bits(values, self.values(name="again"))

    def _start(self, folder: str, *flags: str) -> forked_cluster.ForkedCluster:
        cluster = forked_cluster.ForkedCluster(
            *_FLAGS,
            f"--train_dir={self.directory}/{folder}",
            *flags,
            data_dir=digit_runs.data_dir(),
            tasks=f"ps:1,worker:{_WORKERS}",
        )
        self.addCleanup(cluster.kill)
        return cluster

    def _assert_each_example_counts_once(self, values, log: MembershipLog) -> None:
        """As used or, with `skip`, as left out, in the steps that were not lost."""
        self.assertEqual(values["position"], _EXAMPLES)
        used = np.zeros([int(values["global_step"]), _WORKERS], bool)
        for step, row in enumerate(used):
            row[list(log.workers(step))] = True
        self.assertLess(used.sum(), used.size)
        first = np.arange(_WORKERS) * _BATCH  # example of each
        if "skipped_examples" in values:
            begins = np.arange(len(used))[:, None] * _BATCH * _WORKERS + first
            left = np.clip(_EXAMPLES - begins, 0, _BATCH)
            self.assertEqual(values["skipped_examples"], left[~used].sum())
        else:
            turns = -(-(_EXAMPLES - first) // (_BATCH * _WORKERS))
            # Worker 0 updates, also when it has no more examples.
            self.assertEqual(used.sum(0)[1:].tolist(), turns[1:].tolist())
