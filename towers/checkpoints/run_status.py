"""A file next to the checkpoints that says why a run failed, or that it ended early.

An evaluator sees only the checkpoints of a run.  Without this file it would wait
forever after a run has failed, or has reached its target before its last step.
"""

import contextlib
import math
import os

_NAME, _END = "failure", "end"  # of the files


def clear(directory: str | None) -> None:
    """Removes the files of an earlier failure or end, as the run has started again."""
    if not directory:
        return
    for name in (_NAME, _END):
        try:
            os.remove(os.path.join(directory, name))
        except OSError:
            pass  # there was none


def leave(directory: str | None, reason: str) -> None:
    """Writes the reason atomically; does nothing if the folder is not writable.

    On a full disk the file can often be made, but not its text; it is then empty.
    """
    _write(directory, _NAME, reason)


def leave_end(directory: str | None, step: int) -> None:
    """Writes the global step at which a run stopped before its planned last step."""
    _write(directory, _END, str(step))


def end(directory: str) -> float:
    """The step that `leave_end` wrote, or infinity."""
    try:
        with open(os.path.join(directory, _END), encoding="utf-8") as file:
            return float(file.read(100))
    except (OSError, ValueError):
        return math.inf


def _write(directory: str | None, name: str, text: str) -> None:
    if not directory:
        return
    path = os.path.join(directory, name)
    # The run is failing already, and its own error must not be masked.
    with contextlib.suppress(OSError):
        os.makedirs(directory, exist_ok=True)
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            file.write(text + "\n")
    with contextlib.suppress(OSError):
        os.replace(f"{path}.new", path)


class Lookout:
    """Finds failures written after its creation; others are of earlier runs.

    Args:
      directory: of the run.
    """

    def __init__(self, directory: str):
        self._path = os.path.join(directory, _NAME)
        self._before = self._which()

    def _which(self) -> tuple[int, int] | None:
        """The identity of the file; not its time, as the clocks of hosts may differ."""
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    def __call__(self) -> str:
        """The reason, or "" while nothing has failed."""
        if self._which() in (None, self._before):
            return ""
        try:
            with open(self._path, encoding="utf-8", errors="replace") as file:
                reason = file.readline(1000).strip()
                return f"the training failed: {reason or 'its output says why'}"
        except FileNotFoundError:  # the run starts again at this moment
            return ""
