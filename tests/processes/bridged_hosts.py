"""Hosts that can be cut off: network namespaces, joined by a bridge in this one.

Each host has a wire of its own to the bridge.  Without its wire it vanishes without a
word: nothing tells the others of the end of its connections.
"""

import ctypes
import os
import pathlib
import shutil
import subprocess
import time

_CLONE_NEWNET = 0x40000000  # of <linux/sched.h>
_OURS = "/proc/self/ns/net"
_PROGRAMS = ("ip", "nsenter", "unshare")


class BridgedHosts:
    """Network namespaces.

    Args:
      count: of hosts, 200 at most.

    Raises:
      OSError: the system does not allow it, or lacks a program.
    """

    def __init__(self, count: int):
        if missing := [name for name in _PROGRAMS if shutil.which(name) is None]:
            raise FileNotFoundError(f"there is no {', '.join(missing)}")
        self._holders: list[subprocess.Popen] = []
        try:
            _ip("link", "add", "hub", "type", "bridge")
            _ip("link", "set", "hub", "up")
            for host in range(count):
                self._add(host)
        except BaseException:
            self.end()
            raise

    def _add(self, host: int) -> None:
        # The namespace lasts as long as a process is in it.
        holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        self._holders.append(holder)
        until = time.monotonic() + 10.0
        while _namespace(holder.pid) in ("", os.readlink(_OURS)):
            if holder.poll() is not None or time.monotonic() > until:
                raise OSError("no network namespace could be made")
            time.sleep(0.01)
        peer = ("peer", "name", "wire", "netns", str(holder.pid))
        _ip("link", "add", f"wire{host}", "type", "veth", *peer)
        _ip("link", "set", f"wire{host}", "master", "hub")
        inside = ("nsenter", f"--target={holder.pid}", "--net")
        address = f"{self.address(host)}/16"
        _ip("address", "add", address, "dev", "wire", inside=inside)
        for name in ("lo", "wire"):
            _ip("link", "set", name, "up", inside=inside)
        self.join(host)

    def address(self, host: int) -> str:
        """Of a host, for all others."""
        return f"10.77.0.{host + 1}"

    def pid(self, host: int) -> int:
        """A process on the host, for `enter`."""
        return self._holders[host].pid

    def cut_off(self, host: int) -> None:
        """Takes the wire of a host down."""
        _ip("link", "set", f"wire{host}", "down")

    def join(self, host: int) -> None:
        """Takes the wire of a host up."""
        _ip("link", "set", f"wire{host}", "up")

    def processes(self) -> list[int]:
        """The processes that others have started on the hosts, by their ids."""
        holders = [holder.pid for holder in self._holders]
        hosts = {*map(_namespace, holders)}
        every = [int(path.name) for path in pathlib.Path("/proc").glob("[0-9]*")]
        return [pid for pid in every if _namespace(pid) in hosts and pid not in holders]

    def end(self) -> None:
        """Ends the hosts, but for what still runs on them."""
        for holder in self._holders:
            holder.kill()
            holder.wait()


def enter(pid: int) -> None:
    """Moves this thread, and those that it will start, to the host of a process.

    Raises:
      OSError: the system does not allow it.
    """
    with open(f"/proc/{pid}/ns/net") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "no other network namespace")


def _namespace(pid: int) -> str:
    """The network namespace of a process; "" if it has ended."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return ""


def _ip(*words: str, inside: tuple[str, ...] = ()) -> None:
    command = [*inside, "ip", *words]
    finished = subprocess.run(command, capture_output=True, text=True)
    if finished.returncode:
        raise OSError(f"{' '.join(command)}: {finished.stderr.strip()}")
