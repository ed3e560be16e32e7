"""A whole local cluster, started as users start it, and its processes."""

import os
import pathlib
import queue
import re
import signal
import subprocess
import sys
import threading
import time

import towers

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(towers.__file__)))
PATIENCE = 240.0  # seconds, on a busy machine


class Launched:
    """`python -m towers.train --local_cluster=...`.

    Args:
      flags: of the command line.
      data_dir: where TFDS keeps its data sets; its own default when empty.
      tasks: `--local_cluster`.

    Attributes:
      process: the launcher.
      lines: what it printed so far, both streams.
    """

    def __init__(self, *flags: str, data_dir: str = "", tasks: str = "ps:1,worker:2"):
        environment = {
            **os.environ,
            "PYTHONPATH": _ROOT,
            **({"TFDS_DATA_DIR": data_dir} if data_dir else {}),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "CUDA_VISIBLE_DEVICES": "",
        }
        command = [sys.executable, "-m", "towers.train", f"--local_cluster={tasks}"]
        self.process = subprocess.Popen(
            [*command, "--device=cpu", *flags],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._coming: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._tasks: set[int] = set()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self._coming.put(line.rstrip("\n"))
        self._coming.put(None)

    def line(self, pattern: str, seconds: float = PATIENCE) -> str:
        """Waits for a line that the pattern is found in; returns it."""
        until = time.monotonic() + seconds
        while True:
            try:
                line = self._coming.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                line = None
            if line is None:
                shown = "\n".join(self.lines[-30:])
                raise AssertionError(f"no line with {pattern!r} in\n{shown}")
            self.lines.append(line)
            if re.search(pattern, line):
                return line

    def end(self) -> int:
        """Waits for the end; returns the exit status."""
        status = self.process.wait(PATIENCE)
        while (line := self._coming.get(timeout=PATIENCE)) is not None:
            self.lines.append(line)
        return status

    def pid(self, job: str, index: int = 0) -> int:
        """Of a task, once it has been started."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            for pid in self._children():
                words = _command(pid)
                if {f"--job_name={job}", f"--task_index={index}"} <= set(words):
                    return pid
            time.sleep(0.05)
        raise AssertionError(f"there is no {job} {index}")

    def _children(self) -> set[int]:
        """The tasks' processes, those that were too."""
        path = pathlib.Path(
            f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        )
        try:
            found = {int(pid) for pid in path.read_text().split()}
        except OSError:
            found = set()
        self._tasks |= found
        return found

    def left(self, seconds: float = 10.0) -> list[int]:
        """The tasks that are still there after so long."""
        until = time.monotonic() + seconds
        while True:
            left = [pid for pid in self._tasks if "towers.train" in _command(pid)]
            if not left or time.monotonic() > until:
                return left
            time.sleep(0.1)

    def kill(self) -> None:
        """Ends it and whatever it left."""
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


def have_private_networks() -> bool:
    """Whether this system gives a process a network of its own."""
    words = "from towers.tasks import private_network; private_network.enter()"
    return not subprocess.run(
        [sys.executable, "-c", words],
        env={**os.environ, "PYTHONPATH": _ROOT},
        capture_output=True,
    ).returncode
