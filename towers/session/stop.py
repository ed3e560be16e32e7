"""Signals that end a run: the current step is finished and saved."""

import contextlib
import signal
import sys
import time
import types
from collections.abc import Iterator
from typing import Any

from towers.callbacks.base import NEVER, Callback, RunContext, RunValues
from towers.errors.interrupts import Interrupted
from towers.errors.terminal import ECHO_SECONDS, Terminal, heeded, is_hangup


class StopOnSignal(Callback):
    """SIGTERM, SIGINT and SIGHUP end the loop after the current step.

    Signals that were ignored when the process started stay ignored.

    Attributes:
      received: the signal, or None.
      insisted: whether another signal came later, so that nothing is waited for.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self.insisted = False
        self._first = 0.0  # when it came
        # Signal -> what Python's `signal.signal` returned.
        self._previous: dict[int, Any] = {}
        self._at_once = False
        self._terminal = Terminal()

    @property
    def status(self) -> int:
        """The exit status of a run that the signal ended, or 0 without one."""
        return Interrupted(self.received).status if self.received else 0

    def __enter__(self) -> "StopOnSignal":
        for number in heeded():
            self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def reader_left(self) -> None:
        """Ends the run as SIGPIPE would: the reader of its lines has left.

        (Python ignores SIGPIPE, because sockets cause it, too.)  On systems without
        this signal, such as Windows, the run continues.
        """
        if self.received is None and hasattr(signal, "SIGPIPE"):
            self._note(signal.SIGPIPE, None)

    def _note(self, number: int, frame: types.FrameType | None) -> None:
        del frame
        now = time.monotonic()
        if self.received is None:
            self._first = now
        self.insisted |= now - self._first > ECHO_SECONDS
        self.received = number
        if is_hangup(number):
            self._terminal.forget()
        if self._at_once:
            sys.setprofile(_interrupt)

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """In this block a signal raises `Interrupted`: there is no step to finish yet.

        It is raised at the next call of one of this project's functions, because an
        exception at an arbitrary point would break TensorFlow's scopes.  If TensorFlow
        swallows it, it is raised at the end of the block, or another failure occurs.

        Raises:
          Interrupted: after a signal.
        """
        self._at_once = True
        try:
            yield
        except (Exception, KeyboardInterrupt):
            if self.received is None:
                raise
        finally:
            self._at_once = False
            if self.received is not None:
                sys.setprofile(None)
        if self.received is not None:
            raise Interrupted(self.received)

    def next_due(self, step: int) -> int:
        """The next step if there was a signal."""
        return step + 1 if self.received else NEVER

    def after_run(self, run_context: RunContext, run_values: RunValues) -> None:
        """Asks the loop to stop."""
        if self.received:
            run_context.request_stop()


def _interrupt(frame: types.FrameType, event: str, arg: object) -> None:
    """A profile function that raises when a function of this project is called."""
    del arg
    package = frame.f_globals.get("__name__", "").partition(".")[0]
    if event == "call" and package in ("models", "towers"):
        sys.setprofile(None)
        raise KeyboardInterrupt
