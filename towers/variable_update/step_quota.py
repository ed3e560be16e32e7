"""The step quota: how many steps asynchronous clients take in all.

A counter on a ps task numbers the steps of all clients.  In each step a tower takes the
number of its next step from the counter, and begins that step when the chief's quota
includes the number.  So all clients together take exactly as many steps as the chief
allows, and then none of them is in the middle of a step.  Followers report the losses
of their steps to the chief.

The numbers also contain the run, as step tokens do (see `between_graph`).  A client
that gets a number of another run starts over.
"""

import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from towers.layout.placement import Placement

v1 = tf.compat.v1

STEP_BITS = 28  # of a step token: the lowest
_LOOK_SECONDS = 0.02  # between two reads of the quota while waiting
_WAITING = 4096  # capacity of the queue of reports to the chief
_MOST = 2**62


class RestartedError(Exception):
    """The chief started over, or this client missed a token.

    Attributes:
      stamp: the token that it got instead of the next; None if it must wait for one.
    """

    def __init__(self, stamp: int | None = None):
        super().__init__(stamp)
        self.stamp = stamp


class QuotaBoard:
    """The counter and the queue of reports on a ps task, in each client's graph.

    Args:
      where: of this client.

    Attributes:
      leads: whether this client is the chief.
      draw: int64 scalar, the number of the next step; each evaluation returns another.
      end: int64 scalar, the first number that is not allowed yet.
      stamp: the step token at the start of this client's run.
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
        """The last operation of a step; a follower's reports the step to the chief."""
        if self.leads:
            return done
        with tf.device(self._device), tf.control_dependencies([done]):
            return self._reports.enqueue([loss, staleness])

    def close(self, session: v1.Session, stamp: int) -> None:
        """Stops all steps and starts the numbers of a new run."""
        self.stamp = stamp >> STEP_BITS << STEP_BITS
        session.run(self._close, {self._given: self.stamp})

    def open(self, session: v1.Session) -> None:
        """Allows numbers to be taken; no client is in the middle of a step."""
        self.reports(session)
        session.run(self._first, {self._given: self.stamp + 1})
        session.run(self._allow, {self._given: 1})

    def allow(self, session: v1.Session, count: int) -> int:
        """Allows `count` more steps; returns the new end."""
        session.run(self._allow, {self._given: count})
        return int(session.run(self.end))

    def reports(
        self, session: v1.Session, at_least: int = 0
    ) -> list[tuple[float, int]]:
        """(loss, staleness) of followers' new steps; waits for `at_least` of them."""
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
        self._own: dict[int, int] = {}  # tower -> the number of its next step
        self._end = 0
        self._missing = 0  # steps that are not taken or reported yet
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def make_callable(self, tower: int, step: Any) -> Callable[[], Any]:
        """A function that takes a tower's step and the number of its next step."""
        call = self._session.make_callable((step, self._board.draw, self._board.end))

        def run() -> Any:
            result, self._own[tower], end = call()
            self._look(end)
            return result

        return run

    def begin(self, count: int) -> None:
        """Allows `count` steps, if this client is the chief."""
        self._stopped.clear()
        if self._board.leads:
            self._missing = count
            self._look(self._board.allow(self._session, count))

    def take(self, tower: int) -> bool:
        """Waits until the tower may take a step; returns False if it must stop.

        Raises:
          RestartedError: there is another run.
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
        """(loss, staleness) of other clients' steps; with `wait`, [] means the end."""
        if not self._board.leads:
            return []
        reports = []
        if not wait or self._missing:
            reports = self._board.reports(self._session, int(wait))
        with self._lock:
            self._missing -= len(reports)
        return reports

    def stop(self) -> None:
        """Stops all steps."""
        self._stopped.set()

    def _look(self, end: int) -> None:
        if (int(end) ^ self._board.stamp) >> STEP_BITS:
            raise RestartedError
        self._end = int(end)

    def _is_next(self, tower: int) -> bool:
        if self._end <= self._board.stamp:
            return False  # no number can be taken yet
        if tower not in self._own:
            self._own[tower] = int(self._session.run(self._board.draw))
        return self._own[tower] < self._end


def _shared(name: str) -> tf.Tensor:
    """The handle of an int64 scalar on the current device."""
    return tf.raw_ops.VarHandleOp(
        dtype=tf.int64, shape=[], shared_name=f"towers/turns/{name}"
    )
