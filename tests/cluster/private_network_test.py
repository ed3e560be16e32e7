"""Ports of a private network are isolated both ways; the user stays the same."""

import ctypes
import errno
import itertools
import os
import socket
import subprocess
import sys
from unittest import mock

from absl.testing import parameterized

from tests.processes.programs import ROOT
from towers.cluster import private_network

# Enters the network, listens, prints the port, connects to itself, prints its user,
# waits.
_INSIDE = """
import os, socket, sys
from towers.cluster import private_network
try:
    private_network.enter()
except OSError as error:
    sys.exit(f"not allowed: {error}")
server = socket.create_server(("0.0.0.0", 0))
socket.create_connection(("127.0.0.1", server.getsockname()[1])).close()
(name, addresses), = private_network.interfaces().items()
print(server.getsockname()[1], os.getuid(), name, *addresses, flush=True)
outside = socket.socket()
print(outside.connect_ex(("127.0.0.1", int(sys.argv[1]))), flush=True)
sys.stdin.read()
"""


class PrivateNetworkTest(parameterized.TestCase):
    def _inside(self, port: int, **options) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, "-c", _INSIDE, str(port)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
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
            port, *rest = words
            self.assertEqual(rest[:3], [str(os.getuid()), "lo", "127.0.0.1"])
            # the connection was refused
            self.assertNotEqual(int(process.stdout.readline()), 0)
            for address in ("127.0.0.1", socket.gethostname()):
                with self.assertRaises(OSError):
                    socket.create_connection((address, int(port)), 5)

    @parameterized.parameters(
        (sys, "platform", "darwin"), (private_network, "fcntl", None)
    )
    def test_only_linux_has_them(self, where, name, value):
        with mock.patch.object(where, name, value):
            with self.assertRaisesRegex(OSError, "^only Linux has them$"):
                private_network.enter()
            with mock.patch.object(socket, "gethostbyname_ex") as named:
                named.return_value = ("me", [], ["10.0.0.7"])
                interfaces = private_network.interfaces()
                self.assertEqual(interfaces, {socket.gethostname(): ["10.0.0.7"]})
                named.side_effect = socket.gaierror
                interfaces = private_network.interfaces()
                self.assertEqual(interfaces, {socket.gethostname(): ["0.0.0.0"]})

    @mock.patch.object(private_network.ctypes, "CDLL")
    def test_a_limit_on_namespaces_is_no_full_disk(self, library):
        library.return_value.unshare.return_value = -1
        with mock.patch.object(ctypes, "get_errno", return_value=errno.ENOSPC):
            with self.assertRaisesRegex(OSError, "no more namespaces are allowed"):
                private_network.enter()

    def test_names_every_interface(self):
        interfaces = private_network.interfaces()
        self.assertCountEqual(interfaces, [name for _, name in socket.if_nameindex()])
        self.assertEqual(interfaces["lo"][0], "127.0.0.1")
        for address in itertools.chain(*interfaces.values()):
            kind = socket.AF_INET6 if ":" in address else socket.AF_INET
            # such an address needs the name of its interface
            if address.startswith("fe80"):
                continue
            with socket.socket(kind, socket.SOCK_STREAM) as listener:
                listener.bind((address, 0))
