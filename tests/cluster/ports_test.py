"""A port that listens, one that does not, and one whose process ends."""

import signal
import socket
import subprocess
import sys
import threading
import time
from unittest import mock

from absl.testing import parameterized

from tests.processes.programs import PATIENCE
from towers.cluster import ports

# Sends the first byte to each client, as TensorFlow's server does.
_TASK = """
import socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
held = []
while True:
    held.append(server.accept()[0])
    held[-1].sendall(b"settings")
"""


class PortsTest(parameterized.TestCase):
    def _task(self) -> tuple[subprocess.Popen, str]:
        task = subprocess.Popen(
            [sys.executable, "-c", _TASK], stdout=subprocess.PIPE, text=True
        )
        self.addCleanup(task.kill)
        return task, f"127.0.0.1:{task.stdout.readline().strip()}"

    def test_says_why_nobody_is_there(self):
        task, address = self._task()
        self.assertIsNone(ports.refusal(address))
        task.kill()
        task.wait()
        self.assertEqual(ports.refusal(address), "Connection refused")

    def test_a_tunnel_with_nobody_behind_it(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            closing = threading.Thread(target=lambda: server.accept()[0].close())
            closing.start()
            address = f"127.0.0.1:{server.getsockname()[1]}"
            closed = "the connection was closed at once"
            self.assertEqual(ports.refusal(address), closed)
            closing.join()

    def test_a_connection_to_itself_is_none(self):
        connected = socket.socket()
        connected.bind(("127.0.0.1", 0))
        # by chance it happens once in 14,000 times
        connected.connect(connected.getsockname())
        host, port = connected.getsockname()
        with mock.patch.object(socket, "create_connection", lambda *_: connected):
            self.assertEqual(ports.refusal(f"{host}:{port}"), "Connection refused")
        socket.create_server((host, port)).close()

    def test_says_why_a_port_cannot_be_had(self):
        with socket.create_server(("", 0)) as server:
            address = f"any:{server.getsockname()[1]}"
            self.assertEqual(ports.obstacle(address), "Address already in use")
        self.assertIsNone(ports.obstacle(address))

    def test_waits_no_longer_than_it_is_to(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            connect = mock.Mock(wraps=socket.create_connection)
            with mock.patch.object(socket, "create_connection", connect):
                port = server.getsockname()[1]
                self.assertIsNone(ports.refusal(f"127.0.0.1:{port}", 0.2))
        # The timeout also holds for the first byte, which does not come.
        connect.assert_called_once_with(("127.0.0.1", port), 0.1)

    def _breaks(self, lines: ports.Lifelines, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while not (broken := lines.broken()) and time.monotonic() < until:
            time.sleep(0.01)
        return broken

    def test_a_line_breaks_when_a_process_is_killed_or_does_not_come(self):
        tasks = [self._task() for _ in range(2)]
        with ports.Lifelines([address for _, address in tasks]) as lines:
            self.assertFalse(self._breaks(lines, 1))
            tasks[1][0].send_signal(signal.SIGKILL)
            self.assertTrue(self._breaks(lines, PATIENCE))
        with ports.Lifelines([tasks[1][1]]) as lines:
            self.assertTrue(self._breaks(lines, PATIENCE))

    def test_a_line_that_the_task_closes_is_made_again(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(PATIENCE)
            address = f"127.0.0.1:{server.getsockname()[1]}"
            with ports.Lifelines([address]) as lines:
                server.accept()[0].close()
                # it connects again to see whether the task is still there
                with server.accept()[0] as asked:
                    asked.sendall(b"settings")
                with server.accept()[0] as again:
                    self.assertFalse(self._breaks(lines, 0.5))
                    again.sendall(b"settings")
                self.assertFalse(lines.broken())

    @parameterized.parameters(
        ("localhost", "is no host:port"),
        ("localhost:http", "is no host:port"),
        ("nobody.invalid:1", r"cannot be reached \([A-Z]"),
    )
    def test_a_controller_without_an_address(self, address, words):
        with self.assertRaisesRegex(ValueError, f"join={address}: {words}"):
            ports.own_address(address)
