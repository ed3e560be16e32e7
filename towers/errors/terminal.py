"""The terminal that a process prints on, which may be closed before the process ends.

Whoever closes it, or whose connection to it breaks, sends SIGHUP.  What is printed then
fails, in the middle of what is still to be saved.
"""

import os
import signal
from collections.abc import Sequence


def hangups() -> Sequence[signal.Signals]:
    """SIGHUP, or nothing where it is ignored, as `nohup` has it."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [] if ignored else [signal.SIGHUP]


class Terminal:
    """What this process prints on, noted while it is there."""

    def __init__(self) -> None:
        self._printed_on = list(filter(os.isatty, (1, 2)))

    def forget(self) -> None:
        """What is printed from now on is lost, without an error."""
        nothing = os.open(os.devnull, os.O_WRONLY)
        for descriptor in self._printed_on:
            os.dup2(nothing, descriptor)
        os.close(nothing)
