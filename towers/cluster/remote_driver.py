"""The driver of a cluster whose tasks an engine such as Ray or Spark starts.

The user's program makes a `Driver`, has the engine call `remote_task.run` with its
invitation once for each task, and waits in `Driver.run`.  The driver tells each task
the addresses of all tasks, prints their lines, and ends with the status of the leader,
which is the controller, or worker 0 of clients with graphs of their own.

A task that the engine starts again, on the machine where it was, gets its old address:
the cluster waits for it as for every lost task.  If it comes back on another machine,
all tasks are started again with the new addresses, and training continues from the last
checkpoint.

With `--elastic` the workers are not waited for: each joins when the engine has started
it, here or on another machine, and may be lost.
"""

import contextlib
import hmac
import json
import queue
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from towers.cluster import deaths
from towers.cluster.engine_flags import EngineFlags
from towers.cluster.local_cluster import host_flags, signal_of
from towers.cluster.remote_task import Invitation
from towers.errors.collected import print_line, say
from towers.errors.interrupts import Interrupted
from towers.errors.terminal import heeded

_HELLO_SECONDS = 20.0  # for a connection to say who it is
_HELLO_BYTES = 4096
_WAITING_SECONDS = 30.0  # between two lines about tasks that are not there
# For the tasks to exit after the leader, and for the leader after a task that failed.
_GRACE_SECONDS = 10.0


class _Message(NamedTuple):
    """From a task: its hello, a line, a status, or the end of its connection."""

    rank: int
    connection: socket.socket
    content: Mapping[str, Any]  # empty at the end of the connection


