"""The share of the time of steps that waits for input."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from towers.data.input_wait import WaitReads

v1 = tf.compat.v1

# From this share on, a line below the step line says so.
NOTED = 0.1

_NAME = "waited"  # of the fetched seconds


class InputShare:
    """Compares how long steps waited with how long they took.

    Of several clients, the one that waits longest counts: the others wait for it.

    Args:
      reads: of the graph; None if it does not wait.

    Attributes:
      fetches: to be fetched with a step whose share is asked for.
      fetches_now: the same between steps.
      total: of all timed steps, after `end`; None if it is not known.
    """

    def __init__(self, reads: WaitReads | None):
        self._reads = reads
        self.fetches: dict[str, Any] = {_NAME: reads.after_step} if reads else {}
        self.fetches_now: dict[str, Any] = {_NAME: reads.now} if reads else {}
        self.total: float | None = None
        # Seconds of the steps, and seconds [clients] of waiting: up to the beginning,
        # and up to the last line.
        self._seconds = self._before = 0.0
        self._first = self._last = np.zeros(1)

    def begin(self, session: v1.Session) -> None:
        """The steps from now on are timed."""
        if self._reads:
            self._first = self._last = session.run(self._reads.now)

    def add(self, seconds: float) -> None:
        """Adds the time of timed steps."""
        self._seconds += seconds

    def since_last(self, values: Mapping[str, Any]) -> float | None:
        """The share since the last call, or since the beginning; None if not known.

        Args:
          values: what was fetched.
        """
        if _NAME not in values:
            return None
        waited = values[_NAME]
        share = self._share(waited - self._last, self._seconds - self._before)
        self._last, self._before = waited, self._seconds
        return share

    def end(self, session: v1.Session) -> None:
        """Sets `total`."""
        if self._reads and self._seconds:
            waited = session.run(self._reads.now) - self._first
            self.total = self._share(waited, self._seconds)

    def _share(self, waited: np.ndarray, seconds: float) -> float:
        if not self._reads or seconds <= 0:
            return 0.0
        return min(1.0, float(np.max(waited)) / (self._reads.waiting * seconds))
