"""A task's server, and what it and the controller say to each other beside the graph.

The controller must know what answers at an address, and each task when training has
ended.  Both go over TensorFlow's own server, through two resources on the task: a
string variable that holds its `Hello`, and a queue for the status to leave with.
"""

import collections
import dataclasses
import functools
import itertools
import json
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from towers.errors import explain
from towers.layout.cluster import Cluster, Task
from towers.layout.placement import device
from towers.layout.placement import task as filter_of
from towers.tasks import exposure, ports

v1 = tf.compat.v1

_HELLO, _DISMISSAL = "towers_hello", "towers_dismissal"
_NOBODY = filter_of(Task("nobody", 0))  # all but a session's own master
# Seconds: to close a session; at most between two polls of the controller.
_CLOSE_SECONDS = 2.0
_LOOK_SECONDS = 30.0
# From the dismissal to the exit: the controller still closes its session to this task.
_FAREWELL_SECONDS = 0.3


class ClusterError(RuntimeError):
    """The cluster is not what it should be, or not there; a sentence for the user."""


class SilentError(Exception):
    """A task did not answer; in words that follow "worker 1 at host:port: "."""


@dataclasses.dataclass(frozen=True)
class Hello:
    """What a task says of itself.

    Attributes:
      tensorflow: its version.
      cluster: job -> addresses, as the task was told.
      devices: kind -> number, `{"CPU": 2}`.
      life: a number of this process, so that a restarted task is told from the old.
      breaks: how often it dropped out of a session.
      why: it did the last time.
      flags: of a client, as `Cluster` has them.
    """

    tensorflow: str
    cluster: dict[str, list[str]]
    devices: dict[str, int]
    life: str
    breaks: int = 0
    why: str = ""
    flags: Sequence[str] = ()


def start(spec: Cluster, config: v1.ConfigProto) -> tf.distribute.Server:
    """This task's server; it lives as long as the process.

    Raises:
      ClusterError: its port is taken.
    """
    job, index = spec.me
    address = spec.address(spec.me)
    reason = ports.obstacle(address)  # TensorFlow does not say why
    try:
        if not reason:
            return tf.distribute.Server(
                spec.as_dict(), job_name=job, task_index=index, config=config
            )
    except tf.errors.OpError as error:
        reason = (error.message or "").strip().split("\n")[0]
    raise ClusterError(
        f"{spec.me} cannot listen at {address} ({reason}); end what uses the port, "
        "or give the task another one"
    )


def serve(
    spec: Cluster,
    config: v1.ConfigProto,
    *,
    stall_secs: float,
    wait_secs: float,
    console: Callable[[str], None],
) -> int:
    """Serves until the controller says that training has ended.

    Args:
      spec: with this task as `me`.
      config: of the server.
      stall_secs: how long the controller may give no sign of life until it is named.
      wait_secs: how long to stay without a controller.
      console: takes lines for the user.

    Returns:
      the exit status that the controller gave, or 1 when it is gone.

    Raises:
      ClusterError: the port is taken.
    """
    target = start(spec, config).target
    told, _ = attend(target, spec)
    console(f"{spec.me} serves at {spec.address(spec.me)}.")
    if line := exposure.of(spec):
        console(line)
    return leave_when_told(
        told, spec, stall_secs=stall_secs, wait_secs=wait_secs, console=console
    )


def attend(
    target: str, spec: Cluster
) -> tuple[queue.SimpleQueue[int], Callable[[str], None]]:
    """Says what this task is to whoever asks, and listens for its dismissal.

    Args:
      target: of this task's server.
      spec: with this task as `me`.

    Returns:
      where the exit status comes from, and what to call with the reason when this
      task drops out of a session, so that the controller hears of it.
    """
    told: queue.SimpleQueue[int] = queue.SimpleQueue()
    with tf.Graph().as_default() as graph:
        put, dismissal = _own_mail(spec)
        nothing = tf.no_op()
    options = v1.ConfigProto(device_filters=[filter_of(spec.me)])
    session = v1.Session(target, graph=graph, config=options)
    session.run(nothing)  # makes the session, which tells the devices
    devices = collections.Counter(d.device_type for d in session.list_devices())

    life, breaks = os.urandom(8).hex(), itertools.count()

    def tell(why: str = "") -> None:
        facts = tf.__version__, spec.as_dict(), dict(devices), life
        hello = Hello(*facts, breaks=next(breaks), why=why, flags=spec.flags)
        session.run(put, {"hello:0": json.dumps(dataclasses.asdict(hello))})

    tell()
    threading.Thread(
        target=lambda: told.put(session.run(dismissal)), daemon=True
    ).start()
    return told, tell


