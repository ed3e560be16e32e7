"""A session whose calls cannot hang unnoticed.

If a task is frozen or unreachable, `Session.run` and `Session.close` block forever.
Here each thread that uses the session has a second thread that makes its calls, and
waits for the results with a timeout.
"""

import functools
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

v1 = tf.compat.v1

LEAVE_SECONDS = 5.0
_LOOK_SECONDS = 0.25  # between two checks for lost tasks during a call


class StallError(RuntimeError):
    """A call was abandoned, and its session with it."""


class WatchedSession(v1.Session):
    """A session that raises StallError when tasks no longer answer.

    Args:
      target, graph, config: as in `tf.compat.v1.Session`.
      stall_secs: how long a call may take before `silent` is called.
      silent: (seconds of the call) -> the tasks that do not answer; [] if the call is
        only slow.
      lost: returns the tasks that are lost.  It is called before and during each call,
        so it must not poll them.
    """

    def __init__(
        self,
        target: str,
        graph: tf.Graph,
        config: v1.ConfigProto,
        *,
        stall_secs: float,
        silent: Callable[[float], Sequence[str]],
        lost: Callable[[], Sequence[str]] = list,
    ):
        super().__init__(target, graph=graph, config=config)
        self._stall_secs = stall_secs
        self._silent = silent
        self._lost = lost
        # Thread identifier -> the thread that makes its calls.
        self._callers: dict[int, _Caller] = {}

    def run(self, *args: Any, **options: Any) -> Any:
        """As `Session.run`; raises StallError."""
        return self._wait(functools.partial(super().run, *args, **options))

    def make_callable(self, *args: Any, **options: Any) -> Callable[..., Any]:
        """As `Session.make_callable`; the callable raises StallError."""
        call = self._wait(functools.partial(super().make_callable, *args, **options))
        return lambda *feeds: self._wait(functools.partial(call, *feeds))

    def leave(self, seconds: float = LEAVE_SECONDS) -> None:
        """Closes the session, in the background if that takes longer than `seconds`."""
        for caller in list(self._callers.values()):
            caller.calls.put(None)
        closing = threading.Thread(target=self.close, daemon=True)
        closing.start()
        closing.join(seconds)

    def _wait(self, call: Callable[[], Any]) -> Any:
        me = threading.current_thread()
        if isinstance(me, _Caller):  # a callable may call `run`
            return call()
        assert me.ident is not None  # it runs
        self._look()
        caller = self._callers.get(me.ident)
        if caller is None:
            caller = self._callers[me.ident] = _Caller()
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        caller.calls.put((call, answer))
        begun = checked_at = time.monotonic()
        while True:
            try:
                result, error = answer.get(timeout=min(_LOOK_SECONDS, self._stall_secs))
            except queue.Empty:
                self._look()
                if time.monotonic() - checked_at >= self._stall_secs:
                    if silent := self._silent(time.monotonic() - begun):
                        raise StallError("; ".join(silent)) from None
                    checked_at = time.monotonic()
                continue
            if error is not None:
                raise error
            return result

    def _look(self) -> None:
        if lost := self._lost():
            raise StallError("; ".join(lost))


class _Caller(threading.Thread):
    """Makes one call after another; it is abandoned if a call hangs."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.start()

    def run(self) -> None:
        """Puts (result, error) of each call, until the call is None."""
        while (order := self.calls.get()) is not None:
            call, answer = order
            try:
                answer.put((call(), None))
            except BaseException as error:
                answer.put((None, error))
