"""Tasks of an elastic cluster are killed, frozen or cut off, leave, and come back.

    python -m benchmarks.lib.disturbed_run ORDER

ORDER is JSON: `flags` of the run, the `folder` of its checkpoints, and `events`, each a
`Disturbance`, or else `steps` after which the run ends by itself.  Each task is on a
host of its own (`bridged_hosts`), in a private network, for which this program must not
have imported TensorFlow.  Lines about the progress go to stderr; the one line of stdout
is a `Result` as JSON.
"""

import contextlib
import dataclasses
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from benchmarks.lib.disturbances import ENDING, LEADER, NAMES, WORKERS, Disturbance
from tests.processes.bridged_hosts import BridgedHosts
from tests.processes.manual_tasks import Name, Task
from towers.cluster import private_network

_PATIENCE = 180.0  # without a step, though all tasks are there, until it is a hang
_END_SECONDS = 90.0
_JOIN_SECONDS = 20.0
_LOOK_SECONDS = 0.02
_STEP_SECONDS = "0.05"  # that each step takes longer
_LAST_LINES = 25  # of a task, which are shown after a fault
_LEFT = 128 + signal.SIGTERM
_SIGNALS = {
    "killed": signal.SIGKILL,
    "frozen": signal.SIGSTOP,
    "leaves": signal.SIGTERM,
}

_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
# What a task runs.
_PROGRAM = """
from tests.processes import bridged_hosts
from tests.processes.known_peak import KNOWN_PEAK
from towers import train

bridged_hosts.enter({})
with KNOWN_PEAK:
    train.program()
"""


@dataclasses.dataclass
class Result:
    """What a run has shown.

    Attributes:
      timed: (what, seconds from it to the next step) of each disturbance after which
        that can be told.
      faults: in words; there should be none.
      hangs: how many of them are hangs.
      left: processes that still ran after the end.
      bytes: resident in (ps 0, the controller) after each disturbance.
    """

    timed: list[tuple[str, float]]
    faults: list[str]
    hangs: int = 0
    left: int = 0
    bytes: list[tuple[int, int]] = dataclasses.field(default_factory=list)


class _HangError(Exception):
    """No step has come for `_PATIENCE`."""


class _Moment(NamedTuple):
    """A time by `time.monotonic`, and how many steps and changes there were before."""

    at: float
    steps: int
    changes: int


