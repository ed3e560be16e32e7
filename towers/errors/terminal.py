"""A terminal that may be closed before the process ends.

Closing it, or losing the connection to it, sends SIGHUP.  Printing would then fail
while there is still something to be saved.
"""

import os
import signal
from collections.abc import Sequence

# Within these, a signal comes from one cause: `timeout` of coreutils sends each both to
# its command and to its group.
ECHO_SECONDS = 1.0


# Signals that ask a process to end.  Windows has no hangups.
ENDING = tuple(
    getattr(signal, name)
    for name in ("SIGTERM", "SIGINT", "SIGHUP")
    if hasattr(signal, name)
)


def heeded() -> Sequence[signal.Signals]:
    """Those of `ENDING` that this process was not started to ignore.

    `nohup` has SIGHUP ignored, and a shell SIGINT in what it runs in the background.
    """
    return [n for n in ENDING if signal.getsignal(n) is not signal.SIG_IGN]


def is_hangup(number: int) -> bool:
    """Whether a signal says that the terminal was closed."""
    return number == getattr(signal, "SIGHUP", None)


class Terminal:
    """The terminal of this process, recorded while it exists."""

    def __init__(self) -> None:
        self._printed_on = list(filter(os.isatty, (1, 2)))

    def forget(self) -> None:
        """Discards what is printed from now on."""
        nothing = os.open(os.devnull, os.O_WRONLY)
        for descriptor in self._printed_on:
            os.dup2(nothing, descriptor)
        os.close(nothing)
