"""Clients that train one model together: between-graph replication.

Each worker is a client: it builds the same graph with its own towers and runs it in its
own session.  Variables and accumulators are shared on the ps tasks.  One client, the
chief, updates:

    follower k                                  chief
    gradients, statistics, loss of its towers   those of its own towers
      -> accumulators of follower k  ------->   + one of each follower, in order
    waits for its token              <-------   update, global step; a token for each

So a step equals that of one graph with the towers of all clients, and the sum does not
depend on the order in which gradients arrive.

A step token is a number that only grows: it contains the run and the step.  The
gradients of a follower have the token of their step.  TensorFlow's conditional
accumulators drop gradients with an older token than their own, so those of an abandoned
attempt or of a follower that was frozen.  A follower that was killed and restarted may
send the gradients of a step twice; both are equal, so their mean is right.  A follower
whose token is not the next one starts over from it.

Asynchronous clients get a token only at the start, when all of them have reported to
the chief.  After that a shared counter limits their steps (see `step_quota`).
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from flags.problem import wrong_setting
from towers.compute import deterministic_sum
from towers.data.stream import unsaved
from towers.gradients import sparse
from towers.layout.placement import Placement, task_of
from towers.variable_update import accumulators
from towers.variable_update.base import VariableUpdate
from towers.variable_update.step_quota import STEP_BITS
from towers.variable_update.tower_sums import TowerSums
from towers.variable_update.train_steps import SingleClient, TrainStep

v1 = tf.compat.v1

# The purposes of graphs; a follower has a graph for each.
TRAIN, PROBE = range(2)
_PURPOSE_BITS = 1

# A step token: tenths of a second since 2026 (34 bits), purpose, step (`STEP_BITS`).
_BEGIN = 1767225600
_WAITING = 1024  # capacity of token queues, which also hold tokens of old attempts


class ChiefClient(SingleClient):
    """The client that updates.

    Args:
      mode: of the graph, with the placement of this client.
      purpose: of the graph.
    """

    def __init__(self, mode: VariableUpdate, purpose: int):
        self._placement = placement = mode.placement
        self._purpose = purpose
        self._global_step = v1.train.get_global_step()
        self.count = placement.clients if mode.together else 1
        followers = range(1, placement.clients)
        with v1.name_scope("clients"):
            with tf.device(placement.master):
                self._stamp = unsaved(tf.constant(0, tf.int64))
                self._given = v1.placeholder(tf.int64, [], "stamp")
                self._set = self._stamp.assign(self._given, read_value=False)
            self.accumulators = accumulators.Accumulators(self._given)
            with tf.device(placement.counters):
                self._queues = [token_queue(k) for k in followers]
                self._send_tokens = [
                    queue.enqueue(self._given) for queue in self._queues
                ]

    def step(
        self,
        sums: TowerSums,
        *,
        finish: Callable[[TowerSums], TrainStep],
        refills: Sequence[tf.Operation],
    ) -> TrainStep:
        """Sums all clients' gradients, updates, and sends each follower a token."""
        del refills
        with v1.name_scope("clients"):
            total = self._add(sums)
        done = finish(total)
        with v1.name_scope("clients"), tf.control_dependencies([done.train_op]):
            with tf.device(self._placement.master):
                stamp = self._stamp.assign_add(1, read_value=True)
            train_op = tf.group(*self._tokens(stamp))
        with tf.device(self._placement.master), tf.control_dependencies([train_op]):
            return done._replace(train_op=train_op, step=tf.identity(done.step))

    def _tokens(self, stamp: tf.Tensor) -> list[tf.Operation]:
        """What sends the followers the token of the next step."""
        return [queue.enqueue(stamp) for queue in self._queues]

    def _add(self, sums: TowerSums) -> TowerSums:
        """The sums of all clients, once all of them are there."""
        leaves = tf.nest.flatten(sums)
        places = [(_place(leaf, self._placement), leaf) for leaf in leaves]
        taken: list[list[Any]] = [[] for _ in leaves]
        for index, (device, leaf) in enumerate(places):
            for k in range(1, self._placement.clients) if leaf is not None else ():
                with tf.device(device):
                    held = accumulators.shared(leaf, f"{self._purpose}/{k}/{index}")
                    self.accumulators.add(held)
                    taken[index].append(self._take(held, k, leaf))
        # Variables change only after every follower has read them.
        ends = [
            getattr(tensor, "values", tensor).op
            for of_leaf in taken
            for tensor in of_leaf
        ]
        with tf.control_dependencies(ends):
            added = [
                leaf if leaf is None else _sum([leaf, *received], device)
                for (device, leaf), received in zip(places, taken)
            ]
        return tf.nest.pack_sequence_as(sums, added)

    def _take(self, held: Any, client: int, leaf: Any) -> Any:
        """The sum of a client in one of its accumulators, on the current device.

        Args:
          held: the accumulator.
          client: whose.
          leaf: the sum of this client.
        """
        del client, leaf
        return accumulators.take(held)

    def release(self, session: v1.Session) -> None:
        """Empties the accumulators, and sends the followers their first token."""
        stamp = self._new_stamp(session)
        self.accumulators.empty(session, stamp)
        session.run([self._set, *self._first_tokens(stamp)], {self._given: stamp})

    def _first_tokens(self, stamp: int) -> list[tf.Operation]:
        """What sends the followers a token that is fed."""
        del stamp
        return self._send_tokens

    def _new_stamp(self, session: v1.Session) -> int:
        step = int(session.run(self._global_step))
        moment = _next_moment() << _PURPOSE_BITS | self._purpose
        return moment << STEP_BITS | step


