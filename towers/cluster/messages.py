"""Messages between a task and the controller, outside of the graph.

The controller must know which task answers at an address, and each task must know when
training has ended.  Both use TensorFlow's own server, with resources on the task: a
string variable with its `TaskInfo`, a queue for its exit status, and those of
`token_exchange`.  The controller has a queue of notes from other tasks, too.
"""

import contextlib
import dataclasses
import json
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from towers.cluster import ports, software, token_exchange
from towers.errors import explain
from towers.layout.cluster_spec import ClusterSpec, Task
from towers.layout.placement import device
from towers.layout.placement import task as filter_of

v1 = tf.compat.v1

_HELLO, _DISMISSAL, _NOTES = "towers_hello", "towers_dismissal", "towers_notes"
_HEARTBEATS = "towers_heartbeats"
_NOBODY = filter_of(Task("nobody", 0))  # excludes all tasks but a session's master
_CLOSE_SECONDS = 2.0  # to close a session
_LOOK_SECONDS = 0.02  # between two looks for an answer
# Of a dismissal: to answer one call, to exit after it, and between two looks at the
# port.
_DISMISSAL_SECONDS, _EXIT_SECONDS, _PORT_SECONDS = 3.0, 2.0, 0.05


class ClusterError(RuntimeError):
    """The cluster is wrong or does not answer; the message is for the user."""


class NoAnswerError(Exception):
    """A task did not answer; the message follows "worker 1 at host:port: "."""


class WrongTokenError(NoAnswerError):
    """A task answered, but has another cluster token.

    Attributes:
      info: what it says of itself.
    """

    def __init__(self, words: str, info: "TaskInfo"):
        super().__init__(words)
        self.info = info


@dataclasses.dataclass(frozen=True)
class TaskInfo:
    """A task's description of itself.

    Attributes:
      tensorflow: its version.
      cluster: job -> addresses, that the task was started with.
      devices: kind -> number, `{"CPU": 2}`.
      life: a number of this process; a restarted task has another.
      breaks: how often it left a session before its end.
      why: the reason of the last time.
      flags: of a client, as in `ClusterSpec`.
      has_token: whether it has a cluster token.
      software: name -> version; see `software.versions`.
      mark: of a controller, the name of a file in its `--train_dir`; see
        `shared_folder`.
      num_examples: as in `ClusterSpec`.
    """

    tensorflow: str
    cluster: dict[str, list[str]]
    devices: dict[str, int]
    life: str
    breaks: int = 0
    why: str = ""
    flags: Sequence[str] = ()
    has_token: bool = False
    software: Mapping[str, str] = dataclasses.field(default_factory=software.versions)
    mark: str = ""
    num_examples: int | None = None

    def text(self) -> str:
        """The text that `fetch_info` reads."""
        return json.dumps(dataclasses.asdict(self))


class Note(NamedTuple):
    """What a task tells the controller, or the controller a task.

    Attributes:
      task: name of the task that it is about, "worker 1".
      words: for the user.
      ends: whether the run cannot go on without this task.
    """

    task: str
    words: str
    ends: bool


class Heartbeat(NamedTuple):
    """What a task of an elastic run tells the controller from time to time.

    Attributes:
      job: of the task.
      address: at which the controller reaches it.
      life: as in `TaskInfo`.
      leaving: the signal after which it takes part only until it is dismissed, or "".
    """

    job: str
    address: str
    life: str
    leaving: str = ""


class Mailbox(NamedTuple):
    """The resources, in a graph of their task."""

    hello: tf.Tensor  # string scalar, to be fed
    publish: tf.Operation  # publishes what is fed
    dismissal: tf.Tensor  # int32 scalar, the exit status, for which it waits
    note: tf.Tensor  # string scalar, the next note as JSON, for which it waits
    token: token_exchange.Answers


def create_mailbox(spec: ClusterSpec) -> Mailbox:
    """Adds the resources of this task to the current graph."""
    with tf.device(host_of(spec, spec.me)):
        handle = tf.raw_ops.VarHandleOp(dtype=tf.string, shape=[], shared_name=_HELLO)
        hello = v1.placeholder(tf.string, [], "hello")
        publish = tf.raw_ops.AssignVariableOp(resource=handle, value=hello)
        token = token_exchange.create_answers()
        dismissal, note = _dismissals().dequeue(), _notes().dequeue()
        return Mailbox(hello, publish, dismissal, note, token)


