"""The log of the workers whose gradients a run has used, from which it can be repeated.

    {"step": 0, "workers": [0, 1, 2, 3]}
    {"step": 36, "workers": [0, 2, 3]}

`TRAIN_DIR/membership.jsonl` has a line where the workers change, and where a run is
taken up: after `step` steps and on, the gradients of these workers were used.  A line
makes the earlier ones void from its step on, as the run was then taken up there.
"""

import dataclasses
import json
import os
from collections.abc import Iterator, Sequence

from flags.problem import Problem, SettingError, wrong_setting
from towers.errors.side_outputs import SideOutputs, append_line

FILE = "membership.jsonl"  # in the folder of the checkpoints

_REMEDY = f"name the {FILE} of an earlier run"

Workers = tuple[int, ...]  # their numbers, in increasing order


@dataclasses.dataclass(frozen=True)
class MembershipLog:
    """The workers of each step.

    Attributes:
      changes: (number of steps before, the workers from there on), in order.
    """

    changes: tuple[tuple[int, Workers], ...]

    @classmethod
    def read(cls, path: str) -> "MembershipLog":
        """Reads the file that `--replay_membership` names.

        Raises:
          ValueError: it cannot be read, or is no such log.
        """
        try:
            with open(path, encoding="utf-8") as file:
                lines = file.read().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            words = f"cannot be read ({reason})"
            raise wrong_setting("replay_membership", path, words, _REMEDY) from error
        changes: list[tuple[int, Workers]] = []
        for number, line in enumerate(lines, 1):
            try:
                step, workers = _parsed(line)
            except (ValueError, LookupError, TypeError, RecursionError) as error:
                words = f"line {number} is {line[:60]!r}, which names no step's workers"
                raise wrong_setting(
                    "replay_membership", path, words, _REMEDY
                ) from error
            while changes and changes[-1][0] >= step:
                changes.pop()
            changes.append((step, workers))
        if not changes:
            raise wrong_setting("replay_membership", path, "is empty", _REMEDY)
        return cls(tuple(changes))

    def workers(self, step: int) -> Workers:
        """The workers of the step that follows `step` steps.

        Raises:
          ValueError: the log begins later.
        """
        first, _ = self.changes[0]
        if step < first:
            words = f"begins after step {first}, and this run goes on from step {step}"
            raise SettingError(Problem("replay_membership", None, words, _REMEDY))
        return [workers for begin, workers in self.changes if begin <= step][-1]

    def next_change(self, step: int) -> int | None:
        """The first step after `step` at which the log has other workers, or None."""
        return next((begin for begin, _ in self._new() if begin > step), None)

    def _new(self) -> Iterator[tuple[int, Workers]]:
        """The changes without those lines that repeat the workers before."""
        before = None
        for begin, workers in self.changes:
            if workers != before:
                yield begin, workers
            before = workers


class MembershipFile:
    """Writes the log of a run; without a folder it writes nothing.

    Args:
      directory: of the run's checkpoints, or None.
      side: notes lines that cannot be written.
    """

    def __init__(self, directory: str | None, side: SideOutputs):
        self._path = directory and os.path.join(directory, FILE)
        self._side = side
        self._workers: Workers | None = None

    def note(self, step: int, workers: Sequence[int]) -> None:
        """Writes a line if these workers are not those of the note before.

        Args:
          step: number of steps before those of these workers.
          workers: their numbers.
        """
        workers = tuple(sorted(workers))
        if not self._path or workers == self._workers:
            return
        self._workers = workers
        line = json.dumps({"step": step, "workers": workers})
        with self._side.writing("lines of workers", self._path):
            append_line(self._path, line)


def _parsed(line: str) -> tuple[int, Workers]:
    """The step and the workers of a line."""
    entry = json.loads(line)
    step, workers = entry["step"], tuple(entry["workers"])
    numbers = [step, *workers]
    if not workers or any(type(n) is not int or n < 0 for n in numbers):
        raise ValueError(line)
    if list(workers) != sorted(set(workers)):
        raise ValueError(line)
    return step, workers
