"""Real processes, really killed or frozen: what is lost is nothing.

Many more kills, at any moment, are in `benchmarks/chaos.py`.
"""

import json
import os
import re
import signal
import subprocess
import sys
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from benchmarks import launched
from tests import runs, tasks, trainer
from towers.errors import failure
from towers.session import hooks

_EVALUATE = "--eval_during_training_at_specified_steps"
_FLAGS = ("--model=tests.runs:small_model", "--num_warmup_batches=0")
_BETWEEN = ("--replication=between_graph",)

# Tasks that are started by hand: one of them is frozen, and never wakes.
_FROZEN = """
import json, signal, sys
from tests import by_hand, tasks

(job, index), between, flags = json.loads(sys.argv[1])
cluster = by_hand.Tasks(*flags, between=between)
try:
    cluster.line(r"^30\\t")
    cluster.send((job, index), signal.SIGSTOP)
    found = cluster.end(but=(job, index))
finally:
    cluster.kill()
tasks.tell(found)
"""

# Tasks that are killed and started anew by hand: a ps task while it is waited for, a ps
# task and a worker at once, and a worker that is frozen.
_RESTARTED = """
import json, signal, sys
from tests import by_hand, tasks

between, flags = json.loads(sys.argv[1])
cluster = by_hand.Tasks(*flags, between=between)
ps, worker = ("ps", 0), ("worker", 1)

def start(*names):
    for name in names:
        cluster.start(name)
    cluster.line("^Resuming from ")
    cluster.line("images/sec")

try:
    cluster.line(r"^30\\t")
    cluster.send(ps, signal.SIGKILL)
    cluster.line("^Waiting for ps 0 at .*: nothing answers there")
    start(ps)
    cluster.send(worker, signal.SIGKILL)
    cluster.send(ps, signal.SIGKILL)
    cluster.line("^Waiting for ps 0 at .*: nothing .*; worker 1 at .*: nothing")
    start(worker, ps)
    cluster.send(worker, signal.SIGSTOP)
    cluster.line("^No step for 2 s: worker 1 at .*: it is frozen")
    cluster.send(worker, signal.SIGKILL)
    start(worker)
    cluster.send(cluster.leader, signal.SIGTERM)
    found = cluster.end()
finally:
    cluster.kill()
tasks.tell(found)
"""


