"""A cluster on this machine: starts all tasks, prefixes their output, stops them.

`python -m towers.train --local_cluster=ps:1,worker:2` becomes this program.  It uses
only the standard library, so it is small, has a single thread, and can enter a private
network.

A task that is killed is restarted, up to a number of times; the controller then
continues from the last checkpoint.  A task that is stopped (SIGSTOP) is named, and
killed if it stays stopped.  No task lives longer than this program: Linux kills them
when it ends.
"""

import collections
import contextlib
import ctypes
import functools
import json
import os
import pathlib
import selectors
import signal
import site
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any, NoReturn, cast

from flags.problem import wrong_setting
from towers.cluster import deaths, private_network
from towers.errors.collected import print_line, say
from towers.errors.interrupts import Interrupted
from towers.errors.terminal import (
    ECHO_SECONDS,
    ENDING,
    Terminal,
    heeded,
    is_hangup,
)

# Seconds for tasks to exit by themselves.  After a failure, or a signal during the
# start, there may be no controller that tells them to exit.
_GRACE, _GRACE_AFTER_FAILURE = 10.0, 2.0
_LAST_WORDS_SECONDS = 2.0  # to read the output of a task that has ended
_LAST_LINES = 500  # of a task that are kept; they contain the stacks of its threads
_LEADER_SECONDS = 5.0  # for the leader to exit after the tasks that it dismissed
_PR_SET_PDEATHSIG = 1  # of <linux/prctl.h>


def become(
    tasks: Mapping[str, int],
    flags: Sequence[str],
    *,
    where: Any,
    limits: Mapping[str, Any],
    allow_open_ports: bool,
) -> NoReturn:
    """Replaces this process by the local cluster.

    Args:
      tasks: job -> number of tasks.  The leader is the controller, or worker 0.
      flags: of the command line; every task gets them.
      where: the towers' `Placement` (importing its type here would take seconds).
      limits: `max_restarts` of each task; `stall_secs`, after which a stopped task is
        named, and `wait_secs`, after which it is killed; `elastic`, other than "false"
        if the run goes on without workers that are lost for good.
      allow_open_ports: whether the tasks share the machine's network.

    Raises:
      ValueError: this system does not support it.
    """
    if not hasattr(signal, "pthread_sigmask"):  # as on Windows, which has no exec
        raise wrong_setting(
            "local_cluster",
            None,
            "needs Linux or macOS",
            "on this system start each task by itself, with `job_name` and "
            "`task_index`",
        )
    order = {
        "tasks": dict(tasks),
        "flags": list(flags),
        "kind": where.kind,
        "num_gpus": where.per_task,
        "gpu_split": where.gpu_split,
        **limits,
        "private": not allow_open_ports,
    }
    sys.stdout.flush()
    sys.stderr.flush()
    command = [sys.executable, "-m", "towers.cluster.local_cluster", json.dumps(order)]
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # until that program handles them
    os.execve(sys.executable, command, task_environment())


def main(argv: Sequence[str]) -> int:
    """Runs the cluster that the one argument describes; returns the exit status."""
    order = json.loads(argv[1])
    if order["private"]:
        try:
            private_network.enter()
        except OSError as error:
            print(
                "error: --local_cluster: TensorFlow's servers listen on every network "
                "interface and let whoever reaches them run anything, and this system "
                f"gives no private network to hide them in ({error}); write "
                "--allow_open_ports to start them all the same, in a network that you "
                "trust",
                file=sys.stderr,
            )
            return 2
    return _Tasks(order).run()


