"""Whole local clusters whose processes are forked instead of started anew.

They are forked from a process that has imported TensorFlow, since its import takes
longer than most of what the tasks do.  The launcher and its tasks do all the rest that
those of `programs.LaunchedCluster` do.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.process import BaseProcess
from typing import Any, NoReturn
from unittest import mock

from tests.processes import manual_tasks, programs
from tests.processes.known_peak import KNOWN_PEAK
from towers import start
from towers.cluster import local_cluster
from towers.errors.terminal import ENDING

_LAUNCH = "from tests.processes import forked_cluster; forked_cluster.launch()"


class ForkedCluster(programs.LaunchedCluster):
    """As `LaunchedCluster`; takes a fraction of its processor time."""

    def __init__(self, *flags: str, data_dir: str = "", tasks: str = "ps:1,worker:2"):
        environment = {
            "PYTHONPATH": str(programs.ROOT),
            **({"TFDS_DATA_DIR": data_dir} if data_dir else {}),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "CUDA_VISIBLE_DEVICES": "",
        }
        words = [f"--local_cluster={tasks}", "--device=cpu", *flags]
        process, printed = manual_tasks.fork(words, environment, program=_LAUNCH)
        self.process, self._tasks = _Launcher(process), set()
        programs.OutputLines.__init__(self, printed)

    def _is(self, pid: int, job: str, index: int) -> bool:
        return _name(pid) == f"{job} {index}"


class _Launcher:
    """A forked process, with the names that `subprocess.Popen` has."""

    def __init__(self, process: BaseProcess):
        self._process, self.pid = process, process.pid

    def wait(self, seconds: float | None = None) -> int:
        """Returns the exit status.

        Raises:
          subprocess.TimeoutExpired: it runs on after so many seconds.
        """
        self._process.join(seconds)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("the launcher", seconds or 0.0)
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


def launch() -> NoReturn:
    """Does what `python -m towers.train --local_cluster=...` does, with its words.

    The tasks are forked from this process, in which no graph was ever made.
    """
    # As `local_cluster.become` leaves them.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    order, environment = _order()
    os.environ.update(environment)
    names = {name: getattr(subprocess, name) for name in ("PIPE", "STDOUT", "DEVNULL")}
    with mock.patch.object(
        local_cluster, "subprocess", types.SimpleNamespace(**names, Popen=_Task)
    ):
        _leave(local_cluster.main(["local_cluster", order]))


def _order() -> list[Any]:
    """What the launcher is asked for: its argument, and its environment.

    A process of its own reads the flags, so that this one remains as it was.  If it
    refuses them, this process ends as that one does.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        with mock.patch.object(os, "execve", _write_to(writer)):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
            _become_program()
    os.close(writer)
    with os.fdopen(reader) as told:
        text = told.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if not text:
        _leave(status)
    return json.loads(text)


def _write_to(writer: int) -> Callable:
    """An `os.execve` that tells the arguments and ends the process."""

    def tell(program: str, words: Sequence[str], environment: Mapping[str, str]):
        del program
        with os.fdopen(writer, "w") as file:
            json.dump([words[-1], dict(environment)], file)
        os._exit(0)

    return tell


class _Task:
    """What `subprocess.Popen` is for a task of the cluster."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        stdout: int | None,
        preexec_fn: Callable[[], None],
        **_: Any,
    ):
        self.stdout, self.returncode = None, None
        pipe = os.pipe() if stdout == subprocess.PIPE else None
        self.pid = os.fork()
        if not self.pid:
            if pipe:
                os.dup2(pipe[1], 1)
                os.dup2(pipe[1], 2)
            os.setsid()
            preexec_fn()
            for number in ENDING:
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            job, index = (word.partition("=")[2] for word in _named(command))
            os.environ.clear()
            os.environ.update(env)
            sys.argv = ["train", *command[3:]]
            _set_name(f"{job} {index}")
            _become_program()
        if pipe:
            os.close(pipe[1])
            self.stdout = os.fdopen(pipe[0], "rb", 0)

    def poll(self) -> int | None:
        self._wait(os.WNOHANG)
        return self.returncode

    def wait(self) -> int:
        self._wait(0)
        return self.returncode

    def _wait(self, how: int) -> None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, how)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _named(command: Sequence[str]) -> list[str]:
    """The words of a command that say which task it is: its job and its index."""
    starts = ("--job_name=", "--task_index=")
    return [w for start in starts for w in command if w.startswith(start)]


def _become_program() -> NoReturn:
    """Does what `python -m towers.train` does, and ends the process."""
    status: Any = 1
    try:
        with KNOWN_PEAK:
            train = importlib.import_module("towers.train")
            start.take_interrupts()
            train.program()
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
    _leave(status)


def _leave(status: Any) -> NoReturn:
    """Ends this process, which has no parents' frames to return to."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status or 0)


_COMM = "/proc/{}/comm"  # the kernel's name of a process, of 15 bytes


def _name(pid: int) -> str:
    """The name that a process has given itself; empty when it has ended."""
    try:
        with open(_COMM.format(pid), encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def _set_name(name: str) -> None:
    with open(_COMM.format("self"), "w", encoding="utf-8") as file:
        file.write(name)
