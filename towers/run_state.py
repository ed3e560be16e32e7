"""The state of a run as values: what a checkpoint holds, but in this process's memory.

An elastic run reads it in the session that has lost a worker, in a call that reaches
only tasks that live, and loads it in the next session as it would a checkpoint.  So
does a run whose batch sizes change.
"""

import functools
import threading
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from towers.checkpoints import loading
from towers.graph import TrainGraph
from towers.layout import parts
from towers.layout.graph_names import checkpoint_name

v1 = tf.compat.v1

_SECONDS = 10.0  # for one call; a task that does not answer by then is lost, too


class RunState(NamedTuple):
    """The saved variables after a step.

    Attributes:
      step: the global step.
      values: name in a checkpoint -> value.
    """

    step: int
    values: dict[str, np.ndarray]


def read(train: TrainGraph, session: v1.Session) -> RunState | None:
    """Reads the state between two steps.

    Args:
      train: the graph.
      session: on it; if the run is elastic, a call may have failed, or may hang.

    Returns:
      the state; None if a task that holds a part of it is lost, or a step is half done.
      Asynchronous towers change variables while others read them, so there a step that
      was lost may be half done.
    """
    marks = train.marks
    copies = max([1, *map(len, train.mode.replicas.values())])
    for copy in range(copies):  # that of another tower, if the first one is lost
        replica = functools.partial(_replica, train, copy)
        fetches = {
            name: parts.apply(replica, variable)
            for name, variable in train.saved.items()
        }
        done = _fetched(session, marks.done) if marks else 0
        if done is None:
            return None  # the other calls would wait as long
        values = _fetched(session, fetches)
        begun = _fetched(session, marks.begun) if marks else 0
        if begun is None or done != begun:
            return None
        if values is not None:
            whole = {
                name: np.concatenate(value, train.saved[name].axis)
                if isinstance(value, list)
                else value
                for name, value in values.items()
            }
            return RunState(int(whole["global_step"]), whole)
    return None


def load(train: TrainGraph, session: v1.Session, state: RunState) -> None:
    """Gives the graph's saved variables the values of a state.

    Variables that the state does not have keep their initial values.

    Args:
      train: the graph, whose variables are initialized; it may have other towers.
      session: on it.
      state: to load.
    """
    for name in train.saved.keys() & state.values.keys():
        loading.put(session, train.saved[name], state.values[name])


def _replica(train: TrainGraph, copy: int, variable: tf.Variable) -> tf.Variable:
    """A copy of a saved variable, or the variable itself if it has none."""
    replicas = train.mode.replicas.get(checkpoint_name(variable), ())
    return replicas[copy] if copy < len(replicas) else variable


def _fetched(session: v1.Session, fetches: Any) -> Any:
    """What a call fetches; None if it fails or takes too long.

    A thread makes it, as a call that hangs may hold up further ones of this thread.
    """
    result: list[Any] = []
    options = v1.RunOptions(timeout_in_ms=int(1000 * _SECONDS))

    def fetch() -> None:
        try:
            result.append(session.run(fetches, options=options))
        except Exception:  # whatever fails, the state is not known
            result.append(None)

    thread = threading.Thread(target=fetch, daemon=True)
    thread.start()
    thread.join(2 * _SECONDS)
    return result[0] if result else None