class _Tasks:
    """The processes, by (job, index)."""

    def __init__(self, order: Mapping[str, Any]):
        self._order = order
        counts = order["tasks"]
        self._leader = ("controller" if "controller" in counts else "worker", 0)
        self._names = [(job, i) for job, count in counts.items() for i in range(count)]
        free = iter(free_addresses(len(self._names)))
        hosts = {job: [next(free) for _ in range(n)] for job, n in counts.items()}
        self._hosts = host_flags(hosts)
        self._processes: dict[tuple[str, int], subprocess.Popen] = {}
        self._restarts = dict.fromkeys(self._names, 0)
        self._output = selectors.DefaultSelector()
        self._unfinished: dict[tuple[str, int], bytes] = {}
        self._signals: list[int] = []
        self._noted = 0.0  # when the last one came
        self._terminal = Terminal()
        self._stopped: dict[tuple[str, int], float] = {}  # task -> time of its stop
        self._named: set[tuple[str, int]] = set()
        self._printed: dict[tuple[str, int], collections.deque[str]] = {}
        self._memory_kills = deaths.memory_kills()

    def run(self) -> int:
        """Starts all tasks and waits until the leader ends."""
        for number in heeded():
            signal.signal(number, self._note)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        try:
            for name in self._names:
                self._start(name)
            status = self._watch()
            if status is not None:
                alone = status or self._signals
                grace = _GRACE_AFTER_FAILURE if alone else _GRACE
                if len(self._signals) > 1:
                    grace = 0.0
                self._read_until_gone(time.monotonic() + grace)
            return 1 if status is None else status
        finally:
            for process in self._processes.values():
                process.kill()
            for process in self._processes.values():
                process.wait()
            while self._output.get_map():
                self._read(0.0)

    def _note(self, number: int, frame: object) -> None:
        del frame
        now = time.monotonic()
        if not self._signals or now - self._noted > ECHO_SECONDS:
            self._signals.append(number)
            self._noted = now
        if is_hangup(number):
            self._terminal.forget()

    def _watch(self) -> int | None:
        """Waits for the leader's end; its status, or None if a task ended the run."""
        forwarded = 0
        while True:
            self._read(0.1)
            if len(self._signals) > forwarded:
                if forwarded:  # the second signal
                    return 128 + self._signals[-1]
                self._processes[self._leader].send_signal(self._signals[0])
                forwarded = len(self._signals)
            # All at once, as the leader may end between two checks.
            statuses = {name: task.poll() for name, task in self._processes.items()}
            ended = statuses[self._leader]
            if ended is not None and ended >= 0:
                return ended
            if ended is not None and -ended in self._signals:
                return self._stopped_early(-ended)
            for name, status in statuses.items():
                if status and status > 0 and self._leader_ends():
                    break  # the leader has dismissed it
                if status and self._can_do_without(name, status):
                    continue
                if status and not self._may_go_on(name, status):
                    return None
                self._look_at(name, self._processes[name])

    def _stopped_early(self, number: int) -> int:
        """The status of a run whose leader was ended by a signal during its start."""
        stopped = Interrupted(number)
        left = "nothing was begun; the same command begins it"
        say(f"Stopped by {stopped.name}: {left}.")
        return stopped.status

    def _leader_ends(self) -> bool:
        """Whether the leader ends soon; it may have told the others to exit."""
        until = time.monotonic() + _LEADER_SECONDS
        while time.monotonic() < until:
            ended = self._processes[self._leader].poll()
            if ended is not None:
                return ended >= 0
            self._read(0.05)
        return False

    def _can_do_without(self, name: tuple[str, int], status: int) -> bool:
        """Whether a worker of an elastic run has ended for good; it is forgotten."""
        number = signal_of(status)
        if self._order["elastic"] == "false" or name[0] != "worker" or not number:
            return False
        words = f"{name[0]} {name[1]}"
        if status > 0:  # it got the signal, and the controller let it go
            say(f"{words} has left after {signal.Signals(number).name}")
        elif self._restarts[name] >= self._order["max_restarts"]:
            why = f"after {self._restarts[name]} restarts (--max_restarts)"
            say(f"{words} {self._death(name, number)} {why}; the others go on")
        else:
            return False
        del self._processes[name]
        return True

    def _may_go_on(self, name: tuple[str, int], status: int) -> bool:
        """Restarts a killed task, or prints why the run ends."""
        words = f"{name[0]} {name[1]}"
        number = signal_of(status)
        if number is None:
            say(f"error: {words} ended with status {status}")
            return False
        killed = f"{words} {self._death(name, number)}"
        over = self._signals or any(p.poll() == 0 for p in self._processes.values())
        if over or self._restarts[name] >= self._order["max_restarts"]:
            why = f"after {self._restarts[name]} restarts (see --max_restarts)"
            why = "as the run was ending" if over else why
            say(f"error: {killed} {why}")
            return False
        self._restarts[name] += 1
        say(f"{killed}; it is started again")
        self._start(name)
        return True

    def _death(self, name: tuple[str, int], number: int) -> str:
        """The sentence about a task that a signal ended, after its last output."""
        pipe = self._processes[name].stdout if name in self._processes else None
        until = time.monotonic() + _LAST_WORDS_SECONDS
        while pipe and not pipe.closed and time.monotonic() < until:
            self._read(0.05)
        ran_out = deaths.memory_kills() > self._memory_kills
        printed = self._printed.get(name, ())
        return deaths.words(number, printed, memory_ran_out=ran_out)

    def _look_at(self, name: tuple[str, int], process: subprocess.Popen) -> None:
        """Names a task that is stopped, and kills it if it stays stopped."""
        if not _is_stopped(process.pid):
            self._stopped.pop(name, None)
            self._named.discard(name)
            return
        lasted = time.monotonic() - self._stopped.setdefault(name, time.monotonic())
        if lasted >= self._order["stall_secs"] and name not in self._named:
            self._named.add(name)
            left = self._order["wait_secs"]
            say(
                f"{name[0]} {name[1]} is stopped and does nothing, for "
                f"{lasted:.0f} s (--stall_secs); it is killed after {left} s "
                f"(--wait_secs) unless it is continued: kill -CONT {process.pid}"
            )
        if lasted >= self._order["wait_secs"]:
            process.kill()

    def _start(self, name: tuple[str, int]) -> None:
        job, index = name
        command = [sys.executable, "-m", "towers.train", *self._order["flags"]]
        command += [f"--job_name={job}", f"--task_index={index}", *self._hosts]
        if self._order["kind"] == "gpu":  # on CPUs the tasks see no GPU
            command.append("--device=gpu")
        shown = name == self._leader  # whose lines are printed as they are
        process = subprocess.Popen(
            command,
            env={**os.environ, **self._gpus(job, index)},
            stdin=subprocess.DEVNULL,
            stdout=None if shown else subprocess.PIPE,
            stderr=None if shown else subprocess.STDOUT,
            start_new_session=True,  # so that Ctrl-C does not reach it
            preexec_fn=functools.partial(die_with, os.getpid()),
        )
        self._processes[name] = process
        self._printed.pop(name, None)
        if not shown:
            assert process.stdout is not None  # a pipe
            self._output.register(process.stdout, selectors.EVENT_READ, name)

    def _gpus(self, job: str, index: int) -> dict[str, str]:
        """The environment with a task's GPUs: a worker has its own, or logical ones."""
        if job != "worker" or self._order["kind"] == "cpu":
            return {"CUDA_VISIBLE_DEVICES": ""}
        count, split = self._order["num_gpus"], self._order["gpu_split"]
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        every = visible.split(",") if visible else [str(i) for i in range(1024)]
        gpus = every[index * count // split : -(-(index + 1) * count // split)]
        # Workers that share a GPU must not take all of its memory.
        shared = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"} if split > 1 else {}
        return {"CUDA_VISIBLE_DEVICES": ",".join(gpus), **shared}

    def _read(self, seconds: float) -> None:
        """Prints the output of tasks, for which it waits at most so long."""
        if not self._output.get_map():
            time.sleep(seconds)
        for key, _ in self._output.select(seconds):
            text = os.read(key.fd, 2**16)
            if not text:
                self._output.unregister(key.fileobj)
                cast(IO[bytes], key.fileobj).close()
            self._print(key.data, text)

    def _print(self, name: tuple[str, int], text: bytes) -> None:
        """Prints whole lines with the task's name; at the end of file also the rest."""
        text = self._unfinished.pop(name, b"") + (text or b"\n")
        *lines, self._unfinished[name] = text.split(b"\n")
        for line in filter(None, lines):
            shown = line.decode(errors="replace")
            with contextlib.suppress(OSError):  # the reader has left
                print_line(f"[{name[0]} {name[1]}] {shown}", sys.stderr)
            last = self._printed.setdefault(name, collections.deque(maxlen=_LAST_LINES))
            last.append(shown)

    def _read_until_gone(self, deadline: float) -> None:
        while time.monotonic() < deadline:
            if all(process.poll() is not None for process in self._processes.values()):
                return
            self._read(0.05)


def host_flags(hosts: Mapping[str, Sequence[str]]) -> list[str]:
    """The flags that name a cluster's tasks, from job -> addresses."""
    return [
        f"--{job}_host{'s' * (job != 'controller')}={','.join(addresses)}"
        for job, addresses in hosts.items()
    ]


def signal_of(status: int) -> int | None:
    """The signal that ended a task, from the kernel or the task's exit status."""
    number = -status if status < 0 else status - 128
    return number if status < 0 or number in ENDING else None


def _is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal; one under a debugger is not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


def task_environment() -> dict[str, str]:
    """This process's environment, with the project on Python's path and less logging.

    The project comes after the user's entries.  If it is installed, Python finds it
    anyway, and its folder must not come before the standard library.
    """
    root = str(pathlib.Path(__file__).resolve().parents[2])
    path = list(filter(None, [os.environ.get("PYTHONPATH")]))
    if root not in (*site.getsitepackages(), site.getusersitepackages()):
        path.append(root)
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "2"}
    return {**quiet, **os.environ, "PYTHONPATH": os.pathsep.join(path)}


def free_addresses(count: int) -> list[str]:
    """Addresses, host:port, on which nothing listens at this moment."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return addresses


def die_with(parent: int) -> None:
    """In a child: asks Linux for SIGKILL when the parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
