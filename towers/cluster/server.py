"""A task's server, which lives until the controller says that training has ended."""

import collections
import contextlib
import functools
import itertools
import json
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from flags.cluster import ClusterFlags
from towers.cluster import (
    connections,
    messages,
    open_ports,
    ports,
    refusals,
    token_exchange,
)
from towers.errors import interrupts
from towers.layout.cluster_spec import ClusterSpec
from towers.layout.placement import task as filter_of

v1 = tf.compat.v1

# Between two polls of the controller, at most; before it has answered.
_LOOK_SECONDS, _MEET_SECONDS = 30.0, 2.0
# Between dismissal and exit, so that the controller can close its session to this task.
_FAREWELL_SECONDS = 0.3
# After a signal: between two checks of the controller's port, and how long that port is
# closed when the controller counts as gone.
_CHECK_SECONDS, _GONE_SECONDS = 0.5, 5.0
_BEAT_SECONDS = 5.0  # between two heartbeats of an elastic run's task, at most

Beat = Callable[[str], str]  # signal or "" -> why the controller does not answer, or ""


class Patience(NamedTuple):
    """How long a task waits, in seconds.

    Attributes:
      stall: without an answer, until the controller is named.
      wait: without a controller, until the task gives up.
      grace: after a signal, for the controller to save and dismiss the task.
    """

    stall: float
    wait: float
    grace: float

    @classmethod
    def of(cls, flags: ClusterFlags) -> "Patience":
        """As the flags say."""
        return cls(flags.stall_secs, flags.wait_secs, flags.stop_grace_secs)


def start(spec: ClusterSpec, config: v1.ConfigProto) -> tf.distribute.Server:
    """This task's server; it lives as long as the process.

    Raises:
      messages.ClusterError: its port is taken.
    """
    job, index = messages.boot_name(spec, spec.me)
    address = spec.address(spec.me)
    reason = ports.obstacle(address)  # TensorFlow does not say why
    try:
        if not reason:
            known = {job: [address]} if spec.elastic else spec.as_dict()
            return tf.distribute.Server(
                known, job_name=job, task_index=index, config=config
            )
    except tf.errors.OpError as error:
        reason = (error.message or "").strip().split("\n")[0]
    raise messages.ClusterError(
        f"{spec.me} cannot listen at {address} ({reason}); end what uses the port, "
        "or give the task another one"
    )


def serve(
    spec: ClusterSpec,
    config: v1.ConfigProto,
    patience: Patience,
    console: Callable[[str], None],
) -> int:
    """Serves until the controller says that training has ended.

    Args:
      spec: with this task as `me`.
      config: of the server.
      patience: how long to wait for the controller.
      console: takes lines for the user.

    Returns:
      as `await_dismissal`.

    Raises:
      messages.ClusterError: the port is taken.
    """
    target = start(spec, config).target
    connections.limit(spec, patience.stall)

    def hear(note: messages.Note) -> None:
        console(f"error: {note.words}")

    told = hear if spec.elastic else None
    statuses, _, life = announce(target, spec, console, told)
    console(f"{spec.me} serves at {spec.address(spec.me)}.")
    if line := open_ports.open_ports_warning(spec):
        console(line)
    beat = _beat(spec, life) if spec.elastic else None
    return await_dismissal(statuses, spec, patience, console, beat=beat)


def _beat(spec: ClusterSpec, life: str) -> Beat:
    """A function that sends a heartbeat of this task to the controller."""

    def send(leaving: str = "") -> str:
        mine = spec.me.job, spec.address(spec.me), life
        heartbeat = messages.Heartbeat(*mine, leaving)
        return messages.tell_controller(spec, heartbeat, seconds=_BEAT_SECONDS)

    return send


