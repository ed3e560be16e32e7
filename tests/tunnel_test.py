"""A cluster on two machines, here network namespaces, through `deploy/tunnel.sh`."""

import os
import pathlib
import shutil
import subprocess
import sys
import time

from absl.testing import absltest

from benchmarks import launched
from tests import runs, trainer

_ROOT = pathlib.Path(__file__).absolute().parent.parent
_SCRIPT = str(_ROOT / "deploy" / "tunnel.sh")

# Address of each machine, and port of each task -> where it runs.
_FIRST, _SECOND = "10.77.0.1", "10.77.0.2"
_CONTROLLER, _PS, _WORKER_0, _WORKER_1 = 2222, 2223, 2224, 2225
_TASKS = {_CONTROLLER: _FIRST, _PS: _FIRST, _WORKER_0: _SECOND, _WORKER_1: _SECOND}
_FLAGS = {
    "model": "tests.runs:small_model",
    "num_gpus": 1,
    "num_batches": 12,
    "num_warmup_batches": 0,
    "save_model_steps": 12,
}

# Writes what passes an interface into a file, until it is ended.
_LISTEN = """
import socket, sys
everything = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
everything.bind((sys.argv[1], 0))
print("listening", flush=True)
with open(sys.argv[2], "wb", buffering=0) as file:
    while True:
        file.write(everything.recv(2**17))
"""

# Shows the certificate in a folder, or none, and says what becomes of the connection.
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


