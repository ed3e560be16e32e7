"""Connections to tasks get the kernel's time limits; others do not."""

import socket
import sys
import time

from absl.testing import absltest

from towers.cluster import connections
from towers.layout import cluster_spec


@absltest.skipUnless(sys.platform == "linux", "only Linux has these limits")
class ConnectionsTest(absltest.TestCase):
    def _pair(self) -> tuple[socket.socket, socket.socket, int]:
        """A client, what a server has accepted, and the server's port."""
        server = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(server.close)
        client = socket.create_connection(server.getsockname())
        self.addCleanup(client.close)
        accepted, _ = server.accept()
        self.addCleanup(accepted.close)
        return client, accepted, server.getsockname()[1]

    def _limits(self, connection: socket.socket) -> tuple[int, ...]:
        tcp = (socket.TCP_USER_TIMEOUT, socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL)
        values = [connection.getsockopt(socket.IPPROTO_TCP, option) for option in tcp]
        return *values, connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)

    def test_both_ends_of_a_connection_to_a_task_and_no_others(self):
        client, accepted, port = self._pair()
        other, *_ = self._pair()
        before = self._limits(other)
        with socket.socket() as unconnected, socket.socket(socket.AF_UNIX):
            limited = connections.limit_new({port}, 60.0, set())
            self.assertEqual(self._limits(unconnected), before)
        self.assertLen(limited, 2)
        for end in (client, accepted):
            self.assertEqual(self._limits(end), (60000, 20, 20, 1))
        self.assertEqual(self._limits(other), before)
        client.sendall(b"it still works")
        self.assertEqual(accepted.recv(14), b"it still works")

    def test_one_that_is_not_there_yet_is_tried_again_soon(self):
        """A host that answers nothing: the queue of this server is full."""
        with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
            clients = [socket.socket() for _ in range(3)]
            for client in clients:
                self.addCleanup(client.close)
                client.setblocking(False)
                client.connect_ex(server.getsockname())
            tries = socket.IPPROTO_TCP, socket.TCP_SYNCNT
            before = clients[-1].getsockopt(*tries)
            connections.limit_new({1}, 60.0, set())  # not of a port that matters
            self.assertEqual(clients[-1].getsockopt(*tries), before)
            connections.limit_new(None, 60.0, set())
            self.assertEqual(clients[-1].getsockopt(*tries), 1)

    def test_what_was_done_is_left_alone_and_what_is_closed_forgotten(self):
        client, accepted, port = self._pair()
        limited = connections.limit_new({port}, 60.0, set())
        self.assertEqual(connections.limit_new({port}, 9.0, limited), limited)
        self.assertEqual(self._limits(client), (60000, 20, 20, 1))
        accepted.close()
        self.assertLen(connections.limit_new({port}, 9.0, limited), 1)

    def test_the_ports_are_those_of_the_tasks(self):
        """A thread looks for connections that are made later."""
        client, _, port = self._pair()
        spec = cluster_spec.from_hosts(
            "worker", 0, ps=[f"p:{port}"], workers=["w:1"], controller=None
        )
        connections.limit(spec, 1.0)
        until = time.monotonic() + 60.0
        while self._limits(client)[0] != 1000 and time.monotonic() < until:
            time.sleep(0.05)
        self.assertEqual(self._limits(client), (1000, 1, 1, 1))
