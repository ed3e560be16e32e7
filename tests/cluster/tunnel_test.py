"""A cluster on two machines, here network namespaces, through `deploy/tunnel.sh`."""

import os
import pathlib
import subprocess
import sys

from tests import digit_runs, trainer
from tests.processes import machines, programs
from tests.processes.machines import FIRST, SECOND
from tests.processes.programs import ROOT

# Port of each task -> the machine that it runs on.
_CONTROLLER, _PS, _WORKER_0, _WORKER_1 = 2222, 2223, 2224, 2225
_TASKS = {_CONTROLLER: FIRST, _PS: FIRST, _WORKER_0: SECOND, _WORKER_1: SECOND}
_FLAGS = {
    "model": "tests.digit_runs:small_model",
    "num_gpus": 1,
    "num_batches": 12,
    "num_warmup_batches": 0,
    "save_model_steps": 12,
}

# Writes all packets of an interface into a file, until it is ended.
_LISTEN = """
import socket, sys
everything = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
everything.bind((sys.argv[1], 0))
print("listening", flush=True)
with open(sys.argv[2], "wb", buffering=0) as file:
    while True:
        file.write(everything.recv(2**17))
"""

# Connects with the certificate in a folder, or with none, and prints the outcome.
_CALL = """
import socket, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[3] + "/authority.pem")
if sys.argv[4:]:
    context.load_cert_chain(sys.argv[4] + "/own.pem", sys.argv[4] + "/own.key")
try:
    plain = socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)
    with context.wrap_socket(plain, server_hostname=sys.argv[1]) as connection:
        print("answered", len(connection.recv(9)))
except OSError as error:
    print("refused", error)
"""

_CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 2)
    print("connected")
except OSError as error:
    print("refused", error)
"""


class TunnelTest(digit_runs.Runs):
    def setUp(self):
        super().setUp()
        self.machines = machines.needed()
        self.addCleanup(self.machines.end)
        self.keys = os.path.join(self.create_tempdir(), "keys")

    def _python(self, address: str, program: str, *arguments: str) -> str:
        return self.machines.run(address, sys.executable, "-c", program, *arguments)

    def _listen(self, interface: str) -> str:
        path = os.path.join(self.create_tempdir(), interface)
        listener = self.machines.start(
            FIRST, sys.executable, "-c", _LISTEN, interface, path
        )
        self.assertEqual(listener.stdout.readline(), "listening\n")
        return path

    def _task(self, job: str, index: int, port: int) -> subprocess.Popen:
        def at(*ports: int) -> str:
            return ",".join(f"127.0.0.1:{port}" for port in ports)

        flags = {
            **_FLAGS,
            "train_dir": self.directory,
            "job_name": job,
            "task_index": index,
            "controller_host": at(_CONTROLLER),
            "ps_hosts": at(_PS),
            "worker_hosts": at(_WORKER_0, _WORKER_1),
            "device": "cpu",
        }
        return self.machines.start(
            _TASKS[port],
            *(sys.executable, "-m", "towers.train"),
            *(f"--{name}={value}" for name, value in flags.items()),
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "TFDS_DATA_DIR": digit_runs.data_dir(),
                "TF_CPP_MIN_LOG_LEVEL": "3",
                "CUDA_VISIBLE_DEVICES": "",
            },
        )

    def test_trains_and_nobody_else_reads_or_reaches_it(self):
        alone = {**_FLAGS, "num_gpus": 2}
        self.run_flags(**alone, train_dir=self.directory)
        wanted = self.values()
        self.directory += "_through_the_tunnel"
        self.machines.start_tunnel(self.keys, _TASKS)
        inside, between = self._listen("lo"), self._listen("wire")
        serving = [
            self._task("ps", 0, _PS),
            self._task("worker", 0, _WORKER_0),
            self._task("worker", 1, _WORKER_1),
        ]
        for process in serving[1:]:
            said = iter(process.stdout.readline, "")
            self.assertTrue(any(" serves at " in line for line in said))
        self._check_ports()
        controller = self._task("controller", 0, _CONTROLLER)
        said, _ = controller.communicate(timeout=programs.PATIENCE)
        self.assertEqual(controller.returncode, 0, said)
        for process in serving:
            self.assertEqual(process.wait(programs.PATIENCE), 0)
        self.assertLess(trainer.difference(wanted, self.values()), 1e-5)
        sent = sum(value.nbytes for value in wanted.values() if value.ndim)
        for path, readable in ((inside, True), (between, False)):
            passed = pathlib.Path(path).read_bytes()
            self.assertGreater(len(passed), sent * _FLAGS["num_batches"])
            for word in (b"towers_hello", b"/job:worker/replica:0"):
                self.assertEqual(word in passed, readable, f"{word} on {path}")

    def _check_ports(self) -> None:
        """Of worker 0, seen from the other machine."""
        said = self._python(FIRST, _CONNECT, SECOND, str(_WORKER_0))
        self.assertIn("refused", said)
        said = self._python(SECOND, _CONNECT, SECOND, str(_WORKER_0))
        # the task itself accepts, so the tunnel refused
        self.assertIn("connected", said)
        mine, tls = os.path.join(self.keys, FIRST), str(_WORKER_0 + 10000)
        self.assertIn("answered", self._python(FIRST, _CALL, SECOND, tls, mine, mine))
        self.assertIn("refused", self._python(FIRST, _CALL, SECOND, tls, mine))
        other = os.path.join(self.create_tempdir(), "keys")
        subprocess.run([machines.SCRIPT, "keys", other, FIRST], check=True)
        stolen = os.path.join(other, FIRST)  # signed by another authority
        self.assertIn("refused", self._python(FIRST, _CALL, SECOND, tls, mine, stolen))
