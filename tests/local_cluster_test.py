"""A local cluster as users start it: equal results, no open port, nothing left."""

import os
import re
import signal
import socket
import subprocess
import sys
from unittest import mock

from absl.testing import absltest

from benchmarks import launched
from tests import runs, trainer
from towers import local_cluster

_LAST_STEP = 12
_FLAGS = {
    "model": "tests.runs:small_model",
    "num_warmup_batches": 0,
    "save_model_steps": 4,
    "eval_at_end": True,
}


class LocalClusterTest(runs.Runs):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not launched.have_private_networks():
            raise absltest.SkipTest("this system has no private networks")

    def _launch(self, *, num_batches: int, tasks: str) -> launched.Launched:
        common = [f"--{name}={value}" for name, value in _FLAGS.items()]
        common += [f"--train_dir={self.directory}", f"--num_batches={num_batches}"]
        cluster = launched.Launched(
            *common, "--num_gpus=2", data_dir=runs.data_dir(), tasks=tasks
        )
        self.addCleanup(cluster.kill)
        return cluster

    def test_trains_as_this_process_does(self):
        cluster = self._launch(num_batches=_LAST_STEP, tasks="ps:1,worker:2")
        (port,) = re.findall(r":(\d+)\.$", cluster.line(r"worker 1 serves at"))
        for job, index in (("ps", 0), ("worker", 0), ("worker", 1), ("controller", 0)):
            cluster.pid(job, index)
        with self.assertRaises(OSError):  # the network is not this one
            socket.create_connection(("127.0.0.1", int(port)), 5)
        self.assertEqual(cluster.end(), 0, cluster.lines)
        self.assertEmpty(cluster.left())
        theirs, evaluated = self.values(), runs.accuracies(cluster.lines)

        self.directory = os.path.join(self.create_tempdir(), "alone")
        lines = self.run_flags(
            **_FLAGS, num_gpus=4, train_dir=self.directory, num_batches=_LAST_STEP
        )
        self.assertLess(trainer.difference(self.values(), theirs), 1e-5)
        self.assertEqual(evaluated, runs.accuracies(lines))

    def test_nothing_outlives_the_launcher(self):
        cluster = self._launch(num_batches=10**6, tasks="worker:1")
        cluster.line("images/sec")
        cluster.pid("worker")
        cluster.process.kill()
        self.assertEqual(cluster.end(), -signal.SIGKILL)
        self.assertEmpty(cluster.left())


class RefusalTest(absltest.TestCase):
    def _check(self, status: int, text: str) -> None:
        self.assertEqual(status, 2, text)
        self.assertRegex(text, "^error: --local_cluster: .*--allow_open_ports")
        self.assertNotIn("Traceback", text)

    def test_without_a_private_network_it_takes_a_flag(self):
        def enter():
            raise PermissionError(1, "Operation not permitted")

        with mock.patch.object(local_cluster.private_network, "enter", enter):
            with mock.patch("sys.stderr") as stderr:
                status = local_cluster.main(["", '{"private": true}'])
        text = "".join(call.args[0] for call in stderr.write.call_args_list)
        self._check(status, text)
        self.assertIn("not permitted", text)

    def test_where_the_kernel_gives_no_more_networks(self):
        limit = "echo 0 > /proc/sys/user/max_net_namespaces"
        inside = ["unshare", "--user", "--map-root-user", "sh", "-c"]
        try:
            subprocess.run([*inside, limit], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            self.skipTest(f"this system does not let us forbid networks: {error}")
        found = subprocess.run(
            [*inside, f'{limit}; exec "$0" "$@"']
            + [sys.executable, "-m", "towers.local_cluster", '{"private": true}'],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
        )
        self._check(found.returncode, found.stderr)


if __name__ == "__main__":
    absltest.main()
