"""`remote_task`, with a driver that only speaks its protocol."""

import json
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
from unittest import mock

from absl.testing import absltest

from towers.cluster import remote_task

# In the place of `python -m towers.train`.
_PROGRAM = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
print("begun", os.environ["CUDA_VISIBLE_DEVICES"], *sys.argv[1:], flush=True)
if sys.argv[1].isdigit():
    sys.exit(int(sys.argv[1]))
time.sleep(60)
"""


class RemoteTaskTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        program = self.create_tempfile("program.py", _PROGRAM).full_path
        patch = mock.patch.object(
            remote_task,
            "train_command",
            lambda flags: [sys.executable, program, *flags],
        )
        patch.start()
        self.addCleanup(patch.stop)
        server = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(server.close)
        where = remote_task.Invitation("127.0.0.1", server.getsockname()[1], "secret")
        self.result = []
        self.thread = threading.Thread(target=self._run, args=(where,), daemon=True)
        self.thread.start()
        self.socket, _ = server.accept()
        self.addCleanup(self.socket.close)
        self.socket.settimeout(60)
        self.lines = self.socket.makefile("r")
        self.hello = self.get()

    def _run(self, where):
        try:
            self.result.append(remote_task.run(where, 2, host="here", gpus="0,3"))
        except ConnectionError as error:
            self.result.append(error)

    def send(self, **message):
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def get(self):
        return json.loads(self.lines.readline())

    def ended(self):
        self.thread.join(60)
        return self.result[0]

    def test_it_says_who_and_where_it_is(self):
        port = self.hello.pop("port")
        self.assertEqual(self.hello, {"token": "secret", "rank": 2, "host": "here"})
        socket.create_server(("", port)).close()  # the port is free

    def test_lines_and_status(self):
        self.send(flags=["3", "x"], attempt=5)
        self.assertEqual(self.get(), {"line": "begun 0,3 3 x"})
        self.assertEqual(self.get(), {"status": 3, "attempt": 5})
        self.send(end=3)
        self.assertEqual(self.ended(), 3)

    def test_a_signal(self):
        self.send(flags=["stay"], attempt=1)
        self.get()
        self.send(signal=signal.SIGTERM)
        self.assertEqual(self.get(), {"status": 143, "attempt": 1})

    def test_other_flags_replace_the_process(self):
        self.send(flags=["stay"], attempt=1)
        self.get()
        self.send(flags=["stay", "2"], attempt=2)
        messages = [self.get(), self.get()]
        self.assertCountEqual(
            messages,
            [{"status": -signal.SIGKILL, "attempt": 1}, {"line": "begun 0,3 stay 2"}],
        )

    def test_without_a_driver_nothing_runs_on(self):
        self.send(flags=["stay"], attempt=1)
        self.get()
        self.socket.shutdown(socket.SHUT_RDWR)
        self.assertIsInstance(self.ended(), ConnectionError)
        self.assertEmpty(self._running())

    def _running(self) -> list[pathlib.Path]:
        """The processes of the program that still run."""
        running = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_text().split("\0")
            except OSError:
                continue
            if words[-3:-1] and words[-2] == "stay" and "program.py" in words[1]:
                running.append(path)
        return running


class LauncherTest(absltest.TestCase):
    def test_what_it_starts_ends_with_its_parent(self):
        """Also if the parent is killed."""
        words = (
            "import os, subprocess, sys\n"
            "command = ['-m', 'towers.cluster.remote_task', str(os.getpid())]\n"
            "sleep = [sys.executable, '-c', 'import time; print(1, flush=True); "
            "time.sleep(60)']\n"
            "subprocess.Popen([sys.executable, *command, *sleep])\n"
            "os.wait()\n"
        )
        parent = subprocess.Popen(
            [sys.executable, "-c", words], stdout=subprocess.PIPE, text=True
        )
        self.assertEqual(parent.stdout.readline(), "1\n")
        begun = time.monotonic()
        parent.kill()
        self.assertEqual(parent.stdout.read(), "")  # its child has closed it, too
        self.assertLess(time.monotonic() - begun, 30)
        parent.stdout.close()
        parent.wait()