def announce(
    target: str,
    spec: ClusterSpec,
    console: Callable[[str], None],
    hear: Callable[[messages.Note], None] | None = None,
    *,
    mark: str = "",
) -> tuple[queue.SimpleQueue[int], Callable[[str], None], str]:
    """Publishes this task's `TaskInfo`, and listens for its dismissal.

    It also answers the questions of other tasks about the cluster token.

    Args:
      target: of this task's server.
      spec: with this task as `me`.
      console: takes a line about a task that has another token.
      hear: takes each note that other tasks send, in a thread.
      mark: as in `TaskInfo`.

    Returns:
      (a queue that receives the exit status; a function that tells the controller the
      reason when this task leaves a session; `TaskInfo.life`).
    """
    statuses: queue.SimpleQueue[int] = queue.SimpleQueue()
    with tf.Graph().as_default() as graph:
        mail = messages.create_mailbox(spec)
        nothing = tf.no_op()
    itself = filter_of(messages.boot_name(spec, spec.me))
    options = v1.ConfigProto(device_filters=[itself])
    session = v1.Session(target, graph=graph, config=options)
    session.run(nothing)  # `list_devices` needs a session that exists
    devices = collections.Counter(d.device_type for d in session.list_devices())

    life, breaks = os.urandom(8).hex(), itertools.count()

    def report_dropout(why: str = "") -> None:
        facts = tf.__version__, spec.as_dict(), dict(devices), life
        hello = messages.TaskInfo(
            *(*facts, next(breaks), why, spec.flags),
            has_token=bool(spec.token),
            mark=mark,
            num_examples=spec.num_examples,
        )
        session.run(mail.publish, {mail.hello: hello.text()})

    report_dropout()

    def read_notes() -> None:
        while hear:
            hear(messages.Note(*json.loads(session.run(mail.note))))

    for act in (
        lambda: statuses.put(session.run(mail.dismissal)),
        lambda: _answer_questions(session, mail.token, spec, console),
        read_notes,
    ):
        threading.Thread(target=act, daemon=True).start()
    return statuses, report_dropout, life


def _answer_questions(
    session: v1.Session,
    token: token_exchange.Answers,
    spec: ClusterSpec,
    console: Callable[[str], None],
) -> None:
    """Answers other tasks, and says once of each what is wrong with its token."""
    said = set()
    while True:
        text = session.run(token.question)
        try:
            key, answer, difference = token_exchange.reply(text, spec.token, spec.me)
        except ValueError:
            continue
        session.run(token.give, {token.key: key, token.answer: answer})
        if difference and difference not in said:
            said.add(difference)
            console(f"Not used: {difference}.")


def await_dismissal(
    statuses: queue.SimpleQueue[int],
    spec: ClusterSpec,
    patience: Patience,
    console: Callable[[str], None],
    *,
    beat: Beat | None = None,
) -> int:
    """Waits until a status comes, the controller is lost, or a signal ends the task.

    Args:
      statuses: from `announce`.
      spec: with this task as `me`.
      patience: how long to wait for the controller.
      console: takes lines for the user.
      beat: of an elastic run, sends heartbeats to the controller.

    Returns:
      the exit status that the controller gave; 1 when it is gone; 2 when this task is
      not in its list; 128 + the number of a signal after which no status came.
    """
    over = threading.Event()
    # In a thread, so that a status that comes during a poll does not wait for its end.
    poll = functools.partial(
        _poll, statuses, spec, patience, console, over=over, beat=beat
    )
    threading.Thread(target=poll, daemon=True).start()
    try:
        status = int(statuses.get())
    except KeyboardInterrupt as error:  # perhaps after hours
        over.set()
        stopped = interrupts.of(error)
        if beat:
            beat(stopped.name)
        given = _status_after_signal(
            stopped.name, statuses, spec, patience, console=console
        )
        if given is None:
            console(
                f"{spec.me}: stopped by {stopped.name} before training ended; started "
                "again, it takes part again"
            )
            return stopped.status
        status = given
    finally:
        over.set()
    with contextlib.suppress(KeyboardInterrupt):  # it ends in any case
        time.sleep(_FAREWELL_SECONDS)
    return status


