"""A terminal that may be closed before the process ends.

Closing it, or losing the connection to it, sends SIGHUP.  Printing would then fail
before the run has saved.
"""

import os
import signal
from collections.abc import Sequence

# Signals within this time have one cause: `timeout` of coreutils sends each signal to
# its command and to its group.
ECHO_SECONDS = 1.0


# Signals that ask a process to end.  Windows has no hangups.
ENDING = tuple(
    getattr(signal, name)
    for name in ("SIGTERM", "SIGINT", "SIGHUP")
    if hasattr(signal, name)
)


def heeded() -> Sequence[signal.Signals]:
    """The signals of `ENDING` that were not ignored when this process started.

    `nohup` makes its command ignore SIGHUP, and a shell makes background commands
    ignore SIGINT.
    """
    return [n for n in ENDING if signal.getsignal(n) is not signal.SIG_IGN]


def is_hangup(number: int) -> bool:
    """Whether a signal means that the terminal was closed."""
    return number == getattr(signal, "SIGHUP", None)


class Terminal:
    """The terminal of this process, recorded while it exists."""

    def __init__(self) -> None:
        self._printed_on = list(filter(os.isatty, (1, 2)))

    def forget(self) -> None:
        """Discards all later output."""
        nothing = os.open(os.devnull, os.O_WRONLY)
        for descriptor in self._printed_on:
            os.dup2(nothing, descriptor)
        os.close(nothing)
