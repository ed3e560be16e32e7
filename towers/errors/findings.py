"""What is wrong with settings on this machine and data, all of it at once."""

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
    """Runs the parts one by one and keeps what each complains of.

    Attributes:
      errors: one sentence each.
    """

    def __init__(self):
        self.errors: list[str] = []

    def get(self, part: Callable[[], Any]) -> Any:
        """What the part returns, or None when it complains."""
        try:
            return part()
        except PlanError as error:
            self.errors += error.errors
        except ValueError as error:
            self.errors.append(str(error))
        return None


def refuse(errors: Sequence[str], *, status: int) -> int:
    """Prints each error, on a line of its own whatever the user typed; the status."""
    for error in errors:
        shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in error)
        print(f"error: {shown}", file=sys.stderr)
    return status


def not_printed(error: OSError) -> int:
    """The exit status of a main whose lines cannot be printed.

    Nobody reads them any more, which ends it without a word; or the disk is full.

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
