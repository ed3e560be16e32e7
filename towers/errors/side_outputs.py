"""Outputs of a run besides its checkpoints; failures to write them do not end it."""

import contextlib
import os
from collections.abc import Iterator

import tensorflow as tf

from towers.errors import explain
from towers.errors.collected import warn


class SideOutputs:
    """Writes the side outputs of a run.

    If one cannot be written, it is left out and counted; a warning is printed once for
    each kind.
    """

    def __init__(self) -> None:
        self._left_out: dict[str, tuple[str, int]] = {}  # kind -> (place, writes)

    @contextlib.contextmanager
    def writing(self, what: str, path: str) -> Iterator[None]:
        """Leaves out what this block writes, from the first error on.

        Args:
          what: the kind, in the plural.
          path: where.
        """
        try:
            yield
        except (OSError, tf.errors.OpError) as error:
            self.leave_out(what, path, error)

    def write(self, what: str, path: str, content: str | bytes) -> None:
        """Writes a file, of which no half is left; arguments as `writing`."""
        data = content.encode() if isinstance(content, str) else content
        with self.writing(what, path):
            os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
            try:
                with open(path, "wb") as file:
                    file.write(data)
            except OSError:
                # It may be a pipe or the standard output.
                if os.path.isfile(path) and not os.path.islink(path):
                    os.remove(path)
                raise

    def leave_out(self, what: str, path: str, error: Exception) -> None:
        """Counts a write that failed; warns of the first of its kind."""
        place, count = self._left_out.get(what, (path, 0))
        self._left_out[what] = place, count + 1
        if not count:
            warn(
                f"{what} cannot be written to {path} ({explain.cause(error)}); the run "
                "goes on without them"
            )

    def report(self) -> None:
        """Prints how much was left out since the last report."""
        for what, (path, count) in self._left_out.items():
            writes = "a write" if count == 1 else f"{count} writes"
            warn(f"{what} are not complete in {path}: {writes} failed")
        self._left_out.clear()


def append_line(path: str, line: str) -> None:
    """Appends a whole line, or nothing, to a file, which is made if there is none.

    Raises:
      OSError: it was not written.
    """
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    text = (line + "\n").encode()
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    before, rest = os.fstat(file).st_size, text
    try:
        while rest:
            rest = rest[os.write(file, rest) :]
    except OSError:
        # Not if another process has added a line, or if it is a device.
        if rest != text and os.fstat(file).st_size == before + len(text) - len(rest):
            os.ftruncate(file, before)
        raise
    finally:
        os.close(file)
