"""The tasks of a cluster, each started, frozen and killed by the caller.

For programs that `tasks.manual_tasks` runs, as the network must be private.  Tasks are
forked from a server process that has imported TensorFlow once for all of them, since
the import takes longer than most of what they do.
"""

import importlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from typing import TextIO

from tests.processes import programs
from tests.processes.known_peak import KNOWN_PEAK
from towers.cluster import local_cluster

Name = tuple[str, int]
Ends = dict[str, tuple[int, list[str]]]  # "job index" -> exit status and lines

_PATIENCE = (
    programs.PATIENCE / 3
)  # less than `tasks.manual_tasks` waits for the program
_PROGRAM = "towers.train"
_FORKS = multiprocessing.get_context("forkserver")


class Task(programs.OutputLines):
    """`towers.train` with some flags, or another program, in a process of its own.

    Args:
      flags: of the command line.
      environment: variables in addition to this process's present ones.
      program: Python code that runs in the place of `towers.train`.

    Attributes:
      process: the process.
    """

    def __init__(
        self,
        flags: list[str],
        environment: Mapping[str, str] | None = None,
        *,
        program: str = "",
    ):
        self.process, printed = fork(flags, environment, program=program)
        super().__init__(printed)

    def end(self, seconds: float = _PATIENCE) -> int:
        """Waits for the end; returns the exit status.

        Raises:
          AssertionError: it does not end in so many seconds.
        """
        self.process.join(seconds)
        assert self.process.exitcode is not None, "it does not end"
        self.rest()
        return self.process.exitcode


def fork(
    flags: list[str],
    environment: Mapping[str, str] | None = None,
    *,
    program: str = "",
) -> tuple[BaseProcess, TextIO]:
    """Starts the process of a `Task`; returns it, and what it prints."""
    ours, its = _FORKS.Pipe(duplex=False)
    _FORKS.set_forkserver_preload([_PROGRAM])
    # Not those of the server, which may be older.
    whole = {**os.environ, **(environment or {})}
    process = _FORKS.Process(target=_main, args=(its, program, flags, whole))
    process.start()
    its.close()
    return process, os.fdopen(os.dup(ours.fileno()), errors="replace")


def _main(
    printed: connection.Connection,
    program: str,
    flags: list[str],
    environment: Mapping[str, str],
) -> None:
    """Does what `python -m towers.train` does, or runs a program.

    Both streams go to the pipe.
    """
    os.environ.clear()
    os.environ.update(environment)
    for stream in (1, 2):
        os.dup2(printed.fileno(), stream)
    sys.argv = ["train", *flags]
    if program:
        exec(program, {})
        return
    with KNOWN_PEAK:
        importlib.import_module(_PROGRAM).program()


class Tasks:
    """Ps tasks, two workers, and a controller if there is one graph.

    Args:
      *flags: of every task's command line.
      between: whether replication is between graphs: each worker is a client.
      ps: number of ps tasks.

    Attributes:
      leader: (job, index) of the task that runs the session, or of the chief client.
      tasks: (job, index) -> its process, the one started last.
    """

    def __init__(self, *flags: str, between: bool, ps: int = 1):
        *hosts, second, leader, other, first = local_cluster.free_addresses(ps + 4)
        self._flags = ["--device=cpu", "--num_gpus=2", *flags]
        self._flags += [f"--ps_hosts={','.join(hosts)}"]
        names = [*(("ps", k) for k in range(ps)), ("worker", 0), ("worker", 1)]
        if between:
            self._flags.append("--replication=between_graph")
            self._led, self._by = "--worker_hosts={}," + second, (leader, other)
        else:
            self._flags.append(f"--worker_hosts={first},{second}")
            self._led, self._by = "--controller_host={}", (leader, other)
            names.append(("controller", 0))
        self.leader = ("worker", 0) if between else ("controller", 0)
        self.tasks: dict[Name, Task] = {}
        for name in names:
            self.start(name)

    def start(self, name: Name, *more: str) -> None:
        """Starts a task, or starts it anew, perhaps with more flags."""
        job, index = name
        flags = [*self._flags, f"--job_name={job}", f"--task_index={index}", *more]
        self.tasks[name] = Task([*flags, self._led.format(self._by[0])])

    def other_leader(self, *flags: str) -> tuple[int, list[str]]:
        """Runs a second leader of the same tasks; returns its exit status and lines."""
        flags = [*self._flags, f"--job_name={self.leader[0]}", *flags]
        task = Task([*flags, self._led.format(self._by[1])])
        return task.end(), task.lines

    def send(self, name: Name, number: int) -> None:
        """Sends a signal to a task; after SIGKILL waits for its end."""
        process = self.tasks[name].process
        os.kill(process.pid, number)
        if number == signal.SIGKILL:
            process.join()

    def line(self, pattern: str, *, of: Name | None = None) -> str:
        """Waits for a line of a task, by default the leader, and returns it."""
        return self.tasks[of or self.leader].line(pattern, _PATIENCE)

    def past(self) -> None:
        """Skips the lines that the leader has printed so far."""
        self.tasks[self.leader].rest(0.0)

    def end(self, *, but: Name | None = None) -> Ends:
        """Waits for the end of all tasks, or of all but one."""
        return {
            f"{job} {index}": (task.end(), task.lines)
            for (job, index), task in self.tasks.items()
            if (job, index) != but
        }

    def kill(self) -> None:
        """Kills the tasks that still run."""
        for task in self.tasks.values():
            task.process.kill()
