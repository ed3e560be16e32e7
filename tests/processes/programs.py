"""Programs and whole local clusters, started as users start them, and their output."""

import functools
import os
import pathlib
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import unittest
from collections.abc import Sequence
from typing import TextIO

# What `python -m` has to see.  Not resolved: under Bazel that would leave the sandbox,
# for files not declared.
ROOT = pathlib.Path(__file__).absolute().parents[2]
PATIENCE = 240.0  # seconds; even a busy machine needs a fraction of them


class OutputLines:
    """What a process prints, read in a thread as it comes.

    Args:
      stream: the process's output.

    Attributes:
      lines: those that `line` and `rest` have passed.
      times: when each of these lines came, by `time.monotonic`.
    """

    def __init__(self, stream: TextIO):
        self.lines: list[str] = []
        self.times: list[float] = []
        self._stream = stream
        self._coming: queue.SimpleQueue[tuple[float, str] | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._stream:
            self._coming.put((time.monotonic(), line.rstrip("\n")))
        self._coming.put(None)

    def _next(self, seconds: float) -> str | None:
        """The next line; None at the end, or when none comes in so many seconds."""
        try:
            coming = self._coming.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None
        if coming is None:
            self._coming.put(None)
            return None
        self.times.append(coming[0])
        self.lines.append(coming[1])
        return coming[1]

    def line(self, pattern: str, seconds: float = PATIENCE) -> str:
        """Waits for a line in which a regular expression is found, and returns it.

        Raises:
          AssertionError: the output ends, or the time is up, without such a line.
        """
        until = time.monotonic() + seconds
        while (line := self._next(until - time.monotonic())) is not None:
            if re.search(pattern, line):
                return line
        shown = "\n".join(self.lines[-30:])
        raise AssertionError(f"no line with {pattern!r} in\n{shown}")

    def rest(self, seconds: float = PATIENCE) -> None:
        """Reads lines to the last, or until none comes in so many seconds."""
        while self._next(seconds) is not None:
            pass


class Program(OutputLines):
    """A process, and the lines of its stdout and stderr.

    Args:
      command: the program and its arguments.
      data_dir: where TFDS keeps its data sets; its own default when empty.

    Attributes:
      process: the process.
    """

    def __init__(self, command: Sequence[str], *, data_dir: str = ""):
        self.process = subprocess.Popen(
            command,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                **({"TFDS_DATA_DIR": data_dir} if data_dir else {}),
                "TF_CPP_MIN_LOG_LEVEL": "3",
                "CUDA_VISIBLE_DEVICES": "",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        super().__init__(self.process.stdout)

    def end(self, seconds: float = PATIENCE) -> int:
        """Waits for the end; returns the exit status."""
        status = self.process.wait(seconds)
        self.rest()
        return status


class LaunchedCluster(Program):
    """`python -m towers.train --local_cluster=...`; its process is the launcher.

    Args:
      flags: of the command line.
      data_dir: as `Program` has it.
      tasks: `--local_cluster`.
    """

    def __init__(self, *flags: str, data_dir: str = "", tasks: str = "ps:1,worker:2"):
        command = [sys.executable, "-m", "towers.train", f"--local_cluster={tasks}"]
        super().__init__([*command, "--device=cpu", *flags], data_dir=data_dir)
        self._tasks: set[int] = set()

    def pid(self, job: str, index: int = 0) -> int:
        """The process id of a task; waits until it has been started.

        Raises:
          AssertionError: it is not started in `PATIENCE` seconds.
        """
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            for pid in self._children():
                if self._is(pid, job, index):
                    return pid
            time.sleep(0.05)
        raise AssertionError(f"there is no {job} {index}")

    def _is(self, pid: int, job: str, index: int) -> bool:
        """Whether a process is a task."""
        words = _command(pid)
        return {f"--job_name={job}", f"--task_index={index}"} <= set(words)

    def _children(self) -> set[int]:
        """The launcher's children now; adds them to those seen so far."""
        path = pathlib.Path(
            f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        )
        try:
            pids = {int(pid) for pid in path.read_text().split()}
        except OSError:
            pids = set()
        self._tasks |= pids
        return pids

    def left(self, seconds: float = 10.0) -> list[int]:
        """Process ids of the tasks that still run after so many seconds."""
        until = time.monotonic() + seconds
        while True:
            left = [p for p in self._tasks if "towers.train" in str(_command(p))]
            if not left or time.monotonic() > until:
                return left
            time.sleep(0.1)

    def kill(self) -> None:
        """Kills the launcher, and the tasks that outlive it."""
        self._children()
        self.process.kill()
        self.process.wait()
        for pid in self.left(seconds=5.0):
            os.kill(pid, signal.SIGKILL)


def _command(pid: int) -> list[str]:
    """A process's command line; empty when it has ended."""
    try:
        text = pathlib.Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return []
    return text.split("\0")


def need_private_networks() -> None:
    """Skips the test where the system gives no process a network of its own."""
    if _status_of_entering():
        raise unittest.SkipTest("this system has no private networks")


@functools.cache
def _status_of_entering() -> int:
    words = "from towers.cluster import private_network; private_network.enter()"
    tried = subprocess.run(
        [sys.executable, "-c", words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
    )
    return tried.returncode
