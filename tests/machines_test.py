"""Two simulated machines have addresses of their own, and can connect."""

import sys

from absl.testing import absltest

from tests.processes import machines

_CALL = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], 2222), 5) as connection:
        print(connection.recv(9).decode())
except ConnectionRefusedError:
    print("refused")
"""
_ANSWER = """
import socket
with socket.create_server(("", 2222)) as server:
    server.accept()[0].sendall(b"answered")
"""


class MachinesTest(absltest.TestCase):
    def test_a_server_is_on_one_of_them_only(self):
        both = machines.needed()
        self.addCleanup(both.end)
        both.start(machines.FIRST, sys.executable, "-c", _ANSWER)
        both.wait_for(machines.FIRST, [2222], 60)
        with self.assertRaisesRegex(TimeoutError, "10.77.0.2:2222"):
            both.wait_for(machines.SECOND, [2222], 0.1)
        answers = [
            both.run(machines.SECOND, sys.executable, "-c", _CALL, address)
            for address in (machines.SECOND, machines.FIRST)
        ]
        self.assertEqual(answers, ["refused\n", "answered\n"])
