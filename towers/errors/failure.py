"""That a run failed, and why: left beside its checkpoints for who waits for them.

An evaluator sees nothing of a run but the checkpoints that it writes, and would wait
for ever for those of one that failed, or of one that had done enough before its time.
"""

import math
import os

_NAME, _END = "failure", "end"  # of the files


def clear(directory: str | None) -> None:
    """Forgets an earlier failure or end: the run has begun again."""
    for name in (_NAME, _END) if directory else ():
        try:
            os.remove(os.path.join(directory, name))
        except OSError:
            pass  # there was none


def leave(directory: str | None, reason: str) -> None:
    """Leaves the reason, whole or not at all; in vain where nothing can be written."""
    _write(directory, _NAME, reason)


def leave_end(directory: str | None, step: int) -> None:
    """Leaves the step at which a run ends that does not go to its last one."""
    _write(directory, _END, str(step))


def end(directory: str) -> float:
    """The step that `leave_end` left; infinite if it did not."""
    try:
        with open(os.path.join(directory, _END), encoding="utf-8") as file:
            return float(file.read(100))
    except (OSError, ValueError):
        return math.inf


def _write(directory: str | None, name: str, text: str) -> None:
    if not directory:
        return
    path = os.path.join(directory, name)
    try:
        os.makedirs(directory, exist_ok=True)
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            file.write(text + "\n")
        os.replace(f"{path}.new", path)
    except OSError:
        pass  # the run fails with a reason of its own, which is to be seen


class Lookout:
    """Finds failures that are left from now on; one before was of an earlier run.

    Args:
      directory: of the run.
    """

    def __init__(self, directory: str):
        self._path = os.path.join(directory, _NAME)
        self._before = self._which()

    def _which(self) -> tuple[int, int] | None:
        """Which file there is: hosts' clocks may differ, so they are not compared."""
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    def __call__(self) -> str:
        """The reason, or "" while nothing has failed."""
        if self._which() in (None, self._before):
            return ""
        try:
            with open(self._path, encoding="utf-8", errors="replace") as file:
                return f"the training failed: {file.readline(1000).strip()}"
        except FileNotFoundError:  # the run begins again at this moment
            return ""