class Driver:
    """Serves the tasks of one run.

    Args:
      given: the flags of the program, which say what the tasks are.
      host: name or address under which the tasks reach this machine.
      wait_secs: how long to wait for tasks that are not there.

    Attributes:
      invitation: for `remote_task.run`.
    """

    def __init__(self, given: EngineFlags, *, host: str, wait_secs: float = 600.0):
        self._given = given
        self._names, self._needed = given.names, given.needed
        self._leader = given.leader
        ranks = range(len(self._names))
        self._restarts_left = dict.fromkeys(ranks, given.max_restarts)
        self._wait_secs = wait_secs
        self._server = socket.create_server((host, 0))
        port = self._server.getsockname()[1]
        self.invitation = Invitation(host, port, secrets.token_hex(32))
        self._messages: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        self._connections: dict[int, socket.socket] = {}
        self._idle: set[int] = set()  # tasks that have not been told to start
        self._addresses: dict[int, tuple[str, int]] = {}
        self._hosts: list[str] = []  # flags of the tasks that run
        self._attempts = dict.fromkeys(ranks, 0)
        self._statuses: dict[int, int] = {}  # of tasks whose process has ended
        self._signals: list[int] = []
        self._failed_at = 0.0  # when a task other than the leader failed
        # When all tasks were there, and when absent ones were named.
        self._complete_at = self._named_at = time.monotonic()

    def run(self, lost: Callable[[], str]) -> int:
        """Serves the tasks until the leader ends; returns the exit status.

        Args:
          lost: returns why the engine cannot run a task any more, or "".
        """
        for number in heeded():
            signal.signal(number, lambda number, frame: self._signals.append(number))
        threading.Thread(target=self._accept, daemon=True).start()
        try:
            status = self._serve(lost)
            until = time.monotonic() + (
                0.0 if len(self._signals) > 1 else _GRACE_SECONDS
            )
            while self._running() and time.monotonic() < until:
                self._receive()
            return status
        finally:
            for rank, connection in self._connections.items():
                _send(connection, {"end": self._statuses.get(rank, 0)})
            self._server.close()

    def stop(self) -> None:
        """Acts as on SIGTERM, unless a signal has come; in any thread."""
        if not self._signals:
            self._signals.append(signal.SIGTERM)

    def _serve(self, lost: Callable[[], str]) -> int:
        """Receives messages until the run has ended; returns the exit status."""
        forwarded = False
        while True:
            self._receive()
            ended = self._statuses.get(self._leader)
            if ended is not None:
                return ended if ended >= 0 else 128 - ended
            if self._failed_at and time.monotonic() > self._failed_at + _GRACE_SECONDS:
                return 1
            if reason := lost() or self._late():
                say(f"error: {reason}")
                return 1
            leader = self._connections.get(self._leader)
            if len(self._signals) > forwarded:
                if forwarded or leader is None or not self._hosts:
                    return Interrupted(self._signals[-1]).status
                _send(leader, {"signal": self._signals[0]})
                forwarded = True

    def _late(self) -> str:
        """Names tasks that are not there; returns why the run ends for it, or ""."""
        now = time.monotonic()
        absent = ", ".join(
            f"{job} {index}"
            for rank, (job, index) in enumerate(self._names)
            if rank in self._needed and rank not in self._connections
        )
        if not absent:
            self._complete_at = self._named_at = now
        elif now - self._complete_at > self._wait_secs:
            return f"the engine did not start {absent} in {self._wait_secs:.0f} s"
        elif now - self._named_at > _WAITING_SECONDS:
            self._named_at = now
            say(f"Waiting for the engine to start {absent}.")
        return ""

    def _running(self) -> bool:
        return any(rank not in self._statuses for rank in self._connections)

    def _accept(self) -> None:
        """Takes connections, until the driver ends."""
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        """Reads a task's messages; drops a connection without the token."""
        with connection, connection.makefile("r", encoding="utf-8") as lines:
            try:
                connection.settimeout(_HELLO_SECONDS)
                hello = json.loads(lines.readline(_HELLO_BYTES))
                rank, token = range(len(self._names))[hello["rank"]], hello["token"]
            except (OSError, ValueError, LookupError, TypeError):
                return
            if not hmac.compare_digest(str(token), self.invitation.token):
                return
            connection.settimeout(None)
            self._messages.put(_Message(rank, connection, hello))
            with contextlib.suppress(OSError, ValueError):  # it broke
                for line in lines:
                    self._messages.put(_Message(rank, connection, json.loads(line)))
            self._messages.put(_Message(rank, connection, {}))

    def _receive(self) -> None:
        """Acts on the next message, if one comes soon."""
        try:
            rank, connection, content = self._messages.get(timeout=0.2)
        except queue.Empty:
            return
        job, index = self._names[rank]
        if "host" in content:
            self._welcome(rank, connection, content["host"], content["port"])
        elif connection is not self._connections.get(rank):
            pass  # of a task that was replaced
        elif "line" in content:
            self._print(rank, content["line"])
        elif "status" in content:
            if content["attempt"] == self._attempts[rank]:
                self._ended(rank, content["status"])
        else:
            del self._connections[rank]
            self._idle.discard(rank)
            if rank not in self._statuses:
                then = "waiting for the engine to start it again"
                then = then if rank in self._needed else "the others go on"
                say(f"Lost {job} {index}; {then}.")

    def _welcome(
        self, rank: int, connection: socket.socket, host: str, port: int
    ) -> None:
        """Starts the tasks that do not run yet, once all that are needed are there.

        If an address has changed, the others are started again.
        """
        known = self._addresses.get(rank)
        if known is None or known[0] != host:
            self._addresses[rank] = (host, port)
        self._connections[rank] = connection
        self._idle.add(rank)
        self._statuses.pop(rank, None)
        if not self._needed <= self._connections.keys():
            return
        hosts = self._host_flags()
        if hosts != self._hosts:
            if self._hosts:
                say("A task came back on another machine; all are started again.")
            self._hosts, self._idle = hosts, set(self._connections)
        while self._idle:
            self._start(self._idle.pop())

    def _host_flags(self) -> list[str]:
        hosts: dict[str, list[str]] = {}
        for rank in sorted(self._needed):
            hosts.setdefault(self._names[rank][0], []).append(self._address(rank))
        flags = list(host_flags(hosts))
        if self._given.elastic:
            flags.append(f"--max_workers={self._given.most_workers}")
        return flags

    def _address(self, rank: int) -> str:
        host, port = self._addresses[rank]
        return f"{host}:{port}"

    def _start(self, rank: int) -> None:
        job, index = self._names[rank]
        self._attempts[rank] += 1
        self._statuses.pop(rank, None)
        flags = [*self._given.flags, f"--job_name={job}"]
        if rank in self._needed:
            # The controller may be started again on any machine.
            flags = [
                "--shared_train_dir",
                *flags,
                f"--task_index={index}",
                *self._hosts,
            ]
        else:
            flags.append(f"--join={self._address(self._leader)}")
            flags.append(f"--worker_hosts={self._address(rank)}")
        attempt = self._attempts[rank]
        _send(self._connections[rank], {"flags": flags, "attempt": attempt})

    def _ended(self, rank: int, status: int) -> None:
        """Starts a killed process again, and notes the status of another."""
        job, index = self._names[rank]
        number = signal_of(status)
        if number is not None and not self._signals and self._restarts_left[rank]:
            self._restarts_left[rank] -= 1
            words = deaths.words(number, (), memory_ran_out=False)
            say(f"{job} {index} {words}; it is started again")
            self._start(rank)
            return
        self._statuses[rank] = status
        if not status or rank == self._leader or self._failed_at:
            return
        if rank in self._needed:
            self._failed_at = time.monotonic()
        say(f"{job} {index} ended with status {status}")

    def _print(self, rank: int, line: str) -> None:
        job, index = self._names[rank]
        if rank == self._leader:
            print_line(line, sys.stdout)
        else:
            print_line(f"[{job} {index}] {line}", sys.stderr)


def _send(connection: socket.socket, message: Mapping[str, Any]) -> None:
    """Sends a message; a connection that has broken is noticed where it is read."""
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps(message).encode() + b"\n")