class AsynchronousChief(ChiefClient):
    """The chief of asynchronous clients: it shares out the steps."""

    def __init__(self, mode: VariableUpdate, purpose: int):
        super().__init__(mode, purpose)
        assert mode.board is not None
        self._board = mode.board
        with v1.name_scope("clients"), tf.device(self._placement.counters):
            self._ready = _ready_queue().dequeue()

    step = SingleClient.step  # of one of this client's towers

    def release(self, session: v1.Session) -> None:
        """Sends the followers a token, and lets turns be drawn when all are there."""
        stamp = self._new_stamp(session)
        self._board.close(session, stamp)
        session.run(self._send_tokens, {self._given: stamp})
        missing = self._placement.clients - 1
        while missing:
            missing -= int(session.run(self._ready)) == stamp
        self._board.open(session)


class FollowerClient(SingleClient):
    """A client that sends the sums of its towers to the chief, and waits for a token.

    Args:
      mode, purpose: as in `ChiefClient`.

    Attributes:
      watched: whether each step ends with a token.
      token: int64 scalar, the token that ends a step.
      used: bool scalar, whether the chief used the sums of the step; None if it always
        does.
    """

    watched = True
    used: tf.Tensor | None = None

    def __init__(self, mode: VariableUpdate, purpose: int):
        self._placement = placement = mode.placement
        self._purpose = purpose
        self._refresh = mode.sync
        self.count = placement.clients if mode.together else 1
        with v1.name_scope("clients"), tf.device(placement.master):
            self._stamp = unsaved(tf.constant(0, tf.int64))
            self._given = v1.placeholder(tf.int64, [], "stamp")
            self._set = self._stamp.assign(self._given, read_value=False)
            self.token = self._stamp.read_value()

    def step(
        self,
        sums: TowerSums,
        *,
        finish: Callable[[TowerSums], TrainStep],
        refills: Sequence[tf.Operation],
    ) -> TrainStep:
        """Sends the sums and waits for the token; the chief updates."""
        where = self._placement
        with v1.name_scope("clients"):
            sent = []
            for index, leaf in enumerate(tf.nest.flatten(sums)):
                if leaf is not None:
                    with tf.device(_place(leaf, where)):
                        name = f"{self._purpose}/{where.client}/{index}"
                        sent.append(self._send(accumulators.shared(leaf, name), leaf))
            with tf.device(where.counters), tf.control_dependencies(sent):
                token = self._receive()
            with tf.device(where.master):
                kept = self._stamp.assign(token, read_value=False)
                # Without gradients, nobody has changed the variables.
                refreshed = self._refresh([token.op]) if sums.gradients[0] else []
                train_op = tf.group(kept, *refreshed, *refills)
                with tf.control_dependencies([train_op]):
                    step = tf.bitwise.bitwise_and(token, 2**STEP_BITS - 1)
        self.token = token
        return TrainStep(train_op, step, sums.loss, sums.metrics)

    def _send(self, held: Any, leaf: Any) -> tf.Operation:
        """Puts a sum into its accumulator."""
        return accumulators.send(held, leaf, self.token)

    def _receive(self) -> tf.Tensor:
        """The token of the next step, once the sums are sent."""
        return token_queue(self._placement.client).dequeue()

    def begin(self, session: v1.Session, stamp: int) -> None:
        """Takes a token for the start of the first step."""
        session.run(self._set, {self._given: stamp})

    def ready(self, session: v1.Session, stamp: int) -> None:
        """Is called when the first step can begin."""