def send(
    spec: ClusterSpec, note: Note, *, seconds: float, to: Task | None = None
) -> None:
    """Sends a note to a task, by default the controller.

    Raises:
      NoAnswerError, tf.errors.OpError: it does not take it in so many seconds.
    """
    task = to or spec.controller
    with tf.Graph().as_default() as graph, tf.device(host_of(spec, task)):
        enqueue = _notes().enqueue(json.dumps(note))
    _call(spec, task, graph=graph, fetch=enqueue, seconds=seconds)


def boot_name(spec: ClusterSpec, task: Task) -> Task:
    """The name by which a task's server knows itself.

    In an elastic run each server knows only itself, and each session gives it a name.
    That must be another one (reference: TensorFlow's ClusterSpec propagation).
    """
    return Task("node", 0) if spec.elastic else task


def host_of(spec: ClusterSpec, task: Task) -> str:
    """The CPU device of a task, for a session that only this task is in."""
    return device("CPU", 0, boot_name(spec, task))


def heartbeats() -> tf.Tensor:
    """Adds to the current graph, of the controller, the next heartbeat, as JSON."""
    return _heartbeats().dequeue()


def tell_controller(spec: ClusterSpec, heartbeat: Heartbeat, *, seconds: float) -> str:
    """Sends a heartbeat to the controller.

    Returns:
      why the controller does not answer, or "".
    """
    with tf.Graph().as_default() as graph, tf.device(host_of(spec, spec.controller)):
        enqueue = _heartbeats().enqueue(json.dumps(heartbeat))
    try:
        _call(spec, spec.controller, graph=graph, fetch=enqueue, seconds=seconds)
    except NoAnswerError as error:
        return str(error)
    except tf.errors.OpError as error:
        return explain.reason(error.message or "")
    return ""


def fetch_info(spec: ClusterSpec, task: Task, *, seconds: float) -> TaskInfo:
    """Fetches the published description of a task.

    Args:
      spec: the cluster.
      task: to ask.
      seconds: to wait for the answer.

    Raises:
      NoAnswerError: it does not answer, or another program answers.
      WrongTokenError: its cluster token is another one.
    """
    until = time.monotonic() + seconds

    def text() -> tf.Tensor:
        handle = tf.raw_ops.VarHandleOp(dtype=tf.string, shape=[], shared_name=_HELLO)
        return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.string)

    answer = fetch(spec, task, text, seconds)
    try:
        info = TaskInfo(**{"software": {}, **json.loads(answer)})
    except (ValueError, TypeError):
        raise NoAnswerError("what answers there is another version of towers") from None
    if spec.token or info.has_token:
        asked = token_exchange.question(spec.token, spec.me)
        answer = _answer(spec, task, asked, until)
        if not token_exchange.is_right(answer, spec.token, asked):
            ours, theirs = bool(spec.token), info.has_token
            words = token_exchange.difference("it", theirs, str(spec.me), ours)
            raise WrongTokenError(words, info)
    return info


def _answer(
    spec: ClusterSpec, task: Task, asked: token_exchange.Question, until: float
) -> bytes:
    """A task's answer to a question about the token.

    Raises:
      NoAnswerError: none came until this time, by `time.monotonic`.
    """
    fetch(spec, task, lambda: token_exchange.send(asked), until - time.monotonic())

    def take() -> tf.Tensor:
        return token_exchange.take_answer(asked)

    while time.monotonic() < until:
        if answer := fetch(spec, task, take, until - time.monotonic()):
            return answer
        time.sleep(_LOOK_SECONDS)
    raise NoAnswerError("it does not answer questions about the cluster token")


def fetch(
    spec: ClusterSpec,
    task: Task,
    make: Callable[[], tf.Tensor | tf.Operation],
    seconds: float,
) -> Any:
    """Fetches what `make` adds to a graph of the task.

    Raises:
      NoAnswerError: it does not answer, or another program answers.
    """
    with tf.Graph().as_default() as graph, tf.device(host_of(spec, task)):
        text = make()
    try:
        return _call(spec, task, graph=graph, fetch=text, seconds=seconds)
    except tf.errors.FailedPreconditionError:
        raise NoAnswerError(
            "a TensorFlow server is there, but it is not (or not yet) a task of towers"
        ) from None
    except tf.errors.InvalidArgumentError:
        raise NoAnswerError(
            "what answers there is another task (start all with the same hosts)"
        ) from None
    except tf.errors.OpError as error:
        raise NoAnswerError(explain.reason(error.message or "")) from None


