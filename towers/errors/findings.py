"""Errors in settings, collected to be reported at once, and how a main prints them."""

import errno
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any


class PlanError(ValueError):
    """Settings that cannot be run on this machine or data.

    Attributes:
      errors: all that was found, one sentence each.
    """

    def __init__(self, errors: list[str]):
        super().__init__("\n".join(errors))
        self.errors = errors


class Found:
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
        shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in error)
        print(f"error: {shown}", file=sys.stderr)
    return status


def not_printed(error: OSError) -> int:
    """The exit status of a main whose output cannot be written.

    Either the reader has closed the pipe, which is not reported, or the disk is full.

    Raises:
      OSError: the error, if it is another.
    """
    if error.errno not in (errno.EPIPE, errno.ENOSPC):
        raise error
    # The lines must not be tried again at the end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno == errno.EPIPE:
        return 1
    what = error.filename or "what is printed"
    return refuse([f"{what} cannot be written ({error.strerror})"], status=1)