class AsynchronousFollower(FollowerClient):
    """A client that updates the variables itself, in steps that the chief allows."""

    watched = False

    def __init__(self, mode: VariableUpdate, purpose: int):
        super().__init__(mode, purpose)
        assert mode.board is not None
        self._board = mode.board
        with v1.name_scope("clients"), tf.device(self._placement.counters):
            self._report_ready = _ready_queue().enqueue(self._given)

    step = SingleClient.step  # of one of this client's towers

    def ready(self, session: v1.Session, stamp: int) -> None:
        """Reports to the chief that this client can begin."""
        self._board.stamp = stamp >> STEP_BITS << STEP_BITS
        session.run(self._report_ready, {self._given: stamp})


def of(mode: VariableUpdate, purpose: int) -> SingleClient:
    """The client object of this task; the arguments are those of `ChiefClient`."""
    if mode.placement.clients == 1:
        return SingleClient()
    leads = mode.placement.client == 0
    if mode.together:
        return ChiefClient(mode, purpose) if leads else FollowerClient(mode, purpose)
    return (
        AsynchronousChief(mode, purpose)
        if leads
        else AsynchronousFollower(mode, purpose)
    )


def check_steps(where: Placement, last_step: int) -> None:
    """Refuses a run with more steps than a step token can count.

    Raises:
      ValueError: it has more; the sentence says how many are possible.
    """
    most = 2**STEP_BITS - 1
    if where.clients > 1 and last_step > most:
        raise wrong_setting(
            "replication",
            "between_graph",
            f"clients count {most} steps and this run has {last_step}",
            "lower `num_batches` or `num_epochs`, or leave it out",
        )


def token_queue(client: int) -> tf.queue.FIFOQueue:
    """The queue of a follower's tokens, on the current device."""
    return tf.queue.FIFOQueue(
        _WAITING, [tf.int64], shapes=[[]], shared_name=f"towers/tokens/{client}"
    )


def _ready_queue() -> tf.queue.FIFOQueue:
    """The queue in which followers report to the chief, on the current device."""
    return tf.queue.FIFOQueue(
        _WAITING, [tf.int64], shapes=[[]], shared_name="towers/ready"
    )


def purpose_of(stamp: int) -> int:
    """The purpose that a step token contains: which graph a follower must run."""
    return stamp >> STEP_BITS & 2**_PURPOSE_BITS - 1


def _next_moment() -> int:
    """A number that no call before has returned, in tenths of a second."""
    moment = int(10 * (time.time() - _BEGIN)) + 1
    time.sleep(max(0.0, _BEGIN + moment / 10 - time.time()))
    return moment


def _place(leaf: Any, placement: Placement) -> str:
    """The device of a sum if that is on a ps task, else the counters' device."""
    device = getattr(getattr(leaf, "values", leaf), "device", "")
    shared = {task_of(parameters) for parameters in placement.parameters}
    return device if task_of(device) in shared else placement.counters


def _sum(parts: Sequence[Any], device: str) -> Any:
    """Their sum, in order."""
    first, *others = parts
    if isinstance(first, tf.IndexedSlices):
        rows = [first]
        for other in others:
            indices = tf.cast(other.indices, first.indices.dtype)
            rows.append(tf.IndexedSlices(other.values, indices, first.dense_shape))
        return sparse.mean(rows, device)
    with tf.device(device):
        return deterministic_sum.sum_in_order(parts)
