"""A session whose calls cannot hang unnoticed.

A task that is frozen, or whose network is, makes `Session.run` wait for ever, and
closing the session as well.  Here a thread makes the calls, and who waits for it looks
up from time to time.
"""

import functools
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

v1 = tf.compat.v1

_LEAVE_SECONDS = 5.0


class StallError(RuntimeError):
    """A call was given up; its session is lost with it."""


class WatchedSession(v1.Session):
    """A session that raises StallError when tasks do not answer any more.

    Args:
      target, graph, config: as `tf.compat.v1.Session` has them.
      stall_secs: how long a call may take until `silent` is asked.
      silent: names the tasks that do not answer; none of them: the call is slow.
    """

    def __init__(
        self,
        target: str,
        graph: tf.Graph,
        config: v1.ConfigProto,
        *,
        stall_secs: float,
        silent: Callable[[], Sequence[str]],
    ):
        super().__init__(target, graph=graph, config=config)
        self._stall_secs = stall_secs
        self._silent = silent
        self._calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=_make_calls, args=(self._calls,), daemon=True
        )
        self._thread.start()

    def run(self, *args, **options):
        """As `Session.run`; raises StallError."""
        return self._wait(functools.partial(super().run, *args, **options))

    def make_callable(self, *args, **options):
        """As `Session.make_callable`; what it returns raises StallError."""
        call = self._wait(functools.partial(super().make_callable, *args, **options))
        return lambda *feeds: self._wait(functools.partial(call, *feeds))

    def leave(self) -> None:
        """Closes the session, or leaves that to a thread if it takes long."""
        self._calls.put(None)
        closing = threading.Thread(target=self.close, daemon=True)
        closing.start()
        closing.join(_LEAVE_SECONDS)

    def _wait(self, call: Callable[[], Any]) -> Any:
        if threading.current_thread() is self._thread:  # a callable may call `run`
            return call()
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._calls.put((call, answer))
        asked = time.monotonic()
        while True:
            try:
                found, error = answer.get(timeout=min(1.0, self._stall_secs))
            except queue.Empty:
                if time.monotonic() - asked >= self._stall_secs:
                    if silent := self._silent():
                        raise StallError("; ".join(silent)) from None
                    asked = time.monotonic()
                continue
            if error is not None:
                raise error
            return found


def _make_calls(calls: "queue.SimpleQueue[Any]") -> None:
    while (order := calls.get()) is not None:
        call, answer = order
        try:
            answer.put((call(), None))
        except BaseException as error:
            answer.put((None, error))
