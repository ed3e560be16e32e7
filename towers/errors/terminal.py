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


def hangups() -> Sequence[signal.Signals]:
    """SIGHUP, or nothing where it is ignored, as under `nohup`."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [] if ignored else [signal.SIGHUP]


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