def leave_when_told(
    told: queue.SimpleQueue[int],
    spec: Cluster,
    *,
    stall_secs: float,
    wait_secs: float,
    console: Callable[[str], None],
) -> int:
    """Stays until a status comes, or the controller is gone; see `serve`.

    Args:
      told: from `attend`.
      spec: with this task as `me`.
      stall_secs: as `serve` has it.
      wait_secs: as `serve` has it.
      console: takes lines for the user.
    """
    # A look takes as long again where the controller is frozen, or just leaves.
    seconds = min(_LOOK_SECONDS, stall_secs / 2, wait_secs / 2)
    over = threading.Event()
    absence = Absence(
        spec,
        wait_secs=wait_secs,
        look=functools.partial(_look, spec, seconds),
        console=lambda line: over.is_set() or console(line),
    )

    def look_out() -> None:
        while not over.wait(seconds):
            if (reason := absence()) and not over.is_set():
                console(f"error: {spec.me}: {reason}; giving up")
                return told.put(1)

    # Apart: a status that comes during a look is not to wait for its end.
    threading.Thread(target=look_out, daemon=True).start()
    try:
        status = int(told.get())
    except KeyboardInterrupt:  # it may have served for long
        console(f"error: {spec.me}: interrupted")
        return 130
    finally:
        over.set()
    time.sleep(_FAREWELL_SECONDS)
    return status


class Absence:
    """Tells, each time it is called, whether the controller is gone for good.

    Args:
      spec: the cluster.
      wait_secs: how long it may be away.
      look: why it is not there, empty if it is; None: whether its port is open.
      console: takes a line when it was there and gives no sign of life any more, and
        one when it is back.
    """

    def __init__(
        self,
        spec: Cluster,
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
        self._seen = time.monotonic()
        self._met = self._named = False

    def __call__(self) -> str:
        """Why the controller is given up; empty while it is not."""
        reason, now = self._look(), time.monotonic()
        where = f"controller at {self._spec.address(self._spec.controller)}"
        if not reason:
            if self._named:
                self._console(f"{self._spec.me}: the {where} answers again.")
            self._seen, self._met, self._named = now, True, False
            return ""
        if now - self._seen >= self._wait_secs:
            return f"no {where} for {self._wait_secs:.0f} s ({reason})"
        if self._met and not self._named:
            self._console(f"{self._spec.me}: no answer from the {where}: {reason}.")
            self._named = True
        return ""


def _look(spec: Cluster, seconds: float) -> str:
    """Why the controller's server does not answer; empty if it does."""
    task = spec.controller
    with tf.Graph().as_default() as graph, tf.device(device("CPU", 0, task)):
        sign = tf.constant(0)
    try:
        _call(spec, task, graph=graph, fetch=sign, seconds=seconds)
    except SilentError as error:
        return str(error)
    except tf.errors.OpError as error:
        return explain.reason(error.message or "")
    return ""


def ask(spec: Cluster, task: Task, *, seconds: float) -> Hello:
    """What a task says of itself.

    Args:
      spec: the cluster.
      task: whom to ask.
      seconds: to wait for the answer.

    Raises:
      SilentError: it does not answer, or what answers is no task of ours.
    """
    with tf.Graph().as_default() as graph, tf.device(device("CPU", 0, task)):
        handle = tf.raw_ops.VarHandleOp(dtype=tf.string, shape=[], shared_name=_HELLO)
        text = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.string)
    try:
        found = _call(spec, task, graph=graph, fetch=text, seconds=seconds)
    except tf.errors.FailedPreconditionError:
        raise SilentError(
            "a TensorFlow server is there, but it is not (or not yet) a task of towers"
        ) from None
    except tf.errors.InvalidArgumentError:
        raise SilentError(
            "what answers there is another task (start all with the same hosts)"
        ) from None
    except tf.errors.OpError as error:
        raise SilentError(explain.reason(error.message or "")) from None
    try:
        return Hello(**json.loads(found))
    except (ValueError, TypeError):
        raise SilentError("what answers there is another version of towers") from None


