"""The step quota: how many steps asynchronous clients take in all.

A counter on a ps task numbers the steps of all clients.  With each step a tower draws
the number of its next one, and takes that step once the chief's quota allows the
number.  So all clients together take exactly as many steps as the chief allows, fast or
slow, and when these are taken, no client is in the middle of one.  Followers report the
losses of their steps to the chief.

The numbers hold the run of the step token, too (see `between_graph`).  A client that
draws a number of another run starts over.
"""

import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from towers.layout.placement import Placement

v1 = tf.compat.v1

STEP_BITS = 28  # of a step token: the lowest
_LOOK_SECONDS = 0.02  # between two looks while waiting for the chief
_WAITING = 4096  # capacity of the queue of reports to the chief
_MOST = 2**62


class RestartedError(Exception):
    """The chief started over, or this client missed a token.

    Attributes:
      stamp: the token that it got instead of the next; None if it is to wait for one.
    """

    def __init__(self, stamp: int | None = None):
        super().__init__(stamp)
        self.stamp = stamp


class QuotaBoard:
    """The counter and the reports on a ps task; each client has the same in its graph.

    Args:
      where: of this client.

    Attributes:
      leads: whether this client is the chief.
      draw: int64 scalar, the number of the next step; each run gives another.
      end: int64 scalar, the first number that is not allowed yet.
      stamp: the step token that this client's present run began with.
    """

    def __init__(self, where: Placement):
        self.leads = where.client == 0
        self.stamp = 0
        with v1.name_scope("turns"), tf.device(where.counters):
            self._device = where.counters
            drawn, end = _shared("drawn"), _shared("end")
            self.draw = tf.raw_ops.ResourceCountUpTo(
                resource=drawn, limit=_MOST, T=tf.int64
            )
            self.end = tf.raw_ops.ReadVariableOp(resource=end, dtype=tf.int64)
            self._given = v1.placeholder(tf.int64, [], "given")
            self._first, self._close = (
                tf.raw_ops.AssignVariableOp(resource=counter, value=self._given)
                for counter in (drawn, end)
            )
            self._allow = tf.raw_ops.AssignAddVariableOp(
                resource=end, value=self._given
            )
            self._reports = tf.queue.FIFOQueue(
                _WAITING,
                [tf.float32, tf.int64],
                shapes=[[], []],
                shared_name="towers/turns/reports",
            )
            self._there = self._reports.size()
            self._count = v1.placeholder(tf.int32, [], "count")
            self._taken = self._reports.dequeue_many(self._count)

    def report(
        self, done: tf.Operation, loss: tf.Tensor, staleness: tf.Tensor
    ) -> tf.Operation:
        """What a step is done with: a follower's with a report of it."""
        if self.leads:
            return done
        with tf.device(self._device), tf.control_dependencies([done]):
            return self._reports.enqueue([loss, staleness])

    def close(self, session: v1.Session, stamp: int) -> None:
        """Nobody begins a step any more, and turns are those of a new run."""
        self.stamp = stamp >> STEP_BITS << STEP_BITS
        session.run(self._close, {self._given: self.stamp})

    def open(self, session: v1.Session) -> None:
        """Lets turns be drawn, when nobody is in the middle of a step."""
        self.reports(session)
        session.run(self._first, {self._given: self.stamp + 1})
        session.run(self._allow, {self._given: 1})

    def allow(self, session: v1.Session, count: int) -> int:
        """Lets so many more steps be taken; returns the new end."""
        session.run(self._allow, {self._given: count})
        return int(session.run(self.end))

    def reports(
        self, session: v1.Session, at_least: int = 0
    ) -> list[tuple[float, int]]:
        """(loss, staleness) of the followers' steps since; waits for so many."""
        count = max(at_least, int(session.run(self._there)))
        if not count:
            return []
        return list(zip(*session.run(self._taken, {self._count: count})))


class SharedStepQuota:
    """The step numbers of this client's towers in one session.

    It has the methods of `asynchronous.StepQuota`.

    Args:
      board: of the graph.
      session: on it.
    """

    def __init__(self, board: QuotaBoard, session: v1.Session):
        self._board = board
        self._session = session
        self._own: dict[int, int] = {}  # tower -> the number that it has drawn
        self._end = 0
        self._missing = 0  # steps that are not taken or reported yet
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def make_callable(self, tower: int, step: Any) -> Callable[[], Any]:
        """What takes a tower's step and draws the number of its next one."""
        call = self._session.make_callable((step, self._board.draw, self._board.end))

        def run() -> Any:
            result, self._own[tower], end = call()
            self._look(end)
            return result

        return run

    def begin(self, count: int) -> None:
        """Lets so many steps be taken, if it is for this client to say."""
        self._stopped.clear()
        if self._board.leads:
            self._missing = count
            self._look(self._board.allow(self._session, count))

    def take(self, tower: int) -> bool:
        """Waits until the tower may take a step; False if it is to stop instead.

        Raises:
          BegunAnewError: there is another run.
        """
        while not self._stopped.is_set():
            if self._is_next(tower):
                with self._lock:
                    self._missing -= 1
                return True
            if self._board.leads:
                return False
            self._stopped.wait(_LOOK_SECONDS)
            self._look(self._session.run(self._board.end))
        return False

    def reported(self, *, wait: bool) -> list[tuple[float, int]]:
        """(loss, staleness) of the steps of others; with `wait`, none means no more."""
        if not self._board.leads:
            return []
        reports = []
        if not wait or self._missing:
            reports = self._board.reports(self._session, int(wait))
        with self._lock:
            self._missing -= len(reports)
        return reports

    def stop(self) -> None:
        """Nobody takes a step any more."""
        self._stopped.set()

    def _look(self, end: int) -> None:
        if (int(end) ^ self._board.stamp) >> STEP_BITS:
            raise RestartedError
        self._end = int(end)

    def _is_next(self, tower: int) -> bool:
        if self._end <= self._board.stamp:
            return False  # no turn can be drawn yet
        if tower not in self._own:
            self._own[tower] = int(self._session.run(self._board.draw))
        return self._own[tower] < self._end


def _shared(name: str) -> tf.Tensor:
    """The handle of an int64 scalar on the current device."""
    return tf.raw_ops.VarHandleOp(
        dtype=tf.int64, shape=[], shared_name=f"towers/turns/{name}"
    )
