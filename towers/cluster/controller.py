"""Sessions of a client on a cluster, which continue after a task was lost.

    with Controller(spec, config, ...) as sessions:
        status = run.train(parts, console, sessions)

An attempt to train begins when every task answers.  After a task was lost and is back,
a new session is made and the attempt starts again.  It restores the last checkpoint,
with the input position, so the result is that of a run without a loss.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator

import tensorflow as tf

from towers.cluster import (
    comparison,
    connections,
    messages,
    open_ports,
    ports,
    server,
    shared_folder,
)
from towers.cluster.health_check import ANSWER_SECONDS, HealthCheck, Hellos, in_parallel
from towers.cluster.sessions import MembersChangedError, Stop
from towers.cluster.watchdog import LEAVE_SECONDS, StallError, WatchedSession
from towers.errors import explain
from towers.errors.interrupts import Interrupted
from towers.layout.cluster_spec import ClusterSpec, Task

v1 = tf.compat.v1

# To dismiss a task; one that was given up.
_DISMISSAL_SECONDS, _FAREWELL_SECONDS = 20.0, 0.5
QUIET_SECONDS = 5.0  # of waiting before a line is printed
_LEAVE_LOST_SECONDS = 0.5
_BEAT_SECONDS = 30.0  # between two polls of tasks that no call reaches, at most
# Failures in a row while every task answers; one after `--stall_secs` starts a new row.
# After a host vanished, gRPC may use its old address for half a minute more; so there
# may be more failures within `--wait_secs`, with a pause after each.
_LIMIT_UNEXPLAINED, _PAUSE_SECONDS = 3, 2.0
# A host that vanishes leaves waiting operations on the ps tasks, which may take
# messages for its replacement.  Each attempt gives them one message, and waits twice as
# long as the one before, because a step may also be that slow.
_LIMIT_SWALLOWED, _SWALLOWED_STALLS = 3, 2
_SWALLOWED = (
    "a message, perhaps to what a vanished task had left waiting: every task answers, "
    "and no step ended"
)


class Controller:
    """Opens sessions on the cluster; see `sessions.Sessions`.

    Args:
      spec: with this task, the controller, as `me`.
      config: of the server.
      needs: (kind, number) of devices that every worker must have.
      stall_secs: time of a call after which tasks that do not answer are named.
      wait_secs: how long to wait for a task that does not answer.
      console: takes lines for the user.

    Attributes:
      target: of the server.
      members: as in `sessions.Sessions`.
      mark: path of a file that every task must see before the first step; or "".

    Raises:
      messages.ClusterError: the port is taken.
    """

    members: ClusterSpec | None = None
    mark = ""
    _goes_on = (
        "Going on from the last checkpoint, or from the start if there is none yet."
    )

    def __init__(
        self,
        spec: ClusterSpec,
        config: v1.ConfigProto,
        *,
        needs: tuple[str, int],
        stall_secs: float,
        wait_secs: float,
        console: Callable[[str], None],
    ):
        self._spec = spec
        self._stall_secs = stall_secs
        # How long a call may take before tasks are polled, so that frozen ones are
        # named within `stall_secs`.
        self._patience = stall_secs - min(ANSWER_SECONDS, stall_secs / 2)
        self._wait_secs = wait_secs
        self._console = console
        self._roll_call = HealthCheck(spec, needs)
        self._unexplained = self._losses = self._swallowed = 0
        self._broken_since = 0.0  # time of the first of the unexplained failures
        self._resumes = self._hinted = False
        self._given_up: set[Task] = set()
        self._refused: dict[str, str] = {}  # name of a task -> why
        self._remarks: set[str] = set()  # that were printed
        # Tasks that take no part in session calls, so that no call notices their loss.
        self._apart = spec.clients[1:] if spec.me == spec.controller else []
        self._lost: Callable[[], list[str]] = list
        self._stopping: Callable[[], bool] = bool
        self.target = server.start(spec, config).target
        connections.limit(spec, stall_secs)
        if line := open_ports.open_ports_warning(spec):
            console(line)

    def hear(self, note: messages.Note) -> None:
        """Takes a note of another task, in any thread."""
        if note.ends:
            self._refused[note.task] = note.words
        else:
            self._console(note.words)

    def __enter__(self) -> "Controller":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: object,
    ) -> None:
        if kind is not None:
            self.dismiss(error.status if isinstance(error, Interrupted) else 1)

    @contextlib.contextmanager
    def open(self, graph: tf.Graph, config: v1.ConfigProto) -> Iterator[v1.Session]:
        """A session on the graph, closed at the end, or abandoned if that hangs."""
        session = WatchedSession(
            self.target,
            graph,
            config,
            stall_secs=self._patience,
            silent=self._silent,
            lost=self._lost,
        )
        seconds = LEAVE_SECONDS
        try:
            yield session
        except tf.errors.OpError:
            # The call has ended on every task; closing would wait for a lost one.
            seconds = _LEAVE_LOST_SECONDS
            raise
        finally:
            session.leave(seconds)

    def keep(self, attempt: Callable[[], int], stop: Stop, *, resumes: bool) -> int:
        """Repeats the attempt until it succeeds; returns its result.

        Raises:
          Interrupted: a signal came, and no attempt is under way.
          messages.ClusterError: a task is wrong, or does not come back, or nothing
            was saved.
          ValueError: a task does not see `mark`.
        """
        self._stopping = lambda: stop.received is not None
        self._resumes = resumes
        unsaved = ""
        while True:
            self._gather(stop)
            if stop.received is not None:
                raise Interrupted(stop.received, unsaved)
            shared_folder.check(self._spec, self.mark)
            self.mark = ""
            begun = time.monotonic()
            try:
                with self._listening(stop):
                    return attempt()
            except MembersChangedError as news:
                self._console(f"{news}.")
            except Exception as error:
                if stop.insisted and isinstance(error, StallError):
                    assert stop.received is not None
                    raise Interrupted(stop.received, str(error)) from error
                if time.monotonic() - begun > self._stall_secs:
                    self._unexplained = 0  # the attempt took steps
                lost = self._what_was_lost(error)
                if not lost:
                    raise
                if lost != _SWALLOWED:
                    self._losses, self._swallowed = self._losses + 1, 0
                unsaved = f"lost {lost}"
                if stop.received is not None:
                    continue
                if not resumes:
                    raise messages.ClusterError(
                        f"lost {lost}; without a --train_dir there is nothing to go on "
                        "from"
                    ) from error
                self._console(f"Lost {lost}. {self._goes_on}")

    def change(self) -> str:
        """As in `sessions.Sessions`: these tasks are always the same."""
        return ""

    def dismiss(self, status: int) -> None:
        """Tells all tasks to exit with a status.

        It waits only shortly for tasks that were given up, and does not tell tasks of
        another controller, which may train on them.
        """

        def tell(task: Task) -> None:
            given_up = task in self._given_up
            seconds = _FAREWELL_SECONDS if given_up else _DISMISSAL_SECONDS
            if given_up or self._roll_call.is_ours(task):
                messages.dismiss(self._spec, task, status=status, seconds=seconds)

        in_parallel(tell, self._spec.servers)

    @contextlib.contextmanager
    def _listening(self, stop: Stop) -> Iterator[None]:
        """In this block, sessions notice the loss of tasks outside of their calls.

        After a signal these tasks may end before the controller has saved, which is not
        a loss.
        """
        over, anew = threading.Event(), threading.Event()
        if self._apart:
            thread = threading.Thread(
                target=self._look_after, args=(over, anew), daemon=True
            )
            thread.start()
        addresses = [self._spec.address(task) for task in self._apart]
        with ports.Lifelines(addresses) as lines:

            def lost() -> list[str]:
                if stop.insisted and self._hinted:
                    return ["a second signal ended the step"]
                if stop.received is not None or not (lines.broken() or anew.is_set()):
                    return []
                return list(self._roll_call.absent().values())

            self._lost = lost
            try:
                yield
            finally:
                over.set()

    def _look_after(self, over: threading.Event, anew: threading.Event) -> None:
        """Polls for tasks that were restarted or have left their session.

        A task that does not answer may be busy; it is polled again.
        """
        while not over.wait(min(_BEAT_SECONDS, self._stall_secs / 2)):
            hellos, _ = self._roll_call.ask(self._apart)
            if self._roll_call.changed(hellos):
                anew.set()
                return

    def _gather(self, stop: Stop) -> None:
        """Waits until every task gives a right answer, or a signal comes."""
        begun = time.monotonic()
        due = begun + QUIET_SECONDS
        # Enough for a live task to answer, even if little of `wait_secs` is left.
        least = min(ANSWER_SECONDS, self._wait_secs) / 2
        while stop.received is None:
            left = self._wait_secs - (time.monotonic() - begun)
            hellos, silent = self._roll_call.ask(seconds=max(least, left))
            self._roll_call.check(hellos)
            if not silent:
                self._roll_call.remember(hellos)
                self._remark(hellos)
                self._refused.clear()  # they were started anew
                return
            refused = [self._refused.get(str(task)) for task in silent]
            if words := "; ".join(filter(None, refused)):
                raise messages.ClusterError(words)
            reasons = "; ".join(silent.values())
            due = self._go_on_waiting(begun, due, silent, reasons)

    def _remark(self, hellos: Hellos) -> None:
        """Prints, once each, how the software of other tasks differs."""
        for task, hello in sorted(hellos.items()):
            for line in comparison.remarks(self._spec, task, hello):
                if line not in self._remarks:
                    self._console(line)
                self._remarks.add(line)

    def _go_on_waiting(
        self, begun: float, due: float, missing: Iterable[Task], reasons: str
    ) -> float:
        """Waits a moment for tasks, and names them from time to time.

        Args:
          begun: when the wait began.
          due: when the next line is due.
          missing: the tasks.
          reasons: why they are waited for, as a line says it.

        Returns:
          when the line after it is due.

        Raises:
          messages.ClusterError: it has lasted `wait_secs`.
        """
        now = time.monotonic()
        if now - begun >= self._wait_secs:
            self._given_up = set(missing)
            raise messages.ClusterError(
                f"gave up after {self._wait_secs:.0f} s (--wait_secs): {reasons}"
            )
        if now >= due:
            due = now + self._stall_secs
            self._console(f"Waiting for {reasons}.")
        time.sleep(0.2)
        return due

    def _silent(self, lasted: float) -> list[str]:
        """Prints that a call takes long; returns the tasks that are lost or restarted.

        A follower continues to wait for its chief: the call ends when the chief starts
        again.  If the follower left the session, the chief may have started already.

        A task that does not answer is named within `stall_secs`, but counts as lost
        only after `ANSWER_SECONDS`, as it may be busy.
        """
        begun = time.monotonic() - lasted
        seconds = self._stall_secs - self._patience
        reasons = self._roll_call.absent(seconds)
        silent = "; ".join(reasons.values())
        details = f": {silent}" if reasons else ", though every task answers"
        if self._stopping():
            self._hinted = True
            details += "; a second signal ends the run without saving"
        self._console(f"No step for {time.monotonic() - begun:.0f} s{details}.")
        if reasons and seconds < ANSWER_SECONDS:
            reasons = self._roll_call.absent()
        reasons.pop(self._spec.controller, None)
        if not reasons and self._may_be_swallowed(lasted):
            self._swallowed += 1
            return [_SWALLOWED]
        return list(reasons.values())

    def _may_be_swallowed(self, lasted: float) -> bool:
        """Whether to make another attempt because a message may have been lost.

        Only if a task has vanished before: this client lost it, or replaces a client
        that the others lost.  The attempt starts from the last checkpoint.
        """
        if not (self._spec.between and self._spec.me == self._spec.controller):
            return False
        late = lasted >= _SWALLOWED_STALLS * 2**self._swallowed * self._stall_secs
        few = self._swallowed < _LIMIT_SWALLOWED
        vanished = self._losses or self._roll_call.were_left
        going_on = self._resumes and not self._stopping()
        return bool(late and few and vanished and going_on)

    def _what_was_lost(self, error: Exception) -> str:
        """Describes the lost tasks behind a failure; empty if it has another cause."""
        if isinstance(error, StallError):
            return str(error)
        cause = _operation_error(error)
        if cause is None:
            return ""
        if reasons := self._roll_call.absent():
            self._unexplained = 0
            return "; ".join(reasons.values())
        self._unexplained += 1
        if self._unexplained == 1:
            self._broken_since = time.monotonic()
        broken = isinstance(cause, tf.errors.UnavailableError | tf.errors.AbortedError)
        few = self._unexplained <= _LIMIT_UNEXPLAINED
        if broken and not few:
            few = time.monotonic() - self._broken_since < self._wait_secs
            time.sleep(_PAUSE_SECONDS)
        if broken and few:
            return f"a connection ({explain.reason(cause.message or '')})"
        return ""


def _operation_error(error: BaseException | None) -> tf.errors.OpError | None:
    """The failed session call behind an error."""
    while error is not None and not isinstance(error, tf.errors.OpError):
        error = error.__cause__
    return error
