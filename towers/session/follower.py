"""A follower: a client that runs its towers' part of every step.

It writes no files and does not know the last step.  A token from the chief contains the
graph to run, that of the run or of `mean_check`, and the step; see `between_graph`.
"""

import contextlib
import types
from collections.abc import Callable, Iterator
from typing import NoReturn

import tensorflow as tf

from towers import graph
from towers.callbacks.base import NEVER, Callback, RunArgs, RunContext, RunValues
from towers.cluster.sessions import Sessions, session_config
from towers.data import inputs
from towers.errors import explain
from towers.planning import Plan
from towers.session import loop, mean_check
from towers.variable_update import between_graph
from towers.variable_update.between_graph import FollowerClient
from towers.variable_update.step_quota import STEP_BITS, RestartedError

v1 = tf.compat.v1


class CheckTokens(Callback):
    """Checks that each token follows the one before.

    A client whose sums were not used goes on from the newest token, with the examples
    of its step.

    Args:
      train: the graph of a follower.
      stamp: the step token that it began with.
    """

    def __init__(self, train: graph.TrainGraph, stamp: int):
        client = train.clients
        assert isinstance(client, FollowerClient)
        self._client, self._input = client, train.feed.initializer
        self._used = client.used
        self._fetches = [client.token, *([] if self._used is None else [self._used])]
        self._stamp = stamp

    def next_due(self, step: int) -> int:
        """Each step, if it ends with a token."""
        return step + 1 if self._client.watched else NEVER

    def before_run(self, run_context: RunContext) -> RunArgs | None:
        """Asks for the token, and whether the sums were used."""
        return v1.train.SessionRunArgs(self._fetches)

    def after_run(self, run_context: RunContext, run_values: RunValues) -> None:
        """Raises `RestartedError` if the token is not the next one of the run."""
        # Negative: left of a run in which not all sums were used.
        stamp, *used = (abs(int(result)) for result in run_values.results)
        follows = stamp == self._stamp + 1
        if used and not (stamp ^ self._stamp) >> STEP_BITS:
            if not (follows and used[0]):
                self._client.begin(run_context.session, stamp)
                run_context.session.run(self._input)
        elif not follows:
            raise RestartedError(stamp)
        self._stamp = stamp


def follow(
    plan: Plan, sessions: Sessions, report_dropout: Callable[[str], None]
) -> NoReturn:
    """Takes the chief's steps; returns only when a task is lost for good.

    Args:
      plan: of the run.
      sessions: opens sessions.
      report_dropout: called with the reason when this task leaves a session, so that
        the chief, which may wait for it, starts over as well.

    Raises:
      ValueError: model and data do not fit.
      messages.ClusterError: the chief or a ps task is wrong, or does not come back.
    """
    where = plan.placement
    config = session_config(where, plan.config.devices)
    graphs = {
        between_graph.TRAIN: graph.build(
            plan.model,
            plan.source,
            plan.update,
            placement=where,
            options=plan.options,
        ),
    }
    if plan.config.variables.check_mean:
        graphs[between_graph.PROBE] = mean_check.build(plan.options, where)
    with tf.Graph().as_default() as waiting, tf.device(where.counters):
        token = between_graph.token_queue(where.client).dequeue()

    tokens: list[int] = []  # received but not used yet; at most one

    @contextlib.contextmanager
    def reporting() -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            # At once: a chief that has started over would otherwise do so again.
            report_dropout(explain.reason(str(getattr(error, "message", error))))
            raise

    def attempt() -> int:
        if not tokens:
            with sessions.open(waiting, config) as session, reporting():
                tokens.append(abs(int(session.run(token))))
        stamp = tokens.pop()
        train = graphs[between_graph.purpose_of(stamp)]
        with sessions.open(train.graph, config) as session, reporting():
            try:
                tokens.extend(_train(train, session, stamp))
            except tf.errors.FailedPreconditionError as error:
                if not _may_be_old(error, plan):
                    raise
        return 0

    no_signal = types.SimpleNamespace(received=None, insisted=False)
    while True:
        sessions.keep(attempt, no_signal, resumes=True)


def _may_be_old(error: tf.errors.FailedPreconditionError, plan: Plan) -> bool:
    """Whether the cause may be a token from before a ps task was lost.

    The error of a data set of another length has the same class.
    """
    return inputs.explain(error, plan.source) is None


def _train(train: graph.TrainGraph, session: v1.Session, stamp: int) -> list[int]:
    """Takes steps until the chief starts over; returns its new token, if known."""
    client = train.clients
    assert isinstance(client, FollowerClient)
    try:
        client.begin(session, stamp)
        session.run(train.sync)
        session.run(train.feed.initializer)
        client.ready(session, stamp)
        loop.run(train, session, [CheckTokens(train, stamp)], last_step=NEVER)
    except RestartedError as news:
        return [] if news.stamp is None else [news.stamp]
    raise AssertionError("there are more steps than a run has")