class SurvivalTest(runs.Runs):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not launched.have_private_networks():
            raise absltest.SkipTest("this system has no private networks")

    def _launch(self, name: str, *flags: str, tasks: str) -> launched.Launched:
        directory = os.path.join(self.directory, name)
        cluster = launched.Launched(
            *_FLAGS,
            f"--train_dir={directory}",
            *flags,
            tasks=tasks,
            data_dir=runs.data_dir(),
        )
        self.addCleanup(cluster.kill)
        return cluster

    def _values(self, name: str, step: int) -> dict[str, np.ndarray]:
        path = os.path.join(self.directory, name, f"model.ckpt-{step}")
        reader = tf.train.load_checkpoint(path)
        return {n: reader.get_tensor(n) for n in reader.get_variable_to_shape_map()}

    def _lose_nothing(self, *flags: str, tasks: str, victims):
        """Kills tasks one after the other; returns the cluster that lost none."""
        flags = ("--num_batches=300", "--save_model_steps=10", "--num_gpus=2", *flags)
        killed, whole = (
            self._launch(name, *flags, tasks=tasks) for name in ("killed", "whole")
        )
        killed.line(r"^60\t")
        for job, index in victims:
            os.kill(killed.pid(job, index), signal.SIGKILL)
            killed.line(f"^{job} {index} was killed by SIGKILL; it is started again")
            killed.line("Resuming from ")
        for cluster in (whole, killed):
            self.assertEqual(cluster.end(), 0, cluster.lines[-20:])
            self.assertEmpty(cluster.left())
        trainer.assert_same_bits(
            self._values("whole", 300), self._values("killed", 300)
        )
        return whole

    def test_every_kind_of_task_is_killed_and_nothing_is_lost(self):
        """And the run that loses nothing is that of this process, but for rounding."""
        whole = self._lose_nothing(
            "--max_ckpts_to_keep=0",
            f"{_EVALUATE}=10",
            tasks="ps:1,worker:2",
            victims=(("worker", 1), ("ps", 0), ("controller", 0)),
        )
        alone = self.run_flags(
            model="tests.runs:small_model",
            num_gpus=4,
            num_batches=10,
            num_warmup_batches=0,
            eval_at_end=True,
            train_dir=os.path.join(self.directory, "alone"),
        )
        one, other = self._values("alone", 10), self._values("whole", 10)
        self.assertLess(trainer.difference(one, other), 1e-5)
        self.assertEqual(runs.accuracies(alone), runs.accuracies(whole.lines))

    def test_clients_with_graphs_of_their_own_lose_nothing_either(self):
        """A follower, a ps task and the chief, which is worker 0."""
        self._lose_nothing(
            *_BETWEEN,
            "--stall_secs=2",
            tasks="ps:2,worker:2",
            victims=(("worker", 1), ("ps", 0), ("worker", 0)),
        )

    def _evaluator(self, directory: str, *flags: str) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, "-m", "towers.train", *_FLAGS, "--job_name=evaluator"]
            + [f"--train_dir={directory}", *flags],
            env={
                **os.environ,
                "TFDS_DATA_DIR": runs.data_dir(),
                "TF_CPP_MIN_LOG_LEVEL": "3",
                "CUDA_VISIBLE_DEVICES": "",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(process.kill)
        return process

    def test_an_evaluator_ends_when_the_training_failed(self):
        directory = os.path.join(self.directory, "failing")
        hosts = ("--worker_hosts=127.0.0.1:9", "--controller_host=127.0.0.1:10")
        waiting = self._evaluator(directory)
        alone = self._evaluator(f"{directory}_alone", *hosts, "--wait_secs=1")
        self.assertIn("No GPU is visible", waiting.stdout.readline())
        with self.assertRaises(hooks.TrainingError) as caught:
            self.run_flags(
                train_dir=directory, num_batches=400, init_learning_rate=1e30
            )
        failure.leave(directory, str(caught.exception))
        error = waiting.communicate(timeout=launched.PATIENCE)[1]
        self.assertEqual(waiting.returncode, 1, error)
        self.assertRegex(error, "error: no more checkpoints will come: .*not finite")
        error = alone.communicate(timeout=launched.PATIENCE)[1]
        self.assertEqual(alone.returncode, 1, error)
        self.assertRegex(error, "error: no more .* no controller at .*:10 for 1 s")

    def test_a_frozen_task_is_named_and_the_run_goes_on_when_it_wakes(self):
        cluster = self._launch(
            "frozen",
            "--num_batches=1000000",
            "--save_model_steps=20",
            "--stall_secs=2",
            tasks="worker:1",
        )
        cluster.line(r"^30\t")
        pid = cluster.pid("worker")
        os.kill(pid, signal.SIGSTOP)
        cluster.line(r"^No step for 2 s: worker 0 at 127.0.0.1:\d+: .*it is frozen")
        os.kill(pid, signal.SIGCONT)
        cluster.line("Resuming from ")
        controller = cluster.pid("controller")
        os.kill(controller, signal.SIGSTOP)
        said = "no answer from the controller at 127.0.0.1:.*frozen"
        both = (rf"^\[worker 0\] worker 0: {said}", "^controller 0 is stopped and does")
        first = cluster.line("|".join(both))
        cluster.line(both[0] if re.search(both[1], first) else both[1])
        os.kill(controller, signal.SIGCONT)
        cluster.line("the controller at .* answers again")
        step = int(re.match(r"\d+", cluster.line(r"^\d+\timages/sec"))[0])
        cluster.process.send_signal(signal.SIGTERM)
        stopped = cluster.line("^Stopped by SIGTERM after step")
        self.assertGreaterEqual(int(re.search(r"step (\d+)", stopped)[1]), step)
        self.assertIn("saved to", stopped)
        self.assertEqual(cluster.end(), 0)
        self.assertEmpty(cluster.left())

    def test_a_frozen_client_or_ps_is_named_and_the_run_goes_on_when_it_wakes(self):
        flags = ("--num_batches=1000000", "--save_model_steps=20", "--stall_secs=2")
        cluster = self._launch("frozen", *flags, *_BETWEEN, tasks="ps:1,worker:2")
        cluster.line(r"^30\t")
        for job, index in (("worker", 1), ("ps", 0)):
            pid = cluster.pid(job, index)
            os.kill(pid, signal.SIGSTOP)
            # The chief's own lines have no task before them.
            cluster.line(f"^No step for 2 s: {job} {index} at .*it is frozen")
            os.kill(pid, signal.SIGCONT)
            cluster.line("^Resuming from ")
            cluster.line("images/sec")
        chief = cluster.pid("worker", 0)
        os.kill(chief, signal.SIGSTOP)
        cluster.line(r"^\[worker 1\] No step for 2 s: worker 0 at .*it is frozen")
        os.kill(chief, signal.SIGCONT)
        # The follower, too, comes back: the chief waits for its part of each step.
        step = int(re.match(r"\d+", cluster.line(r"^\d+\timages/sec"))[0])
        cluster.process.send_signal(signal.SIGTERM)
        stopped = cluster.line("^Stopped by SIGTERM after step")
        self.assertGreaterEqual(int(re.search(r"step (\d+)", stopped)[1]), step)
        self.assertEqual(cluster.end(), 0)
        self.assertEmpty(cluster.left())

    def _by_hand(self, program: str, *order, wait_secs: int):
        flags = [*_FLAGS, "--num_batches=1000000", "--save_model_steps=20"]
        flags += [f"--train_dir={self.directory}", "--stall_secs=2"]
        flags.append(f"--wait_secs={wait_secs}")
        with mock.patch.dict(os.environ, TFDS_DATA_DIR=runs.data_dir()):
            return tasks.found_inside(program, json.dumps([*order, flags]))

    @parameterized.parameters(("worker", 1), ("ps", 0), ("worker", 0))
    def test_a_client_or_ps_that_never_wakes_ends_the_run(self, job, index):
        found = self._by_hand(_FROZEN, (job, index), True, wait_secs=4)
        self.assertLen(found, 2)
        for name, (status, lines) in found.items():
            self.assertEqual(status, 1, (name, lines))
        said = "\n".join(line for _, lines in found.values() for line in lines)
        who = "no controller" if (job, index) == ("worker", 0) else f"{job} {index}"
        self.assertRegex(said, f"error: .*{who} at .*it is frozen")

    @parameterized.parameters(False, True)
    def test_tasks_that_are_started_anew_by_hand_are_taken_back(self, between):
        found = self._by_hand(_RESTARTED, between, wait_secs=100)
        self.assertLen(found, 3 if between else 4)
        for name, (status, lines) in found.items():
            self.assertEqual(status, 0, (name, lines))


if __name__ == "__main__":
    absltest.main()
