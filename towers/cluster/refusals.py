"""A task that is refused before it serves tells the others, so that none waits for it.

A controller that is refused ends the other tasks.  Another task tells the controller,
which then ends the run.  A task that is not in the run's list of hosts tells the
controller that it takes no part.
"""

import contextlib
import time
from collections.abc import Sequence

import tensorflow as tf

from towers.cluster import comparison, messages, ports
from towers.cluster.health_check import in_parallel
from towers.layout.cluster_spec import (
    CONTROLLER,
    FOLLOWER,
    SERVER,
    ClusterSpec,
    Task,
)

# For tasks that are started at the same time to open their ports; for an answer;
# between two attempts; to end.
_LATE_SECONDS, _ANSWER_SECONDS, _PAUSE_SECONDS, _END_SECONDS = 10.0, 5.0, 0.5, 5.0


def share(
    spec: ClusterSpec,
    sentences: Sequence[str],
    *,
    status: int,
    seconds: float = _LATE_SECONDS,
) -> None:
    """Tells the other tasks that this one is refused; they end.

    Does nothing if a controller answers at the controller's address: this process has
    told the others already, or they belong to a run that is under way.

    Args:
      spec: with this task as `me`.
      sentences: why.
      status: the exit status of this task.
      seconds: for tasks that are not there yet.
    """
    if spec.role == CONTROLLER:
        if ports.refusal(spec.address(spec.me)):
            in_parallel(lambda task: _end(spec, task, status, seconds), spec.servers)
    elif spec.role in (SERVER, FOLLOWER):
        words = f"{spec.me} at {spec.address(spec.me)} is refused: "
        note = messages.Note(str(spec.me), words + "; ".join(sentences), ends=True)
        _tell(spec, note, seconds)


def excluded(spec: ClusterSpec, seconds: float) -> str | None:
    """Why this task takes no part in the run; "" if it does, None if nobody answers.

    The controller is told, too.

    Args:
      spec: with this task as `me`.
      seconds: to wait for the controller's answer.
    """
    try:
        hosts = messages.fetch_info(spec, spec.controller, seconds=seconds).cluster
    except messages.NoAnswerError:
        return None
    address, job = spec.address(spec.me), spec.me.job
    if address in hosts.get(job, ()):
        return ""
    where = f"{spec.controller} at {spec.address(spec.controller)}"
    has = ", ".join(hosts.get(job, ())) or f"no {job}"
    fault = f"is not in the list of the run, which has {has}"
    task = f"{spec.me} at {address}"
    _tell(
        spec,
        messages.Note(str(spec.me), f"{task} {fault}: it takes no part.", ends=False),
        _END_SECONDS,
    )
    return f"{task} {fault}, says the {where}; start all tasks with the same hosts"


def _end(spec: ClusterSpec, task: Task, status: int, seconds: float) -> None:
    """Dismisses a task once it answers, if it was started for this controller."""
    until = time.monotonic() + seconds
    while True:
        try:
            hello = messages.fetch_info(spec, task, seconds=_ANSWER_SECONDS)
        except messages.NoAnswerError:
            if time.monotonic() >= until:
                return
            time.sleep(_PAUSE_SECONDS)
            continue
        if comparison.leader(hello) == spec.address(spec.controller):
            messages.dismiss(spec, task, status=status, seconds=_END_SECONDS)
        return


def _tell(spec: ClusterSpec, note: messages.Note, seconds: float) -> None:
    """Sends a note to the controller, once it answers."""
    until = time.monotonic() + seconds
    while True:
        with contextlib.suppress(messages.NoAnswerError, tf.errors.OpError):
            return messages.send(spec, note, seconds=_ANSWER_SECONDS)
        if time.monotonic() >= until:
            return
        time.sleep(_PAUSE_SECONDS)