def dismiss(spec: Cluster, task: Task, *, status: int, seconds: float) -> None:
    """Tells a task to exit with a status; does nothing if it is gone."""
    with tf.Graph().as_default() as graph, tf.device(device("CPU", 0, task)):
        enqueue = _dismissals().enqueue(status)
    try:
        _call(spec, task, graph=graph, fetch=enqueue, seconds=seconds)
    except (tf.errors.OpError, SilentError):
        pass


def differences(spec: Cluster, task: Task, hello: Hello) -> list[str]:
    """Why a task that answers is not a task of this cluster, in words."""
    name, found = f"{task} at {spec.address(task)}", []
    if hello.tensorflow != tf.__version__:
        found.append(
            f"{name} runs TensorFlow {hello.tensorflow} and {spec.me} runs "
            f"{tf.__version__}; install the same"
        )
    if hello.cluster != spec.as_dict():
        found.append(
            f"{name} was started with the cluster {json.dumps(hello.cluster)}, "
            f"and {spec.me} with {json.dumps(spec.as_dict())}; start all with the same "
            "hosts"
        )
    if disagreement := spec.disagreement(task, hello.flags):
        found.append(f"{name} {disagreement}")
    return found


def leader(hello: Hello) -> str:
    """The address of the controller that a task was started for."""
    jobs = hello.cluster
    return (jobs.get("chief") or jobs["worker"])[0]


def lacking(hello: Hello, kind: str, count: int) -> str:
    """What a worker lacks to run so many towers, or ""."""
    has = hello.devices.get(kind.upper(), 0)
    if has >= count:
        return ""
    return (
        f"has {has} {kind.upper()} devices, and needs {count}; give every task the "
        "same --num_gpus, and --device=gpu or --device=cpu"
    )


def _own_mail(spec: Cluster) -> tuple[tf.Operation, tf.Tensor]:
    """What publishes the hello that is fed, and what waits for the dismissal."""
    with tf.device(device("CPU", 0, spec.me)):
        handle = tf.raw_ops.VarHandleOp(dtype=tf.string, shape=[], shared_name=_HELLO)
        text = v1.placeholder(tf.string, [], "hello")
        put = tf.raw_ops.AssignVariableOp(resource=handle, value=text)
        return put, _dismissals().dequeue()


def _dismissals() -> tf.queue.FIFOQueue:
    return tf.queue.FIFOQueue(8, [tf.int32], shapes=[[]], shared_name=_DISMISSAL)


def _call(spec: Cluster, task: Task, *, graph: tf.Graph, fetch, seconds: float) -> Any:
    """Runs something on one task, which may be gone, frozen or no task at all.

    The session is that task's own: one of this task's would end those that another
    process of its name has there, and such a process may be the one that trains.

    TensorFlow's own timeouts do not hold while a session is made, so a thread waits;
    it is left behind if the answer does not come in time.

    Raises:
      SilentError: it did not.
      tf.errors.OpError: the answer.
    """
    until = time.monotonic() + seconds
    if reason := ports.refusal(spec.address(task), seconds / 2):
        raise SilentError(f"nothing answers there ({reason})")
    answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
    config = v1.ConfigProto(
        device_filters=[_NOBODY], operation_timeout_in_ms=int(1000 * seconds)
    )
    target = f"grpc://{spec.address(task)}"

    def call() -> None:
        session = v1.Session(target, graph=graph, config=config)
        try:
            answer.put(session.run(fetch))
        except Exception as error:
            answer.put(error)
        session.close()

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    try:
        found = answer.get(timeout=max(0.0, until - time.monotonic()))
    except queue.Empty:
        raise SilentError(
            f"its port is open, but nothing was answered for {seconds:.2g} s: it is "
            "frozen, or no TensorFlow server"
        ) from None
    thread.join(_CLOSE_SECONDS)
    if isinstance(found, Exception):
        raise found
    return found