class DisturbedRun:
    """A cluster, and what happens to it.

    Args:
      hosts: one for each task.
      flags: of every task.
      log: to which the controller writes a line after each step.
    """

    def __init__(self, hosts: BridgedHosts, flags: Sequence[str], log: str):
        self._hosts, self._log, self._flags = hosts, log, list(flags)
        self.result = Result([], [])
        addresses = {name: f"{hosts.address(k)}:2222" for k, name in enumerate(NAMES)}
        self._leader_address = addresses[LEADER]
        of = {job: [addresses[n] for n in NAMES if n[0] == job] for job, _ in NAMES}
        self._listed = [
            f"--ps_hosts={','.join(of['ps'])}",
            f"--worker_hosts={','.join(of['worker'])}",
            f"--controller_host={self._leader_address}",
        ]
        self._tasks: dict[Name, Task] = {}
        self._away: dict[Name, tuple[float, Disturbance]] = {}
        self._steps: list[float] = []  # when the end of each was seen
        self._log_bytes = 0  # that were read
        self._members: list[int] = []  # number of workers after each change
        self._back = _Moment(0.0, 0, 0)  # the last time that a task came back
        for name in NAMES:
            self._start(name)

    def _start(self, name: Name, *, unknown: bool = False) -> None:
        job, index = name
        where = [*self._listed, f"--task_index={index}"]
        if unknown:
            where = [f"--join={self._leader_address}"]
        program = _PROGRAM.format(self._hosts.pid(NAMES.index(name)))
        words = [*self._flags, *where, f"--job_name={job}"]
        self._tasks[name] = Task(words, program=program)

    def disturb(self, disturbances: Sequence[Disturbance]) -> None:
        """Lets all of them happen, then stops the run."""
        try:
            self._wait_for_step(self._now())
            for number, disturbance in enumerate(disturbances, 1):
                words = f"{number} of {len(disturbances)}: {disturbance}"
                self._say(words)
                self._disturb(disturbance)
            # Those that came back last are known to the controller by then.
            self._wait(self._all_take_part, _JOIN_SECONDS)
            self._wait_for_step(self._now())
        except _HangError as hang:
            self.result.hangs += 1
            self._fault(f"{hang}: {self._last_lines()}")
        else:
            self._signal(LEADER, signal.SIGTERM)
            self._end(_LEFT)

    def end_by_itself(self) -> None:
        """Waits until the steps are done."""
        self._tasks[LEADER].end(10 * _PATIENCE)
        self._end(0)

    def kill(self) -> None:
        """Kills all tasks that still run."""
        for task in self._tasks.values():
            task.process.kill()
            task.process.join()

    def _say(self, words: str) -> None:
        print(words, file=sys.stderr, flush=True)

    def _fault(self, words: str) -> None:
        self._say(words)
        self.result.faults.append(words)

    def _now(self) -> _Moment:
        self._look()
        return _Moment(time.monotonic(), len(self._steps), len(self._members))

    def _disturb(self, disturbance: Disturbance) -> None:
        name = disturbance.name
        self._wait(lambda: name not in self._away, _PATIENCE)
        due = time.monotonic() + disturbance.after
        self._wait(lambda: time.monotonic() >= due, disturbance.after + 1.0)
        begun = self._now()
        if disturbance.kind.endswith("cut off"):
            self._hosts.cut_off(NAMES.index(name))
        else:
            self._signal(name, _SIGNALS[disturbance.kind.split()[1]])
        self._away[name] = (begun.at + disturbance.away, disturbance)
        if disturbance.hasty:
            return
        alone, worker = len(self._away) == 1, name[0] == "worker"
        if worker:  # the others go on
            self._note(disturbance.kind, alone, self._wait_for_step(begun))
        if not self._wait(lambda: not self._away, _PATIENCE):
            raise _HangError(f"not back: {', '.join(map(str, self._away))}")
        seconds = self._wait_for_step(self._back)
        if not worker:  # without it there is no step
            self._note(disturbance.kind, alone, seconds)
        elif self._was_lost(disturbance, begun):
            since = self._back
            if self._wait(self._all_take_part, _JOIN_SECONDS):
                joined = self._now().at
                step = self._wait_for_step(self._now())
                self._note("worker joins", alone, joined + step - since.at)
        self._note_memory()

    def _was_lost(self, disturbance: Disturbance, begun: _Moment) -> bool:
        ended = disturbance.kind.split()[1] in ENDING
        return ended or len(self._members) > begun.changes

    def _all_take_part(self) -> bool:
        return bool(self._members) and self._members[-1] == WORKERS

    def _note(self, what: str, alone: bool, seconds: float) -> None:
        self.result.timed.append((what if alone else "several at once", seconds))
        self._say(f"  {self.result.timed[-1][0]}: {seconds:.2f} s")

    def _note_memory(self) -> None:
        pids = [self._tasks[name].process.pid or 0 for name in (("ps", 0), LEADER)]
        first, second = map(resident_bytes, pids)
        self.result.bytes.append((first, second))

    def _signal(self, name: Name, number: int) -> None:
        process = self._tasks[name].process
        with contextlib.suppress(ProcessLookupError):  # noted by `_look`
            os.kill(process.pid or 0, number)
        if number == signal.SIGKILL:
            process.join()

    def _wait(self, until: Callable[[], bool], seconds: float) -> bool:
        """Whether something becomes true in so many seconds."""
        deadline = time.monotonic() + seconds
        while not until():
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_SECONDS)
            self._look()
        return True

    def _wait_for_step(self, since: _Moment) -> float:
        """Seconds to the end of the first step that began since a moment.

        Raises:
          _HangError: there is none.
        """
        # The first that ends may have been under way.
        enough = since.steps + 2
        if not self._wait(lambda: len(self._steps) >= enough, _PATIENCE):
            raise _HangError(f"hang: no step for {_PATIENCE:.0f} s")
        return self._steps[enough - 1] - since.at

    def _look(self) -> None:
        """Notes new steps, members and ends, and brings back tasks that are due."""
        for name, task in self._tasks.items():
            seen = len(task.lines)
            task.rest(0.0)
            if name == LEADER:
                for line in task.lines[seen:]:
                    if words := re.match(r"Workers from step \d+ on: ([^;]*)", line):
                        self._members.append(len(re.findall(r"\d+", words[1])))
        now = time.monotonic()
        with contextlib.suppress(FileNotFoundError), open(self._log, "rb") as file:
            file.seek(self._log_bytes)
            text = file.read()
            self._log_bytes += len(text)
            self._steps += [now] * text.count(b"\n")
        for name, (due, disturbance) in list(self._away.items()):
            if now >= due:
                self._bring_back(name, disturbance, due)
        for name, task in list(self._tasks.items()):
            status = task.process.exitcode
            if status is not None and name not in self._away:
                task.rest(1.0)
                lines = "\n    ".join(task.lines[-_LAST_LINES:])
                self._fault(f"{name} ended with status {status}:\n    {lines}")
                if name == LEADER:
                    raise _HangError("the run is over")
                self._start(name)

    def _bring_back(self, name: Name, disturbance: Disturbance, due: float) -> None:
        how = disturbance.kind.split(maxsplit=1)[1]
        status = self._tasks[name].process.exitcode
        if how == "leaves" and status is None:
            if time.monotonic() < due + _PATIENCE:
                return
            self._fault(f"{name} does not leave: {self._last_lines()}")
            self._signal(name, signal.SIGKILL)
        elif how == "leaves" and status != _LEFT:
            self._fault(f"{name} left with status {status}")
        if how in ENDING:
            self._start(name, unknown=disturbance.unknown)
        elif how == "frozen":
            self._signal(name, signal.SIGCONT)
        else:
            self._hosts.join(NAMES.index(name))
        del self._away[name]
        self._back = _Moment(time.monotonic(), len(self._steps), len(self._members))

    def _last_lines(self) -> str:
        words = []
        for name, task in self._tasks.items():
            task.rest(0.0)
            words += [f"{name}:", *task.lines[-_LAST_LINES:]]
        return "\n    ".join(words)

    def _end(self, status: int) -> None:
        """Waits for the end of all tasks, which should have this status."""
        until = time.monotonic() + _END_SECONDS
        for name, task in self._tasks.items():
            task.process.join(max(0.0, until - time.monotonic()))
            ended = task.process.exitcode
            if ended != status:
                words = "still runs" if ended is None else f"ended with {ended}"
                task.rest(0.0)
                lines = "\n    ".join(task.lines[-_LAST_LINES:])
                self._fault(f"after the end, {name} {words}:\n    {lines}")
        left = self._hosts.processes()
        self.result.left = len(left)


def resident_bytes(pid: int) -> int:
    """Memory of a process; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def main(argv: Sequence[str]) -> int:
    """Does what the order says; returns the exit status."""
    order = json.loads(argv[1])
    log = os.path.join(order["folder"], "examples")
    os.environ |= {"STEP_EXAMPLES": log, **_QUIET}
    os.environ["STEP_SECONDS"] = "0" if order["steps"] else _STEP_SECONDS
    try:
        private_network.enter()
        hosts = BridgedHosts(len(NAMES))
    except OSError as error:
        print(
            f"error: this system gives no private networks ({error})", file=sys.stderr
        )
        return 2
    run = None
    try:
        run = DisturbedRun(hosts, order["flags"], log)
        if order["steps"]:
            run.end_by_itself()
        else:
            run.disturb([Disturbance(*each) for each in order["events"]])
    finally:
        if run:
            run.kill()
        hosts.end()
    print(json.dumps(dataclasses.asdict(run.result)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
