"""That a run failed, and why: left beside its checkpoints for who waits for them.

An evaluator sees nothing of a run but the checkpoints that it writes, and would wait
for ever for those of one that failed.
"""

import os

_NAME = "failure"  # of the file


def clear(directory: str | None) -> None:
    """Forgets an earlier failure: the run has begun again."""
    if directory:
        try:
            os.remove(os.path.join(directory, _NAME))
        except OSError:
            pass  # there was none


def leave(directory: str | None, reason: str) -> None:
    """Leaves the reason, whole or not at all; in vain where nothing can be written."""
    if not directory:
        return
    path = os.path.join(directory, _NAME)
    try:
        os.makedirs(directory, exist_ok=True)
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            file.write(reason + "\n")
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
