"""A worker's host vanishes without a word; the worker is started at another address.

The machines are network namespaces.  The one that vanishes loses its link and its
address, so that nothing tells the others of the end of its connections.
"""

import os
import pathlib
import signal
import subprocess
import sys
import time

from tests import digit_runs
from tests.processes import machines, programs
from tests.processes.machines import FIRST, SECOND
from tests.processes.programs import ROOT

_ANOTHER = "10.77.0.3"
_NAME = "away"  # of the host that vanishes
_PS, _LEADER, _WORKER = (f"{FIRST}:2222", f"{FIRST}:2223", f"{_NAME}:2224")
_FLAGS = {
    "model": "tests.digit_runs:small_model",
    "device": "cpu",
    "num_gpus": 1,
    "num_batches": 1000000,
    "num_warmup_batches": 0,
    "save_model_steps": 20,
    "stall_secs": 5,
    "wait_secs": 40,
    "ps_hosts": _PS,
}
# Runs a command that sees another file in the place of /etc/hosts.
_WITH_HOSTS = 'mount --bind "$0" /etc/hosts && exec "$@"'
# Far less than the 16 minutes of the kernel.
_SOON = 150.0


class VanishedHost(digit_runs.Runs):
    """A test case in which a host vanishes, comes back, and vanishes for ever."""

    def setUp(self):
        super().setUp()
        self.machines = machines.needed()
        self.addCleanup(self.machines.end)
        self.hosts = pathlib.Path(self.create_tempdir(), "hosts")
        self._move_to(SECOND)

    def _move_to(self, address: str) -> None:
        self.hosts.write_text(f"127.0.0.1 localhost\n{address} {_NAME}\n")

    def _on_second(self, *words: str) -> None:
        self.machines.run(SECOND, "ip", *words)

    def _task(self, on: str, job: str, index: int, **flags: object) -> "_Task":
        flags = {
            **_FLAGS,
            "train_dir": self.directory,
            "job_name": job,
            "task_index": index,
            **flags,
        }
        words = [sys.executable, "-m", "towers.train"]
        words += [f"--{name}={value}" for name, value in flags.items()]
        process = self.machines.start(
            on,
            *("unshare", "--mount", "sh", "-c", _WITH_HOSTS, str(self.hosts), *words),
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "TFDS_DATA_DIR": digit_runs.data_dir(),
                "TF_CPP_MIN_LOG_LEVEL": "3",
                "CUDA_VISIBLE_DEVICES": "",
            },
        )
        return _Task(process)

    def check_that_the_run_goes_on_or_ends_in_time(self, between: bool) -> None:
        """With one graph, or of two clients."""
        if between:
            hosts = {
                "replication": "between_graph",
                "worker_hosts": f"{_LEADER},{_WORKER}",
            }
            leads, leaves = ("worker", 0), ("worker", 1)
        else:
            hosts = {"worker_hosts": _WORKER, "controller_host": _LEADER}
            leads, leaves = ("controller", 0), ("worker", 0)
        ps = self._task(FIRST, "ps", 0, **hosts)
        worker = self._task(SECOND, *leaves, **hosts)
        leader = self._task(FIRST, *leads, **hosts)
        leader.line("^40\t")

        self._on_second("link", "set", "wire", "down")
        self._on_second("address", "del", f"{SECOND}/24", "dev", "wire")
        worker.process.send_signal(signal.SIGKILL)
        leader.line(f"^Waiting for {leaves[0]} {leaves[1]} at {_WORKER}: ", _SOON)
        self._move_to(_ANOTHER)
        self._on_second("address", "add", f"{_ANOTHER}/24", "dev", "wire")
        self._on_second("link", "set", "wire", "up")
        self._task(SECOND, *leaves, **hosts)
        leader.line("^Resuming from ", _SOON)
        leader.line("images/sec", _SOON)

        begun = time.monotonic()
        self._on_second("link", "set", "wire", "down")  # for ever
        self.assertEqual(leader.process.wait(_SOON), 1)
        self.assertBetween(time.monotonic() - begun, 40.0, _SOON)
        leader.rest()
        said = (
            rf"^error: gave up after 40 s \(--wait_secs\): {leaves[0]} {leaves[1]} at"
        )
        self.assertRegex(leader.lines[-1], said)
        self.assertEqual(ps.process.wait(_SOON), 1)


# Two classes, as pytest-xdist gives each class to one of its processes.
class OneGraphTest(VanishedHost):
    def test_the_run_goes_on_or_ends_in_time(self):
        self.check_that_the_run_goes_on_or_ends_in_time(between=False)


class ClientsTest(VanishedHost):
    def test_the_run_goes_on_or_ends_in_time(self):
        self.check_that_the_run_goes_on_or_ends_in_time(between=True)


class _Task(programs.OutputLines):
    def __init__(self, process: subprocess.Popen):
        self.process = process
        super().__init__(process.stdout)
