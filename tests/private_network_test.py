"""A port inside is out of reach, and one outside too; the user stays who they are."""

import os
import socket
import subprocess
import sys

from absl.testing import absltest

import towers

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(towers.__file__)))

# Enters, listens, says where, connects to itself, says who it is, waits.
_INSIDE = """
import os, socket, sys
from towers import private_network
try:
    private_network.enter()
except OSError as error:
    sys.exit(f"not allowed: {error}")
server = socket.create_server(("0.0.0.0", 0))
socket.create_connection(("127.0.0.1", server.getsockname()[1])).close()
print(server.getsockname()[1], private_network.is_private(), os.getuid(), flush=True)
outside = socket.socket()
print(outside.connect_ex(("127.0.0.1", int(sys.argv[1]))), flush=True)
sys.stdin.read()
"""


class PrivateNetworkTest(absltest.TestCase):
    def _inside(self, port: int, **options) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, "-c", _INSIDE, str(port)],
            env={**os.environ, "PYTHONPATH": _ROOT},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )
        self.addCleanup(process.communicate)
        return process

    def test_nothing_comes_in_or_goes_out(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            process = self._inside(server.getsockname()[1])
            words = process.stdout.readline().split()
            if not words:
                self.skipTest(process.stderr.read())
            port, private, user = words
            self.assertEqual((private, int(user)), ("True", os.getuid()))
            self.assertNotEqual(int(process.stdout.readline()), 0)  # refused
            for address in ("127.0.0.1", socket.gethostname()):
                with self.assertRaises(OSError):
                    socket.create_connection((address, int(port)), 5)


if __name__ == "__main__":
    absltest.main()
