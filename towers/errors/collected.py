"""Errors in settings, collected to be reported at once, and how a main prints them."""

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, TextIO

CLOSED_PIPE = 141  # the exit status that shells expect: 128 + SIGPIPE


class PlanError(ValueError):
    """Settings that cannot be run on this machine or data.

    Attributes:
      errors: all that was found, one sentence each.
    """

    def __init__(self, errors: list[str]):
        super().__init__("\n".join(errors))
        self.errors = errors


class CollectedErrors:
    """Calls functions one by one and collects the errors that they raise.

    Attributes:
      errors: one sentence each.
    """

    def __init__(self):
        self.errors: list[str] = []

    def get(self, part: Callable[[], Any]) -> Any:
        """What the function returns, or None if it raises a ValueError."""
        try:
            return part()
        except PlanError as error:
            self.errors += error.errors
        except ValueError as error:
            self.errors.append(str(error))
        return None


def refuse(errors: Sequence[str], *, status: int) -> int:
    """Prints each error on one line, whatever the user typed; returns the status."""
    for error in errors:
        say(f"error: {error}")
    return status


def warn(sentence: str) -> None:
    """Prints what ends nothing, on one line."""
    say(f"warning: {sentence}")


def say(line: str) -> None:
    """Prints one line on stderr, whatever is in it, if that can be written."""
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)
    with contextlib.suppress(OSError):  # nobody reads it, or its disk is full
        print(shown, file=sys.stderr, flush=True)


def discard(stream: TextIO) -> None:
    """Drops what a stream holds and gets: it cannot be written."""
    with contextlib.suppress(OSError):  # of no file
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)


def flush() -> None:
    """Ends the output of this process, whose status is not to tell of what is lost."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            discard(stream)


def not_printed(error: OSError) -> int:
    """The exit status of a main whose output cannot be written.

    Either the reader has closed the pipe, which is not reported, or the disk is full.

    Raises:
      OSError: the error, if it is another.
    """
    if error.errno not in (errno.EPIPE, errno.ENOSPC):
        raise error
    discard(sys.stdout)  # the lines must not be tried again at the end
    if error.errno == errno.EPIPE:
        return CLOSED_PIPE
    what = error.filename or "what is printed"
    return refuse([f"{what} cannot be written ({error.strerror})"], status=1)
