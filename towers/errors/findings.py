"""What is wrong with settings on this machine and data, all of it at once."""

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
