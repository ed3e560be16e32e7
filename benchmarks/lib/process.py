"""Runs a command in a process group of its own; records when it printed each line."""

import contextlib
import dataclasses
import os
import re
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).absolute().parents[2]  # where `python -m benchmarks.X` works

TOTAL = re.compile(r"total images/sec: (\d+\.?\d*)")


@dataclasses.dataclass(frozen=True)
class Command:
    """What to run, and where.

    Attributes:
      argv: program and arguments.
      env: variables of the environment, in addition to this process's own.
      cwd: working directory.
    """

    argv: Sequence[str]
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    cwd: str = str(ROOT)

    def __str__(self) -> str:
        return " ".join([*(f"{k}={v}" for k, v in self.env.items()), *self.argv])


@dataclasses.dataclass(frozen=True)
class Finished:
    """A command that has ended.

    Attributes:
      status: exit status; minus the number of the signal if one ended it.
      lines: (seconds since the start, text) of each line of stdout and stderr.
      seconds: from start to end.
      cpu_seconds: of it and its children.
      others: average number of CPUs that other programs kept busy meanwhile; None where
        there is no /proc/stat.  With much other load the measurement is useless.
      timed_out: whether it was killed at the timeout.
      peak_bytes: the largest resident set of it or of a child of it; no less than that
        of the process that started it, which Linux counts in.
    """

    status: int
    lines: Sequence[tuple[float, str]]
    seconds: float
    cpu_seconds: float = 0.0
    others: float | None = None
    timed_out: bool = False
    peak_bytes: int = 0

    def when(self, pattern: str) -> float | None:
        """Seconds from the start to the first line that the pattern matches."""
        for seconds, text in self.lines:
            if re.match(pattern, text):
                return seconds
        return None

    @property
    def images_per_second(self) -> float | None:
        """The number of its last `total images/sec:` line; None if it failed."""
        matches = [TOTAL.match(text) for _, text in self.lines]
        rates = [float(match[1]) for match in matches if match]
        return (rates[-1] or None) if rates and self.status == 0 else None

    @property
    def complaint(self) -> str:
        """Why it failed: its last line that is not empty."""
        if self.timed_out:
            return f"no end after {self.seconds:.0f} s"
        texts = [text.strip() for _, text in self.lines if text.strip()]
        return texts[-1] if texts else f"exit status {self.status}, no output"


def run(command: Command, *, timeout: float = 600.0) -> Finished:
    """Runs a command to its end.

    Args:
      command: what to run.
      timeout: seconds after which it is killed, its children too.
    """
    lines: list[tuple[float, str]] = []
    killed = threading.Event()
    cpu, busy, begun = _children(), _busy(), time.perf_counter()
    with subprocess.Popen(
        list(command.argv),
        cwd=command.cwd,
        env={**os.environ, **command.env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as child:
        timer = threading.Timer(timeout, _kill_group, (child.pid, killed))
        timer.start()
        try:
            for line in child.stdout:
                lines.append((time.perf_counter() - begun, line.rstrip("\n")))
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        finally:
            timer.cancel()
            # After a Ctrl-C, the whole group; otherwise processes the child left.
            _kill_group(child.pid)
    seconds = time.perf_counter() - begun
    cpu = _children() - cpu
    other_cpus = None if busy is None else max(0.0, (_busy() - busy - cpu) / seconds)
    return Finished(
        child.returncode,
        lines,
        seconds,
        cpu,
        other_cpus,
        killed.is_set(),
        usage.ru_maxrss * 1024,
    )


def _kill_group(group: int, note: threading.Event | None = None) -> None:
    if note is not None:
        note.set()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _children() -> float:
    """CPU seconds of this process's children that have ended, theirs included."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _busy() -> float | None:
    """CPU seconds since boot, of everybody; time stolen by other guests included."""
    try:
        first = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
    except OSError:
        return None
    user, nice, system, _, _, irq, softirq, stolen = map(int, first.split()[1:9])
    ticks = user + nice + system + irq + softirq + stolen
    return ticks / os.sysconf("SC_CLK_TCK")