class Machines:
    """Two network namespaces and the wire between them.

    Raises:
      OSError, subprocess.CalledProcessError: the system does not allow it.
    """

    def __init__(self):
        self._started: list[subprocess.Popen] = []
        self._pids: dict[str, int] = {}
        own = os.readlink("/proc/self/ns/net")
        first = self._namespace(["unshare", "--map-root-user", "--net"], own)
        self._pids[_FIRST] = first
        inner = os.readlink(f"/proc/{first}/ns/net")
        second = [*self._enter(_FIRST), "unshare", "--net"]
        self._pids[_SECOND] = self._namespace(second, inner)
        peer = ["peer", "name", "wire", "netns", str(self._pids[_SECOND])]
        self.run(_FIRST, "ip", "link", "add", "wire", "type", "veth", *peer)
        for address in (_FIRST, _SECOND):
            self.run(address, "ip", "address", "add", f"{address}/24", "dev", "wire")
            for interface in ("wire", "lo"):
                self.run(address, "ip", "link", "set", interface, "up")

    def _namespace(self, command: list[str], before: str) -> int:
        """A process that stays in a new one."""
        process = subprocess.Popen(
            [*command, "sleep", "infinity"], stderr=subprocess.PIPE, text=True
        )
        self._started.append(process)
        until = time.monotonic() + 10.0
        while time.monotonic() < until and process.poll() is None:
            # It has left the old one, and become the program that stays.
            at = os.readlink(f"/proc/{process.pid}/ns/net")
            name = pathlib.Path(f"/proc/{process.pid}/comm").read_text().strip()
            if at not in (before, os.readlink("/proc/self/ns/net")) and name == "sleep":
                return process.pid
            time.sleep(0.02)
        raise OSError(process.stderr.read() if process.poll() else "no namespace")

    def _enter(self, address: str) -> list[str]:
        pid = str(self._pids[address])
        return [
            "nsenter",
            f"--target={pid}",
            "--user",
            "--net",
            "--preserve-credentials",
        ]

    def run(self, address: str, *command: str, **options) -> str:
        """Runs a command on a machine to its end; returns what it printed."""
        found = subprocess.run(
            [*self._enter(address), *command],
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            **options,
        )
        return found.stdout

    def start(self, address: str, *command: str, **options) -> subprocess.Popen:
        """Starts a command on a machine."""
        process = subprocess.Popen(
            [*self._enter(address), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **options,
        )
        self._started.append(process)
        return process

    def end(self) -> None:
        """Ends all that was started."""
        for process in reversed(self._started):
            process.kill()
        for process in self._started:
            process.communicate()


def _lacking() -> str:
    """What the test needs and is not there."""
    programs = ("unshare", "nsenter", "ip", "nft", "stunnel", "openssl")
    lacking = [name for name in programs if shutil.which(name) is None]
    return f"no {', '.join(lacking)} here" if lacking else ""


class TunnelTest(runs.Runs):
    def setUp(self):
        super().setUp()
        if lacking := _lacking():
            self.skipTest(lacking)
        try:
            self.machines = Machines()
        except (OSError, subprocess.CalledProcessError) as error:
            self.skipTest(f"this system has no network namespaces: {error}")
        self.addCleanup(self.machines.end)
        self.keys = os.path.join(self.create_tempdir(), "keys")
        subprocess.run([_SCRIPT, "keys", self.keys, _FIRST, _SECOND], check=True)

    def _dig(self) -> None:
        """Starts the tunnel on both machines."""
        tasks = [f"{port}={address}" for port, address in _TASKS.items()]
        for me in (_FIRST, _SECOND):
            folder = os.path.join(self.keys, me)
            self.machines.start(me, _SCRIPT, "run", folder, me, *tasks)

    def _python(self, address: str, program: str, *arguments: str) -> str:
        return self.machines.run(address, sys.executable, "-c", program, *arguments)

    def _listen(self, interface: str) -> str:
        path = os.path.join(self.create_tempdir(), interface)
        listener = self.machines.start(
            _FIRST, sys.executable, "-c", _LISTEN, interface, path
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
                "PYTHONPATH": str(_ROOT),
                "TFDS_DATA_DIR": runs.data_dir(),
                "TF_CPP_MIN_LOG_LEVEL": "3",
                "CUDA_VISIBLE_DEVICES": "",
            },
        )

    def test_trains_and_nobody_else_reads_or_reaches_it(self):
        alone = {**_FLAGS, "num_gpus": 2}
        self.run_flags(**alone, train_dir=self.directory)
        wanted = self.values()
        self.directory += "_through_the_tunnel"
        self._dig()
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
        said, _ = controller.communicate(timeout=launched.PATIENCE)
        self.assertEqual(controller.returncode, 0, said)
        for process in serving:
            self.assertEqual(process.wait(launched.PATIENCE), 0)
        self.assertLess(trainer.difference(wanted, self.values()), 1e-5)
        sent = sum(value.nbytes for value in wanted.values() if value.ndim)
        for path, readable in ((inside, True), (between, False)):
            passed = pathlib.Path(path).read_bytes()
            self.assertGreater(len(passed), sent * _FLAGS["num_batches"])
            for word in (b"towers_hello", b"/job:worker/replica:0"):
                self.assertEqual(word in passed, readable, f"{word} on {path}")

    def _check_ports(self) -> None:
        """Of worker 0, seen from the other machine."""
        said = self._python(_FIRST, _CONNECT, _SECOND, str(_WORKER_0))
        self.assertIn("refused", said)
        said = self._python(_SECOND, _CONNECT, _SECOND, str(_WORKER_0))
        self.assertIn("connected", said)  # it was there to be refused
        mine, tls = os.path.join(self.keys, _FIRST), str(_WORKER_0 + 10000)
        self.assertIn("answered", self._python(_FIRST, _CALL, _SECOND, tls, mine, mine))
        self.assertIn("refused", self._python(_FIRST, _CALL, _SECOND, tls, mine))
        other = os.path.join(self.create_tempdir(), "keys")
        subprocess.run([_SCRIPT, "keys", other, _FIRST], check=True)
        stolen = os.path.join(other, _FIRST)  # of another authority
        self.assertIn(
            "refused", self._python(_FIRST, _CALL, _SECOND, tls, mine, stolen)
        )


if __name__ == "__main__":
    absltest.main()
