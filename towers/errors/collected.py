"""Errors in settings, collected to be reported at once, and how a main prints them."""

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
      problems: that the errors say.
    """

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def get(self, part: Callable[[], Any]) -> Any:
        """What the function returns, or None if it raises a ValueError."""
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
    """Prints each error on one line, whatever the user typed; returns the status."""
    for error in errors:
        say(f"error: {error}")
    return status


def refuse_settings(error: ValueError, **flags: str) -> int:
    """Prints what is wrong with settings; returns the exit status.

    Args:
      error: that says it.
      **flags: setting -> flag, where that has another name.
    """
    return refuse([p.sentence(flags) for p in problems_of(error)], status=2)


def sentences(error: ValueError) -> list[str]:
    """What an error says, with settings as a command line has them."""
    return [problem.sentence() for problem in problems_of(error)]


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
