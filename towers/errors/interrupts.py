"""Signals that end a process, as one exception: SIGTERM, SIGINT and SIGHUP.

The exit status of a process that a signal ended early is 128 + the signal's number, as
in shells (docs/exit_statuses.md).
"""

import contextlib
import signal
import time
from collections.abc import Iterator

from towers.errors.terminal import ECHO_SECONDS, Terminal, heeded, is_hangup


class Interrupted(KeyboardInterrupt):
    """A signal has ended the current work.

    Args:
      number: of the signal.
      unsaved: why the steps since the last checkpoint could not be saved; empty if
        there is nothing to explain.

    Attributes:
      name: of the signal, such as "SIGTERM".
      status: the exit status for the process.
      unsaved: as the argument.
    """

    def __init__(self, number: int = signal.SIGINT, unsaved: str = ""):
        self.name = signal.Signals(number).name
        self.status = 128 + number
        self.unsaved = unsaved
        super().__init__(f"stopped by {self.name}")


def of(error: KeyboardInterrupt) -> Interrupted:
    """The error as `Interrupted`, also if Python raised KeyboardInterrupt."""
    return error if isinstance(error, Interrupted) else Interrupted()


@contextlib.contextmanager
def raised() -> Iterator[None]:
    """In this block, signals that end the process raise `Interrupted` at once.

    Other errors after a signal count as its effect, because an exception at an
    arbitrary point breaks TensorFlow's scopes, for example.
    """
    terminal = Terminal()
    came: list[tuple[int, float]] = []  # signals, and when

    def take(number: int, frame: object) -> None:
        del frame
        now = time.monotonic()
        if came and now - came[-1][1] <= ECHO_SECONDS:
            return
        came.append((number, now))
        if is_hangup(number):
            terminal.forget()
        raise Interrupted(number)

    previous = {number: signal.signal(number, take) for number in heeded()}
    try:
        yield
    except Exception as error:
        if not came:
            raise
        raise Interrupted(came[0][0]) from error
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