def silence(spec: ClusterSpec, task: Task, *, seconds: float) -> str:
    """Why a task's server does not answer in this time; empty if it does."""
    with tf.Graph().as_default() as graph, tf.device(host_of(spec, task)):
        sign = tf.constant(0)
    try:
        _call(spec, task, graph=graph, fetch=sign, seconds=seconds)
    except NoAnswerError as error:
        return str(error)
    except tf.errors.OpError as error:
        return explain.reason(error.message or "")
    return ""


def dismiss(spec: ClusterSpec, task: Task, *, status: int, seconds: float) -> None:
    """Tells a task to exit with a status, and again until its port is closed.

    One call is not enough: it may get stuck, for example behind the end of a session
    that used the task.

    Args:
      spec: the cluster.
      task: to tell.
      status: its exit status.
      seconds: after which a task that stays is left alone.
    """
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        # A new graph each time: a call that is stuck may hold the lock of the last one.
        with tf.Graph().as_default() as graph, tf.device(host_of(spec, task)):
            enqueue = _dismissals().enqueue(status)
        try:
            patience = min(_DISMISSAL_SECONDS, left)
            _call(spec, task, graph=graph, fetch=enqueue, seconds=patience)
        except (tf.errors.OpError, NoAnswerError):
            pass
        if _closes(spec.address(task), min(_EXIT_SECONDS, until - time.monotonic())):
            return


def _closes(address: str, seconds: float) -> bool:
    """Whether the port of an address is or becomes closed in this time."""
    until = time.monotonic() + seconds
    # Twice, as a busy machine may not answer at once.
    while not all(ports.refusal(address, _EXIT_SECONDS) for _ in range(2)):
        if time.monotonic() >= until:
            return False
        time.sleep(_PORT_SECONDS)
    return True


def _dismissals() -> tf.queue.FIFOQueue:
    return tf.queue.FIFOQueue(8, [tf.int32], shapes=[[]], shared_name=_DISMISSAL)


def _notes() -> tf.queue.FIFOQueue:
    return tf.queue.FIFOQueue(64, [tf.string], shapes=[[]], shared_name=_NOTES)


def _heartbeats() -> tf.queue.FIFOQueue:
    # More than one for each task wait only while the controller builds a graph.
    return tf.queue.FIFOQueue(4096, [tf.string], shapes=[[]], shared_name=_HEARTBEATS)


def _call(
    spec: ClusterSpec, task: Task, *, graph: tf.Graph, fetch: Any, seconds: float
) -> Any:
    """Fetches a tensor from one task, which may be lost, frozen or another program.

    The session's master is that task.  A session of this task would end sessions that
    another process with this task's name has there, which may be training.

    TensorFlow's timeouts have no effect while a session is made.  So a thread makes the
    call, and is abandoned if the answer does not come in time.

    Raises:
      NoAnswerError: no answer came in time.
      tf.errors.OpError: the task answered with this error.
    """
    until = time.monotonic() + seconds
    if reason := ports.refusal(spec.address(task), seconds / 2):
        raise NoAnswerError(f"nothing answers there ({reason})")
    answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
    config = v1.ConfigProto(
        device_filters=[_NOBODY], operation_timeout_in_ms=int(1000 * seconds)
    )
    target = f"grpc://{spec.address(task)}"

    def run() -> None:
        session = v1.Session(target, graph=graph, config=config)
        try:
            answer.put(session.run(fetch))
        except Exception as error:
            answer.put(error)
        with contextlib.suppress(tf.errors.OpError):  # the task is a new process now
            session.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        result = answer.get(timeout=max(0.0, until - time.monotonic()))
    except queue.Empty:
        raise NoAnswerError(
            f"its port is open, but nothing was answered for {seconds:.2g} s: it is "
            "frozen, or no TensorFlow server"
        ) from None
    thread.join(_CLOSE_SECONDS)
    if isinstance(result, Exception):
        raise result
    return result
