"""`remote_driver`, with tasks that only speak its protocol."""

import json
import os
import queue
import signal
import socket
import threading
import time

from absl.testing import absltest, parameterized

from towers.cluster import remote_driver
from towers.cluster.engine_flags import EngineFlags
from towers.errors import terminal

_CONTROLLER, _PS, _WORKER = range(3)


class _FakeTask:
    """A task of the driver; its process is what the test says."""

    def __init__(self, driver, rank, *, host="m", port=1, token=None):
        where = driver.invitation
        self._socket = socket.create_connection((where.host, where.port))
        self._lines = self._socket.makefile("r")
        self.attempt = 0
        token = where.token if token is None else token
        self.send(token=token, rank=rank, host=host, port=port)

    def send(self, **message):
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def get(self):
        """The next message of the driver; None when it has closed the connection."""
        self._socket.settimeout(60)
        line = self._lines.readline()
        message = json.loads(line) if line else None
        if message and "flags" in message:
            self.attempt = message["attempt"]
        return message

    def end(self, status):
        """The process of the task ends."""
        self.send(status=status, attempt=self.attempt)

    def leave(self):
        """The engine loses the task."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class RemoteDriverTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        for number in terminal.heeded():
            self.addCleanup(signal.signal, number, signal.getsignal(number))
        self.lost = ""
        self._act_ended = queue.SimpleQueue()

    def driver(self, *flags, wait_secs=600.0, **settings) -> remote_driver.Driver:
        tasks = {"ps": 1, "worker": 1}
        given = EngineFlags(tasks=tasks, flags=flags, **settings)
        return remote_driver.Driver(given, host="127.0.0.1", wait_secs=wait_secs)

    def run_driver(self, driver, act) -> int:
        """Runs the driver, here, while `act` plays the tasks in a thread."""

        def play():
            try:
                act()
                self._act_ended.put(None)
            except BaseException as error:
                self._act_ended.put(error)
                self.lost = "the test failed"  # so that the driver ends

        threading.Thread(target=play, daemon=True).start()
        status = driver.run(lambda: self.lost)
        error = self._act_ended.get(timeout=60)
        if error:
            raise error
        return status

    def all_tasks(self, driver):
        return [_FakeTask(driver, rank, port=10 + rank) for rank in range(3)]

    def test_each_task_gets_its_role_and_all_addresses(self):
        driver = self.driver("--num_gpus=2")

        def act():
            tasks = self.all_tasks(driver)
            for task, me in zip(tasks, ("controller", "ps", "worker")):
                self.assertEqual(
                    task.get()["flags"],
                    [
                        *("--shared_train_dir", "--num_gpus=2"),
                        *(f"--job_name={me}", "--task_index=0"),
                        *("--controller_host=m:10", "--ps_hosts=m:11"),
                        "--worker_hosts=m:12",
                    ],
                )
            for task in reversed(tasks):
                task.end(7 if task is tasks[_CONTROLLER] else 0)
            self.assertEqual(tasks[_PS].get(), {"end": 0})

        self.assertEqual(self.run_driver(driver, act), 7)

    def test_worker_0_leads_clients_with_graphs_of_their_own(self):
        driver = self.driver("--replication=between_graph")

        def act():
            tasks = [_FakeTask(driver, rank) for rank in range(2)]
            for task in tasks:
                self.assertNotIn("controller", str(task.get()["flags"]))
                task.end(0)

        self.assertEqual(self.run_driver(driver, act), 0)

    def test_a_task_that_comes_back_to_its_machine_has_its_old_address(self):
        driver = self.driver()

        def act():
            tasks = self.all_tasks(driver)
            flags = [task.get()["flags"] for task in tasks]
            tasks[_WORKER].leave()
            again = _FakeTask(driver, _WORKER, port=99)
            self.assertEqual(again.get()["flags"], flags[_WORKER])
            tasks[_CONTROLLER].end(0)
            self.assertEqual(tasks[_CONTROLLER].get(), {"end": 0})  # no flags before

        self.assertEqual(self.run_driver(driver, act), 0)

    def test_several_that_come_back_are_all_started(self):
        driver = self.driver()

        def act():
            tasks = self.all_tasks(driver)
            flags = [task.get()["flags"] for task in tasks]
            for task in tasks:
                task.leave()
            tasks = self.all_tasks(driver)
            self.assertEqual([task.get()["flags"] for task in tasks], flags)
            for task in tasks:
                task.end(0)

        self.assertEqual(self.run_driver(driver, act), 0)

    def test_on_another_machine_all_are_started_again(self):
        driver = self.driver()

        def act():
            tasks = self.all_tasks(driver)
            for task in tasks:
                task.get()
            tasks[_WORKER].leave()
            tasks[_WORKER] = _FakeTask(driver, _WORKER, host="other", port=99)
            for task in tasks:
                self.assertIn("--worker_hosts=other:99", task.get()["flags"])
            tasks[_PS].send(status=-9, attempt=1)  # of the process before
            for task in reversed(tasks):
                task.end(0)
            self.assertEqual(tasks[_PS].get(), {"end": 0})  # not started once more

        self.assertEqual(self.run_driver(driver, act), 0)

    def test_workers_of_an_elastic_run_join_and_may_be_lost(self):
        driver = self.driver("--elastic", max_workers=2, max_restarts=0)

        def joined(host, port):
            return [
                *("--elastic", "--job_name=worker", "--join=m:10"),
                f"--worker_hosts={host}:{port}",
            ]

        def act():
            early = _FakeTask(driver, _WORKER, port=12)
            tasks = [_FakeTask(driver, rank, port=10 + rank) for rank in range(2)]
            for task, me in zip(tasks, ("controller", "ps")):
                hosts = ["--controller_host=m:10", "--ps_hosts=m:11", "--max_workers=2"]
                me = [f"--job_name={me}", "--task_index=0"]
                given = ["--shared_train_dir", "--elastic", *me, *hosts]
                self.assertEqual(task.get()["flags"], given)
            self.assertEqual(early.get()["flags"], joined("m", 12))
            early.end(1)
            late = _FakeTask(driver, _WORKER + 1, port=13)
            self.assertEqual(late.get()["flags"], joined("m", 13))
            late.leave()
            elsewhere = _FakeTask(driver, _WORKER + 1, host="other", port=14)
            self.assertEqual(elsewhere.get()["flags"], joined("other", 14))
            tasks[_CONTROLLER].end(0)
            self.assertEqual(tasks[_PS].get(), {"end": 0})  # no flags before

        with self.short_grace():
            self.assertEqual(self.run_driver(driver, act), 0)

    @parameterized.parameters("", "wrong", 0)
    def test_without_the_token_nobody_takes_part(self, token):
        driver = self.driver()

        def act():
            stranger = _FakeTask(driver, _WORKER, token=token)
            self.assertIsNone(stranger.get())
            for task in self.all_tasks(driver):
                task.get()
                task.end(0)

        self.assertEqual(self.run_driver(driver, act), 0)

    @parameterized.parameters(b"\n", b"[]\n", b'{"rank": 9, "token": ""}\n', b"\xff\n")
    def test_words_of_a_stranger_change_nothing(self, words):
        driver = self.driver()

        def act():
            where = driver.invitation
            with socket.create_connection((where.host, where.port)) as stranger:
                stranger.sendall(words)
                stranger.settimeout(60)
                self.assertEqual(stranger.recv(1), b"")
            for task in self.all_tasks(driver):
                task.get()
                task.end(0)

        self.assertEqual(self.run_driver(driver, act), 0)

    @parameterized.parameters(-signal.SIGKILL, 128 + signal.SIGTERM)
    def test_a_killed_process_is_started_again(self, status):
        driver = self.driver(max_restarts=1)

        def act():
            tasks = self.all_tasks(driver)
            first, *_ = [task.get() for task in reversed(tasks)]
            tasks[_WORKER].end(status)
            self.assertEqual(tasks[_WORKER].get()["flags"], first["flags"])
            for task in tasks:
                task.end(0)

        self.assertEqual(self.run_driver(driver, act), 0)

    def test_not_too_often(self):
        driver = self.driver(max_restarts=0)

        def act():
            tasks = self.all_tasks(driver)
            for task in tasks:
                task.get()
            tasks[_CONTROLLER].end(-signal.SIGKILL)
            self.assertEqual(tasks[_PS].get(), {"end": 0})

        with self.short_grace():
            self.assertEqual(self.run_driver(driver, act), 128 + signal.SIGKILL)

    def short_grace(self):
        return absltest.mock.patch.object(remote_driver, "_GRACE_SECONDS", 0.5)

    def test_a_task_that_fails_ends_the_run(self):
        """Unless the leader, which may have dismissed it, ends meanwhile."""
        driver = self.driver()

        def act():
            tasks = self.all_tasks(driver)
            for task in tasks:
                task.get()
            tasks[_PS].end(1)
            self.assertEqual(tasks[_CONTROLLER].get(), {"end": 0})

        with self.short_grace():
            self.assertEqual(self.run_driver(driver, act), 1)

    def test_what_the_engine_has_lost_for_good(self):
        driver = self.driver()

        def act():
            for task in self.all_tasks(driver):
                task.get()
            self.lost = "worker 0 is lost for good"

        with self.short_grace():
            self.assertEqual(self.run_driver(driver, act), 1)

    def test_what_the_engine_does_not_start(self):
        driver = self.driver(wait_secs=0.5)
        begun = time.monotonic()
        self.assertEqual(self.run_driver(driver, lambda: None), 1)
        self.assertGreaterEqual(time.monotonic() - begun, 0.5)

    def test_a_signal_goes_to_the_leader(self):
        driver = self.driver()

        def act():
            tasks = self.all_tasks(driver)
            for task in tasks:
                task.get()
            os.kill(os.getpid(), signal.SIGTERM)
            self.assertEqual(tasks[_CONTROLLER].get(), {"signal": signal.SIGTERM})
            for task in tasks:
                task.end(128 + signal.SIGTERM)  # not a kill: nothing is started again
                self.assertIn("end", task.get())

        self.assertEqual(self.run_driver(driver, act), 128 + signal.SIGTERM)

    def test_a_second_signal_or_one_before_the_start_ends_all(self):
        for before in (True, False):
            driver = self.driver()
            handler = signal.getsignal(signal.SIGTERM)

            def act(driver=driver, before=before, handler=handler):
                tasks = [] if before else self.all_tasks(driver)
                for task in tasks:
                    task.get()
                while signal.getsignal(signal.SIGTERM) in (handler, signal.SIG_DFL):
                    time.sleep(0.01)
                os.kill(os.getpid(), signal.SIGTERM)
                if not before:
                    self.assertIn("signal", tasks[_CONTROLLER].get())
                    os.kill(os.getpid(), signal.SIGTERM)
                for task in tasks:
                    self.assertEqual(task.get(), {"end": 0})

            self.assertEqual(self.run_driver(driver, act), 128 + signal.SIGTERM)
