"""Signals that end a process, as one exception: SIGTERM, SIGINT and SIGHUP.

A process that one of them ended before its time has the status 128 + its number, as
shells have it (docs/exit_statuses.md).
"""

import contextlib
import signal
import time
from collections.abc import Iterator

from towers.errors.terminal import ECHO_SECONDS, Terminal, heeded, is_hangup


class Interrupted(KeyboardInterrupt):
    """A signal ends what is done.

    Args:
      number: of the signal.

    Attributes:
      name: of the signal, as "SIGTERM".
      status: that the process is to end with.
    """

    def __init__(self, number: int = signal.SIGINT):
        self.name = signal.Signals(number).name
        self.status = 128 + number
        super().__init__(f"stopped by {self.name}")


def of(error: KeyboardInterrupt) -> Interrupted:
    """The same error, where SIGINT was left to Python."""
    return error if isinstance(error, Interrupted) else Interrupted()


@contextlib.contextmanager
def raised() -> Iterator[None]:
    """Signals that end the process raise Interrupted inside, at once.

    What else fails inside after one came is taken for its effect: TensorFlow's scopes,
    for one, do not survive an exception at an arbitrary point.
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
