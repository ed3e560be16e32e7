"""One task of a cluster, on a machine that an engine such as Ray or Spark has chosen.

The engine calls `run` once for each task.  The call connects to the driver (see
`remote_driver`) and runs the task's process as the driver asks:

    token, rank, host, port        ---->  driver
    flags (they start a process)   <----  when every task has connected
    the lines of the process       ---->
    a signal for the process       <----
    its exit status                ---->
    end                            <----  of the whole run

Each message is a JSON object on a line.  The process ends with the call, however that
ends.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from towers.cluster.local_cluster import die_with, task_environment


class Invitation(NamedTuple):
    """Where the driver is, and how a task proves that it belongs to its run."""

    host: str
    port: int
    token: str


def run(invitation: Invitation, rank: int, *, host: str = "", gpus: str = "") -> int:
    """Runs one task until the driver ends it; returns its last exit status.

    Args:
      invitation: of the driver.
      rank: of the task in the driver's list.
      host: name or address under which the other tasks reach this machine; if empty,
        the address from which it reaches the driver.
      gpus: of this task, as in `CUDA_VISIBLE_DEVICES`.

    Raises:
      ConnectionError: the driver has gone.
    """
    with socket.create_connection((invitation.host, invitation.port)) as connection:
        task = _Task(connection, gpus)
        host = host or connection.getsockname()[0]
        try:
            hello = {"token": invitation.token, "rank": rank, "host": host}
            task.send({**hello, "port": _free_port()})
            with connection.makefile("r", encoding="utf-8") as messages:
                for message in map(json.loads, messages):
                    if "end" in message:
                        return int(message["end"])
                    task.obey(message)
        finally:
            task.stop()
    raise ConnectionError(f"the driver at {invitation.host} has gone")


class _Task:
    """The process of a task, and the connection to the driver."""

    def __init__(self, connection: socket.socket, gpus: str):
        self._connection = connection
        self._sending = threading.Lock()
        self._environment = {**task_environment(), "CUDA_VISIBLE_DEVICES": gpus}
        self._process: subprocess.Popen[str] | None = None

    def send(self, message: Mapping[str, Any]) -> None:
        """Sends a message; that the driver has gone shows where messages are read."""
        line = json.dumps(message).encode() + b"\n"
        with self._sending:
            with contextlib.suppress(OSError):
                self._connection.sendall(line)

    def obey(self, message: Mapping[str, Any]) -> None:
        """Starts the process anew, or sends it a signal."""
        if "flags" in message:
            self.stop()
            self._start(message["flags"], message["attempt"])
        elif self._process is not None:
            self._process.send_signal(message["signal"])

    def stop(self) -> None:
        """Kills the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _start(self, flags: Sequence[str], attempt: int) -> None:
        # This process may have threads, so that `preexec_fn` is unsafe: see `main`.
        launch = [sys.executable, "-m", __name__, str(os.getpid())]
        self._process = subprocess.Popen(
            [*launch, *train_command(flags)],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # so that signals reach it from the driver alone
        )
        pump = threading.Thread(
            target=self._report, args=(self._process, attempt), daemon=True
        )
        pump.start()

    def _report(self, process: subprocess.Popen[str], attempt: int) -> None:
        """Sends the lines of a process and its exit status."""
        assert process.stdout is not None  # a pipe
        for line in process.stdout:
            self.send({"line": line.rstrip("\n")})
        self.send({"status": process.wait(), "attempt": attempt})


def train_command(flags: Sequence[str]) -> list[str]:
    """The command of a task's process."""
    return [sys.executable, "-m", "towers.train", *flags]


def _free_port() -> int:
    """A port on which nothing listens at this moment."""
    with socket.create_server(("", 0)) as server:
        return cast(int, server.getsockname()[1])


def main(argv: Sequence[str]) -> None:
    """Becomes the command, which Linux kills when its parent ends.

    Args:
      argv: of this program: the process id of the parent, and the command.
    """
    _, parent, *command = argv
    die_with(int(parent))
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv)
