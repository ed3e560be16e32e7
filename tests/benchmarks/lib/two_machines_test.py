"""Tasks on two machines find each other through the tunnel, and only there."""

import sys

from absl.testing import absltest

from benchmarks.lib import process
from tests.processes import machines

# The ps sends each client the port that the client came from; the worker is a client.
_TASK = """
import socket, sys, threading, time
job, ps = sys.argv[1:]
def serve(port):
    with socket.create_server(("127.0.0.1", port)) as server:
        while True:
            connection, _ = server.accept()
            with connection:
                connection.sendall(f"{port}".encode())
def ask(host, port):
    with socket.create_connection((host, port), 5) as connection:
        return connection.recv(9).decode()
port = int(ps.split(":")[1])
if job == "ps":
    threading.Thread(target=serve, args=(port,)).start()
    serve(4000)
print(ask("127.0.0.1", port), ask("127.0.0.1", 4000), flush=True)
try:
    print(ask("10.77.0.1", port))
except OSError as error:
    print("refused")
sys.exit(7)
"""


class TwoMachinesTest(absltest.TestCase):
    def _run(self, *flags: str) -> process.Finished:
        command = [sys.executable, "-m", "benchmarks.lib.two_machines", *flags, "--"]
        task = [sys.executable, "-c", _TASK, "{job}", "{ps}"]
        return process.run(process.Command([*command, *task]), timeout=120)

    def test_the_worker_reaches_the_ps_through_the_tunnel(self):
        machines.needed().end()
        finished = self._run("--tasks=ps:1,worker:1", "--port=4000")
        said = [line for _, line in finished.lines]
        self.assertEqual(said, ["2222 4000", "refused"])
        self.assertEqual(finished.status, 7)
