"""Collects errors in settings, so that all are reported at once, and prints them."""

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from flags.problem import Problem, SettingError, problems_of

CLOSED_PIPE = 141  # the exit status that shells expect: 128 + SIGPIPE


class PlanError(SettingError):
    """Settings that cannot be run on this machine or data."""


class CollectedErrors:
    """Calls functions one by one and collects the errors that they raise.

    Attributes:
      problems: of the errors.
    """

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def get(self, part: Callable[[], Any]) -> Any:
        """Calls the function; returns None if it raises a ValueError."""
        try:
            return part()
        except ValueError as error:
            self.problems += problems_of(error)
        return None

    def check(self) -> None:
        """Raises PlanError with all problems, if there are any."""
        if self.problems:
            raise PlanError(*self.problems)


def refuse(errors: Sequence[str], *, status: int) -> int:
    """Prints each error on one line; returns the status."""
    for error in errors:
        say(f"error: {error}")
    return status


def refuse_settings(error: ValueError, **flags: str) -> int:
    """Prints what is wrong with settings; returns the exit status.

    Args:
      error: with the problems.
      **flags: setting -> flag, if that has another name.
    """
    return refuse([p.sentence(flags) for p in problems_of(error)], status=2)


def sentences(error: ValueError) -> list[str]:
    """The sentences of an error, with settings as flags."""
    return [problem.sentence() for problem in problems_of(error)]


def warn(sentence: str) -> None:
    """Prints a warning on one line."""
    say(f"warning: {sentence}")


def say(line: str) -> None:
    """Prints a text as one line on stderr; does nothing if that cannot be written."""
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)
    with contextlib.suppress(OSError):  # its reader has left, or its disk is full
        print_line(shown, sys.stderr)


def print_line(line: str, stream: TextIO | None) -> None:
    """Prints a line in one piece, so that lines of several threads do not mix.

    By itself `print` writes the end of a line with a second call.
    """
    print(f"{line}\n", end="", file=stream, flush=True)


def discard(stream: TextIO) -> None:
    """Drops what is in a stream that cannot be written, and what comes later."""
    with contextlib.suppress(OSError):  # of no file
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)


def flush() -> None:
    """Flushes the output; if that fails, the exit status of the process stays."""
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
