"""Asynchronous steps: one client thread per tower, all on one session.

Each thread runs its tower's step over and over.  No step waits for another, unless
staleness is bounded.  Other clients may do the same at the same time (see
`step_quota`).  The staleness of an update is the number of updates that others applied
between this tower's read of the variables and its own update.
"""

import collections
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from towers.variable_update.base import VariableUpdate
from towers.variable_update.step_quota import QuotaBoard, SharedStepQuota
from towers.variable_update.train_steps import TrainStep

v1 = tf.compat.v1

# (global step after some steps, their losses float32 [steps], seconds that they took).
StepsTaken = tuple[int, np.ndarray, float]
# (global step, count) -> takes so many steps.
Runner = Callable[[int, int], Iterator[StepsTaken]]


class StepLoop(Protocol):
    """Runs many steps in one call: `AsynchronousLoop` or `DeviceLoop`."""

    @property
    def free(self) -> bool:
        """Whether step lines are printed while it runs; if not, between two calls."""

    def runner(self, session: v1.Session) -> Runner:
        """What runs steps in a session."""

    def report(self) -> list[str]:
        """Lines about the steps that were taken."""


class TowerStep(NamedTuple):
    """One tower's step."""

    done: tf.Operation
    loss: tf.Tensor  # float32 scalar, mean over the tower's batch
    staleness: tf.Tensor  # int64 scalar


class StalenessGate:
    """Lets a tower begin a step only if no update can exceed the bound on staleness.

    A tower is in flight from its read to its update.  Each tower in flight can add one
    to the staleness of every other tower in flight.  So a tower may begin if, for
    itself and for every tower in flight, the number of updates since that tower began
    plus the number of other towers in flight is within the bound.  Towers in flight
    never wait, so there is no deadlock.

    Args:
      bound: the largest staleness; None for no bound.
    """

    def __init__(self, bound: int | None):
        self._bound = bound
        self._closed = False
        self._passed: dict[int, int] = {}  # tower in flight -> updates since it began
        self._changed = threading.Condition()

    def begin(self, tower: int) -> bool:
        """Waits until the tower may read; returns False if it must stop instead."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._fits())
            if not self._closed:
                self._passed[tower] = 0
            return not self._closed

    def end(self, tower: int) -> None:
        """The tower's update has been applied."""
        with self._changed:
            del self._passed[tower]
            for other in self._passed:
                self._passed[other] += 1
            self._changed.notify_all()

    def close(self) -> None:
        """No tower begins a step from now on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _fits(self) -> bool:
        if self._bound is None:
            return True
        worst = max(self._passed.values(), default=0)
        return len(self._passed) + worst <= self._bound


class StepQuota:
    """A number of steps, each taken by the tower that is ready first."""

    def __init__(self, count: int):
        self._left = count
        self._lock = threading.Lock()

    def take(self, tower: int) -> bool:
        """Whether the tower may take a step."""
        del tower
        with self._lock:
            self._left -= 1
            return self._left >= 0

    def reported(self, *, wait: bool) -> list[tuple[float, int]]:
        """Steps of other clients: none."""
        del wait
        return []

    def stop(self) -> None:
        """Does nothing: no tower waits."""


class AsynchronousLoop:
    """Concurrent steps of all towers; `loop.run` calls it between steps with hooks.

    Attributes:
      free: whether towers continue while a step line is printed.
      staleness: staleness -> number of updates.
    """

    free = True

    def __init__(
        self,
        steps: Sequence[TowerStep],
        max_staleness: int | None = None,
        board: QuotaBoard | None = None,
    ):
        self._steps = steps
        self._bound = max_staleness
        self._board = board
        self.staleness: collections.Counter[int] = collections.Counter()

    def runner(self, session: v1.Session) -> Runner:
        """What runs steps in a session.

        Steps come in the order in which their updates end, several at a time.
        """
        if self._board is not None:
            return self._shared_runner(session, self._board)
        runs = [session.make_callable(step) for step in self._steps]
        return lambda step, count: self._run(runs[:count], step, StepQuota(count))

    def _shared_runner(self, session: v1.Session, board: QuotaBoard) -> Runner:
        """A runner whose steps are shared with other clients."""
        turns = SharedStepQuota(board, session)
        runs = [turns.make_callable(*pair) for pair in enumerate(self._steps)]

        def run(step: int, count: int) -> Iterator[StepsTaken]:
            turns.begin(count)
            return self._run(runs, step, turns)

        return run

    def _run(
        self,
        runs: Sequence[Callable[[], Any]],
        step: int,
        turns: StepQuota | SharedStepQuota,
    ) -> Iterator[StepsTaken]:
        crew = _Crew(runs, turns, StalenessGate(self._bound))
        before = time.perf_counter()
        try:
            for results in crew.results():
                now = time.perf_counter()
                losses = np.array([loss for loss, _ in results], np.float32)
                self.staleness.update(int(stale) for _, stale in results)
                step += len(results)
                yield step, losses, now - before
                before = now
        finally:
            crew.stop()

    def report(self) -> list[str]:
        """The staleness of all updates so far, in words."""
        total = sum(self.staleness.values())
        if not total:
            return []
        mean = sum(stale * n for stale, n in self.staleness.items()) / total
        shares = ", ".join(
            f"{stale}: {100 * n / total:.1f} %"
            for stale, n in sorted(self.staleness.items())
        )
        return [
            f"Staleness of {total} updates: mean {mean:.2f}, "
            f"largest {max(self.staleness)} ({shares})"
        ]


def loop(mode: VariableUpdate, steps: Sequence[TrainStep]) -> AsynchronousLoop:
    """The loop of a mode whose towers take steps of their own.

    Args:
      mode: has a staleness for each step.
      steps: of the towers.
    """
    tower_steps = []
    for step, stale in zip(steps, mode.staleness, strict=True):
        done = step.train_op
        if mode.board is not None:
            done = mode.board.report(done, step.loss, stale)
        tower_steps.append(TowerStep(done, step.loss, stale))
    return AsynchronousLoop(tower_steps, mode.exchange.max_staleness, mode.board)


class _Crew:
    """One thread per tower; they take steps until the quota is used up."""

    def __init__(
        self,
        runs: Sequence[Callable[[], Any]],
        turns: StepQuota | SharedStepQuota,
        gate: StalenessGate,
    ):
        self._turns = turns
        self._gate = gate
        self._ended: queue.SimpleQueue = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, args=(k, run), daemon=True)
            for k, run in enumerate(runs)
        ]
        for thread in self._threads:
            thread.start()

    def results(self) -> Iterator[list[tuple[float, int]]]:
        """(loss, staleness) of the steps that ended, as they end."""
        working = len(self._threads)
        while working:
            results, waiting = [], [self._ended.get()]
            while not self._ended.empty():
                waiting.append(self._ended.get())
            for item in waiting:
                if item is None:
                    working -= 1
                elif isinstance(item, Exception):
                    raise item
                else:
                    results.append(item)
            results += self._turns.reported(wait=False)
            if results:
                yield results
        while results := self._turns.reported(wait=True):
            yield results

    def stop(self) -> None:
        """Waits until every thread has finished its step."""
        self._gate.close()
        self._turns.stop()
        for thread in self._threads:
            thread.join()

    def _work(self, tower: int, run: Callable) -> None:
        try:
            while self._turns.take(tower) and self._gate.begin(tower):
                try:
                    _, loss, staleness = run()
                finally:
                    self._gate.end(tower)
                self._ended.put((loss, staleness))
            self._ended.put(None)
        except Exception as error:  # `results` raises it
            self._ended.put(error)
