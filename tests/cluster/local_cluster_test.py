"""A local cluster as users start it: no open port, nothing left.

What it computes is held against other runs in `survival_test`.
"""

import io
import math
import os
import re
import selectors
import signal
import site
import socket
import subprocess
import sys
import time
from unittest import mock

from absl.testing import absltest

from tests import digit_runs
from tests.processes import programs
from tests.processes.programs import ROOT
from towers.cluster import local_cluster


class LocalClusterTest(absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        programs.need_private_networks()

    def test_nothing_reaches_the_tasks_nor_outlives_the_launcher(self):
        cluster = programs.LaunchedCluster(
            f"--model={digit_runs.__file__}:small_model",  # each task finds the file
            "--num_batches=1000000",
            tasks="worker:1",
            data_dir=digit_runs.data_dir(),
        )
        self.addCleanup(cluster.kill)
        (port,) = re.findall(r":(\d+)\.$", cluster.line(r"worker 0 serves at"))
        with self.assertRaises(OSError):  # the tasks have a network of their own
            socket.create_connection(("127.0.0.1", int(port)), 5)
        cluster.pid("worker")
        cluster.pid("controller")
        cluster.process.kill()
        self.assertEqual(cluster.end(), -signal.SIGKILL)
        self.assertEmpty(cluster.left())


class EndTest(absltest.TestCase):
    def _run(
        self, controller: str, worker: str, *, sent: int = 0, status: int = 130
    ) -> local_cluster._Tasks:
        """Two commands in the place of tasks; what ran them, when it has ended."""
        order = dict(tasks={"worker": 1, "controller": 1}, stall_secs=9, wait_secs=9)
        commands = {"controller": controller, "worker": worker}
        tasks = local_cluster._Tasks(order)

        def start(name):
            command = ["sh", "-c", commands[name[0]]]
            tasks._processes[name] = subprocess.Popen(command)

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self.addCleanup(signal.signal, number, signal.getsignal(number))
        tasks._signals += [sent] if sent else []
        with (
            mock.patch.object(tasks, "_start", start),
            # A task that is given this long ends by itself, and not by SIGKILL.
            mock.patch.object(local_cluster, "_GRACE", 900.0),
            mock.patch.object(local_cluster, "_LEADER_SECONDS", 300.0),
            mock.patch.object(local_cluster, "_GRACE_AFTER_FAILURE", 0.2),
        ):
            self.assertEqual(tasks.run(), status)
        return tasks

    def test_tasks_that_nobody_sent_away_are_not_waited_for_long(self):
        tasks = self._run("exit 130", "exec sleep 300")
        self.assertEqual(tasks._processes["worker", 0].poll(), -signal.SIGKILL)

    def test_a_signal_before_there_is_a_step_is_obeyed_too(self):
        """As the one who leads does not take it yet."""
        for sent, status in ((signal.SIGTERM, 143), (signal.SIGHUP, 129)):
            with mock.patch("sys.stderr", io.StringIO()) as printed:
                tasks = self._run(*["exec sleep 300"] * 2, sent=sent, status=status)
            self.assertEqual(tasks._processes["worker", 0].poll(), -signal.SIGKILL)
            said = f"^Stopped by {sent.name}: nothing was begun; the same command .*\n$"
            self.assertRegex(printed.getvalue(), said)

    def test_a_task_that_ends_by_a_signal_is_started_again(self):
        """Though it says so itself, with 128 + the number."""
        tasks = local_cluster._Tasks(dict(tasks={"worker": 1}, max_restarts=1))
        for status, again in ((143, True), (-15, True), (1, False), (137, False)):
            tasks._restarts["worker", 0] = 0
            with (
                mock.patch.object(tasks, "_start") as started,
                mock.patch("sys.stderr", io.StringIO()) as printed,
            ):
                self.assertIs(tasks._may_go_on(("worker", 0), status), again)
            self.assertEqual(started.called, again)
            if again:
                said = "worker 0 was killed by SIGTERM; it is started again\n"
                self.assertEqual(printed.getvalue(), said)

    def test_an_echo_of_a_signal_is_none(self):
        tasks = local_cluster._Tasks(dict(tasks={"worker": 1}))
        for seconds, count in ((math.inf, 1), (0.0, 3)):
            with mock.patch.object(local_cluster, "ECHO_SECONDS", seconds):
                for _ in range(2):
                    tasks._note(signal.SIGTERM, None)
                    time.sleep(0.01)
            self.assertLen(tasks._signals, count)

    def test_a_task_that_was_sent_away_may_end_before_the_one_that_leads(self):
        with mock.patch("sys.stderr", io.StringIO()) as printed:
            self._run("sleep 0.4; exit 130", "exit 130")
        self.assertEqual(printed.getvalue(), "")


class GpusTest(absltest.TestCase):
    def test_each_worker_sees_its_own(self):
        for kind, split, visible, wanted in (
            ("cpu", 1, None, ["", ""]),
            ("gpu", 1, None, ["0,1", "2,3"]),
            ("gpu", 1, "7,5,4,1", ["7,5", "4,1"]),
            ("gpu", 2, None, ["0", "1"]),
            ("gpu", 4, None, ["0", "0"]),
        ):
            order = dict(
                tasks={"ps": 1, "worker": 2}, kind=kind, num_gpus=2, gpu_split=split
            )
            order["flags"] = []
            with mock.patch.dict(os.environ):
                os.environ.pop("CUDA_VISIBLE_DEVICES", None)
                if visible:
                    os.environ["CUDA_VISIBLE_DEVICES"] = visible
                tasks = local_cluster._Tasks(order)
                gpus = [tasks._gpus("worker", k) for k in range(2)]
                none = tasks._gpus("ps", 0)
                with mock.patch.object(subprocess, "Popen") as started:
                    tasks._start(("worker", 0))
            asked = [flag for flag in started.call_args.args[0] if "--device" in flag]
            self.assertEqual(asked, ["--device=gpu"] if kind == "gpu" else [])
            self.assertEqual([g["CUDA_VISIBLE_DEVICES"] for g in gpus], wanted)
            self.assertEqual("TF_FORCE_GPU_ALLOW_GROWTH" in gpus[0], split > 1)
            self.assertEqual(none, {"CUDA_VISIBLE_DEVICES": ""})


class KilledTest(absltest.TestCase):
    def test_says_why_a_killed_task_is_not_started_again(self):
        for sent, restarts, reason in (
            ([], 0, r"after 0 restarts \(see --max_restarts\)"),
            ([signal.SIGINT], 3, "as the run was ending"),
        ):
            tasks = local_cluster._Tasks(
                dict(tasks={"worker": 1}, max_restarts=restarts)
            )
            tasks._signals += sent
            with mock.patch("sys.stderr", io.StringIO()) as printed:
                self.assertFalse(tasks._may_go_on(("worker", 0), -signal.SIGKILL))
            said = f"^error: worker 0 was killed by SIGKILL {reason}\n$"
            self.assertRegex(printed.getvalue(), said)


class CrashedTest(absltest.TestCase):
    def test_says_what_it_was_doing(self):
        """After all that the task printed, which tells that."""
        tasks = local_cluster._Tasks(dict(tasks={"worker": 1}, max_restarts=0))
        stacks = (
            'Current thread 0x1 (most recent call first):\n  File "a.py", line 3 in f'
        )
        process = subprocess.Popen(
            ["sh", "-c", 'echo "$0"; kill -SEGV $$', stacks], stdout=subprocess.PIPE
        )
        tasks._processes["worker", 0] = process
        tasks._output.register(process.stdout, selectors.EVENT_READ, ("worker", 0))
        status = process.wait(30)
        with mock.patch("sys.stderr", io.StringIO()) as printed:
            self.assertFalse(tasks._may_go_on(("worker", 0), status))
        *_, frame, said = printed.getvalue().splitlines()
        self.assertEqual(frame, '[worker 0]   File "a.py", line 3 in f')
        self.assertEqual(
            said,
            "error: worker 0 crashed in native code (SIGSEGV, signal 11), at a.py:3, "
            "in f after 0 restarts (see --max_restarts)",
        )


class StoppedTest(absltest.TestCase):
    def test_a_stopped_task_is_named_and_at_last_killed(self):
        order = dict(tasks={"worker": 1}, max_restarts=0, stall_secs=0, wait_secs=600)
        tasks = local_cluster._Tasks(order)
        process = subprocess.Popen(["sleep", "600"])
        self.addCleanup(process.kill)
        with mock.patch("sys.stderr", io.StringIO()) as printed:
            tasks._look_at(("worker", 0), process)
            self.assertEqual(printed.getvalue(), "")
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            for _ in range(3):
                tasks._look_at(("worker", 0), process)
            self.assertRegex(
                printed.getvalue(),
                rf"^worker 0 is stopped .*kill -CONT {process.pid}\n$",
            )
        order["wait_secs"] = 0
        with mock.patch("sys.stderr", io.StringIO()):
            tasks._look_at(("worker", 0), process)
        self.assertEqual(process.wait(300), -signal.SIGKILL)


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

    def test_the_project_is_behind_what_the_user_has(self):
        root = str((ROOT / "towers/cluster/local_cluster.py").resolve().parents[2])
        with mock.patch.dict(os.environ, PYTHONPATH="/mine"):
            (mine, inherited) = local_cluster.task_environment()["PYTHONPATH"].split(
                os.pathsep
            )
            self.assertEqual((mine, inherited), ("/mine", root))
            with mock.patch.object(site, "getsitepackages", return_value=[root]):
                self.assertEqual(
                    local_cluster.task_environment()["PYTHONPATH"], "/mine"
                )

    def test_where_the_kernel_gives_no_more_networks(self):
        limit = "echo 0 > /proc/sys/user/max_net_namespaces"
        inside = ["unshare", "--user", "--map-root-user", "sh", "-c"]
        try:
            subprocess.run([*inside, limit], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            self.skipTest(f"this system does not let us forbid networks: {error}")
        finished = subprocess.run(
            [*inside, f'{limit}; exec "$0" "$@"']
            + [
                sys.executable,
                "-m",
                "towers.cluster.local_cluster",
                '{"private": true}',
            ],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
        )
        self._check(finished.returncode, finished.stderr)