def _poll(
    statuses: queue.SimpleQueue[int],
    spec: ClusterSpec,
    patience: Patience,
    console: Callable[[str], None],
    *,
    over: threading.Event,
    beat: Beat | None,
) -> None:
    """Polls the controller until `over`; puts a status when there is no use in waiting.

    The arguments are those of `await_dismissal`.
    """
    # A poll takes as long again if the controller is frozen or just exits.
    most = _BEAT_SECONDS if beat else _LOOK_SECONDS
    seconds = min(most, patience.stall / 2, patience.wait / 2)

    def say(line: str) -> None:
        if not over.is_set():
            console(line)

    def look() -> str:
        if beat:
            return beat("")
        return messages.silence(spec, spec.controller, seconds=seconds)

    absence = Absence(spec, wait_secs=patience.wait, look=look, console=say)
    # In an elastic run it need not be in the controller's list.
    fault: str | None = "" if beat else None  # None: unknown yet
    if beat:
        absence()  # the first heartbeat
    while not over.wait(min(seconds, _MEET_SECONDS) if fault is None else seconds):
        if (reason := absence()) and not over.is_set():
            console(f"error: {spec.me}: {reason}; giving up")
            return statuses.put(1)
        if fault is None and absence.met:
            fault = refusals.excluded(spec, seconds)
        if fault and not over.is_set():
            console(f"error: {fault}")
            return statuses.put(2)


def _status_after_signal(
    name: str,
    statuses: queue.SimpleQueue[int],
    spec: ClusterSpec,
    patience: Patience,
    *,
    console: Callable[[str], None],
) -> int | None:
    """Serves on after a signal; the status that the controller gives, or None.

    Who stops a whole job sends the signal to all its tasks at once.  The controller
    then finishes its step and saves, for which it needs the other tasks.
    """
    if not patience.grace:
        return None
    until = time.monotonic() + patience.grace
    absence = Absence(spec, wait_secs=_GONE_SECONDS)
    try:
        console(
            f"{spec.me}: {name} came; it serves {patience.grace:.0f} s more at most "
            "(--stop_grace_secs), so that the controller can save; a second signal "
            "ends it at once"
        )
        while (left := until - time.monotonic()) > 0:
            try:
                return int(statuses.get(timeout=min(_CHECK_SECONDS, left)))
            except queue.Empty:
                if absence():
                    return None
    except KeyboardInterrupt:  # a second signal
        pass
    return None


class Absence:
    """Polls the controller: each call returns why it is lost for good, or "".

    Args:
      spec: the cluster.
      wait_secs: how long it may be absent.
      look: returns why it does not answer, or ""; None checks whether its port is open.
      console: takes a line when it stops answering, and one when it answers again.

    Attributes:
      met: whether it has answered.
    """

    def __init__(
        self,
        spec: ClusterSpec,
        *,
        wait_secs: float,
        look: Callable[[], str] | None = None,
        console: Callable[[str], None] = lambda line: None,
    ):
        self._spec = spec
        self._wait_secs = wait_secs
        self._look = look or (
            lambda: ports.refusal(spec.address(spec.controller)) or ""
        )
        self._console = console
        self._gone_since: float | None = None  # time of the first poll that failed
        self.met = self._named = False

    def __call__(self) -> str:
        """Why the controller is given up; empty while it is not."""
        reason, now = self._look(), time.monotonic()
        where = f"controller at {self._spec.address(self._spec.controller)}"
        if not reason:
            if self._named:
                self._console(f"{self._spec.me}: the {where} answers again.")
            self._gone_since, self.met, self._named = None, True, False
            return ""
        if self._gone_since is None:  # the last poll may be long ago
            self._gone_since = now
        if now - self._gone_since >= self._wait_secs:
            return f"no {where} for {self._wait_secs:.0f} s ({reason})"
        if self.met and not self._named:
            self._console(f"{self._spec.me}: no answer from the {where}: {reason}.")
            self._named = True
        return ""
