"""Two machines, here network namespaces, joined by the TLS tunnel of `deploy/`."""

import os
import pathlib
import shutil
import subprocess
import time
import unittest
from collections.abc import Iterable, Mapping

from tests.processes.programs import ROOT

SCRIPT = str(ROOT / "deploy" / "tunnel.sh")
FIRST, SECOND = "10.77.0.1", "10.77.0.2"  # addresses of the machines
_LISTENS = "0A"  # the kernel's code for the state "listening"


class Machines:
    """Two network namespaces and the wire between them.

    Args:
      as_root: whether programs there may change their user, as daemons do; this process
        must be root's.

    Raises:
      OSError, subprocess.CalledProcessError: the system does not allow it.
    """

    def __init__(self, *, as_root: bool = False):
        self._namespaces = ["--net"] if as_root else ["--user", "--net"]
        self._started: list[subprocess.Popen] = []
        self._pids: dict[str, int] = {}
        namespace = os.readlink("/proc/self/ns/net")
        mapped = [] if as_root else ["--map-root-user"]
        first = self._namespace(["unshare", *mapped, "--net"], namespace)
        self._pids[FIRST] = first
        inner = os.readlink(f"/proc/{first}/ns/net")
        second = [*self._enter(FIRST), "unshare", "--net"]
        self._pids[SECOND] = self._namespace(second, inner)
        peer = ["peer", "name", "wire", "netns", str(self._pids[SECOND])]
        self.run(FIRST, "ip", "link", "add", "wire", "type", "veth", *peer)
        for address in (FIRST, SECOND):
            self.run(address, "ip", "address", "add", f"{address}/24", "dev", "wire")
            for interface in ("wire", "lo"):
                self.run(address, "ip", "link", "set", interface, "up")

    def _namespace(self, command: list[str], before: str) -> int:
        """Starts a process that stays in a new namespace; returns its id.

        Args:
          command: makes the namespace, and runs in it the words that follow.
          before: the namespace that the command itself is started in.

        Raises:
          OSError: there is none after ten seconds.
        """
        process = subprocess.Popen(
            [*command, "sleep", "infinity"], stderr=subprocess.PIPE, text=True
        )
        self._started.append(process)
        until = time.monotonic() + 10.0
        while time.monotonic() < until and process.poll() is None:
            # Until the process is in the new namespace and runs the program.
            at = os.readlink(f"/proc/{process.pid}/ns/net")
            name = pathlib.Path(f"/proc/{process.pid}/comm").read_text().strip()
            if at not in (before, os.readlink("/proc/self/ns/net")) and name == "sleep":
                return process.pid
            time.sleep(0.02)
        raise OSError(process.stderr.read() if process.poll() else "no namespace")

    def _enter(self, address: str) -> list[str]:
        """The words before a command that runs on a machine."""
        pid = str(self._pids[address])
        options = [f"--target={pid}", *self._namespaces, "--preserve-credentials"]
        return ["nsenter", *options]

    def run(self, address: str, *command: str, **options) -> str:
        """Runs a command on a machine to its end; returns what it printed.

        Raises:
          subprocess.CalledProcessError: its status is not 0.
          subprocess.TimeoutExpired: it takes more than a minute.
        """
        finished = subprocess.run(
            [*self._enter(address), *command],
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            **options,
        )
        return finished.stdout

    def start(self, address: str, *command: str, **options) -> subprocess.Popen:
        """Starts a command on a machine."""
        usual = dict(
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        command = [*self._enter(address), *command]
        process = subprocess.Popen(command, **{**usual, **options})
        self._started.append(process)
        return process

    def start_tunnel(self, keys: str, tasks: Mapping[int, str]) -> None:
        """Starts the tunnel on both machines.

        Args:
          keys: a folder that is not there yet, for the certificates.
          tasks: port of each -> address of the machine that it runs on.
        """
        subprocess.run([SCRIPT, "keys", keys, FIRST, SECOND], check=True)
        said = [f"{port}={address}" for port, address in tasks.items()]
        for me in (FIRST, SECOND):
            self.start(me, SCRIPT, "run", os.path.join(keys, me), me, *said)

    def wait_for(self, address: str, ports: Iterable[int], seconds: float) -> None:
        """Waits until all these ports listen on a machine.

        Raises:
          TimeoutError: they do not.
        """
        until = time.monotonic() + seconds
        while left := set(ports) - self._listening(address):
            if time.monotonic() > until:
                raise TimeoutError(f"nothing listens at {address}:{min(left)}")
            time.sleep(0.05)

    def _listening(self, address: str) -> set[int]:
        """The listening ports, by the kernel; a tunnel answers for absent tasks."""
        ports = set()
        for kind in ("tcp", "tcp6"):
            table = pathlib.Path(f"/proc/{self._pids[address]}/net/{kind}").read_text()
            for line in table.splitlines()[1:]:
                _, local, _, state, *_ = line.split()
                if state == _LISTENS:
                    ports.add(int(local.rpartition(":")[2], 16))
        return ports

    def end(self) -> None:
        """Ends all that was started."""
        for process in reversed(self._started):
            process.kill()
        for process in self._started:
            process.communicate()


def needed() -> Machines:
    """Two machines; skips the test where the system has none."""
    programs = ("unshare", "nsenter", "ip", "nft", "stunnel", "openssl")
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        raise unittest.SkipTest(f"no {', '.join(missing)} here")
    try:
        return Machines()
    except (OSError, subprocess.CalledProcessError) as error:
        words = f"this system has no network namespaces: {error}"
        raise unittest.SkipTest(words) from error
