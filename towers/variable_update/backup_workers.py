"""Steps that do not wait for the slowest clients: backup workers.

Chen et al. 2016, "Revisiting Distributed Synchronous SGD", https://arxiv.org/abs/1604.00981
A step of N clients with b backup workers uses the gradients of those N - b that are
complete first, and of those that are complete by then; the others are dropped.  The
chief is always used, as it updates.

    follower k                                  chief
    sums of its towers                          those of its own towers
      -> accumulators of follower k             waits until N - b clients are complete
      -> "complete"              ------------>  adds the sums of these, in order
    waits for its token          <------------  update; a token for each follower

The mean is over the examples that were used: clients exchange the weights of theirs,
and the share of the towers of those that were used divides the batch statistics.

A token that is negative tells a follower that its sums were not used.  It then empties
its accumulators, seeks its next examples, and goes on from the newest token.  What it
reads in a step is that of the step if its sums are used, as the chief changes nothing
before: it has their "complete" with the token of the step.

With a log of an earlier run the chief waits for exactly the clients of the log.  The
others get no token until it is their turn again, so that they send nothing.
"""

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from flags.cluster import ClusterFlags
from flags.problem import wrong_setting
from towers.layout.placement import Placement
from towers.membership_log import MembershipLog
from towers.variable_update import accumulators, between_graph
from towers.variable_update.base import VariableUpdate
from towers.variable_update.between_graph import ChiefClient, FollowerClient
from towers.variable_update.dropped_examples import DroppedExamples
from towers.variable_update.step_quota import STEP_BITS
from towers.variable_update.tower_sums import TowerSums
from towers.variable_update.train_steps import SingleClient

v1 = tf.compat.v1


@dataclasses.dataclass(frozen=True)
class BackupWorkers:
    """The settings.

    Attributes:
      count: clients that a step does not wait for.
      replay: whether dropped examples are taken again.
      log: the clients of each step, in place of the first ones; or None.
    """

    count: int
    replay: bool = False
    log: MembershipLog | None = None

    @classmethod
    def of(cls, flags: ClusterFlags, where: Placement) -> "BackupWorkers | None":
        """The settings of a training, or None if each step waits for all clients.

        Raises:
          ValueError: there are too few clients, or the log is not of such a run.
        """
        count, clients = flags.backup_workers, where.clients
        if not count:
            return None
        if count >= clients:
            workers = "is 1 worker" if clients == 1 else f"are {clients} workers"
            raise wrong_setting(
                "backup_workers",
                count,
                f"there {workers}, and a step needs one at least",
                f"write {clients - 1} or less" if clients > 1 else "leave it out",
            )
        log = None
        if flags.replay_membership and not where.client:  # only the chief reads it
            log = MembershipLog.read(flags.replay_membership)
            _check(log, flags.replay_membership, clients)
        return cls(count, flags.dropped_examples == "replay", log)


def _check(log: MembershipLog, path: str, clients: int) -> None:
    for _, workers in log.changes:
        if workers[0] or workers[-1] >= clients:
            words = "leaves out worker 0, which is always used with `backup_workers`"
            if not workers[0]:
                words = f"names worker {workers[-1]}, and there are {clients} workers"
            remedy = "start the workers of the run that wrote it"
            raise wrong_setting("replay_membership", path, words, remedy)


class BackupChief(ChiefClient):
    """The client that updates, without waiting for all others.

    Args:
      mode, purpose: as in `ChiefClient`.
      backup: the settings.
      dropped: counts the examples that are not used.

    Attributes:
      used: bool [clients], whose gradients the step uses.
      dropped: the argument.
    """

    used: tf.Tensor

    def __init__(
        self,
        mode: VariableUpdate,
        purpose: int,
        backup: BackupWorkers,
        dropped: DroppedExamples,
    ):
        super().__init__(mode, purpose)
        self._backup = backup
        self.dropped = dropped
        self._flags: dict[tuple[str, int], tf.Tensor] = {}  # by device and client
        self._added: tf.Tensor  # once all sums are added

    def position(self, before: tf.Tensor) -> tf.Tensor:
        """As `SingleClient` has it."""
        del before
        return self.dropped.position

    def consumed(self, examples: tf.Tensor) -> tuple[tf.Tensor, list[tf.Operation]]:
        """As `SingleClient` has it."""
        with tf.control_dependencies([self._added]):
            return self.dropped.consumed(examples, self.used)

    def _add(self, sums: TowerSums) -> TowerSums:
        with tf.device(self._placement.counters):
            self.used = self._chosen(sums)
            shares = tf.where(self.used, self.dropped.shares, 0.0)
            share = tf.reduce_sum(shares)
        total = super()._add(sums)
        self._added = total.loss
        return total._replace(share=share)

    def _chosen(self, sums: TowerSums) -> tf.Tensor:
        """`used`, once the step can begin to add."""
        if self._backup.log:
            return self._wanted(self._stamp.read_value())
        count = self._placement.clients
        complete = accumulators.shared(tf.zeros([count]), f"{self._purpose}/complete")
        self.accumulators.add(complete)
        sent = _complete(complete, 0, count, self._stamp.read_value(), after=sums)
        # Only those that have examples left say that they are complete.
        has = tf.cast(self.dropped.left > 0, tf.int32)
        least = tf.maximum(count - self._backup.count - 1, 1 - has[0])
        followers = tf.minimum(least, tf.reduce_sum(has[1:]))
        with tf.control_dependencies([sent]):
            return accumulators.take(complete, 1 + followers) > 0

    def _wanted(self, stamp: tf.Tensor) -> tf.Tensor:
        """Bool [clients], those that the log has for the step with this token."""
        assert self._backup.log
        begins, workers = zip(*self._backup.log.changes)
        masks = np.zeros([len(begins), self._placement.clients], bool)
        for row, numbers in zip(masks, workers):
            row[list(numbers)] = True
        step = tf.bitwise.bitwise_and(stamp, 2**STEP_BITS - 1)
        begun = tf.cast(tf.constant(begins, tf.int64) <= step, tf.int32)
        return tf.gather(tf.constant(masks), tf.reduce_sum(begun) - 1)

    def _take(self, held: Any, client: int, leaf: Any) -> Any:
        """The sum of a client, or zeros if it is not used."""
        flag = self._flag(client, held)
        go = tf.raw_ops.Switch(data=tf.constant(1), pred=flag).output_true
        taken = accumulators.take(held, go)
        if isinstance(leaf, tf.IndexedSlices):
            nothing = leaf.values[:0], tf.zeros([0], tf.int64)
            values, indices = (
                _either(flag, tensor, none)
                for tensor, none in zip((taken.values, taken.indices), nothing)
            )
            return tf.IndexedSlices(values, indices, leaf.dense_shape)
        zero = tf.raw_ops.Switch(data=tf.zeros([], leaf.dtype), pred=flag).output_false
        return tf.raw_ops.Merge(inputs=[tf.fill(tf.shape(leaf), zero), taken]).output

    def _flag(self, client: int, held: Any) -> tf.Tensor:
        """Whether a client is used, bool scalar, copied once to each device."""
        key = held.accumulator_ref.device, client
        if key not in self._flags:
            self._flags[key] = tf.identity(self.used[client])
        return self._flags[key]

    def _tokens(self, stamp: tf.Tensor) -> list[tf.Operation]:
        with tf.device(self._placement.counters):
            if not self._backup.log:
                return [
                    queue.enqueue(tf.where(self.used[client], stamp, -stamp))
                    for client, queue in enumerate(self._queues, 1)
                ]
            wanted = self._wanted(stamp)
            return [
                _enqueue_if(wanted[client], queue, stamp)
                for client, queue in enumerate(self._queues, 1)
            ]

    def _first_tokens(self, stamp: int) -> list[tf.Operation]:
        tokens = super()._first_tokens(stamp)
        if not (log := self._backup.log):
            return tokens
        workers = log.workers(stamp & 2**STEP_BITS - 1)
        return [send for client, send in enumerate(tokens, 1) if client in workers]


class BackupFollower(FollowerClient):
    """A client that the chief may do without; arguments as in `BackupChief`.

    Attributes:
      used: bool scalar, whether the chief used the sums of the step.
    """

    def __init__(self, mode: VariableUpdate, purpose: int, dropped: DroppedExamples):
        super().__init__(mode, purpose)
        self._dropped = dropped
        self._accumulators = accumulators.Accumulators(self._given)

    def position(self, before: tf.Tensor) -> tf.Tensor:
        """As `SingleClient` has it."""
        del before
        return self._dropped.position

    def _send(self, held: Any, leaf: Any) -> tf.Operation:
        self._accumulators.add(held)
        return super()._send(held, leaf)

    def _receive(self) -> tf.Tensor:
        me, count = self._placement.client, self._placement.clients
        complete = accumulators.shared(tf.zeros([count]), f"{self._purpose}/complete")
        # One that has no examples left is not waited for: its token is too old.
        stamp = tf.where(self._dropped.left[me] > 0, self.token, -1)
        with tf.control_dependencies([_complete(complete, me, count, stamp)]):
            queue = between_graph.token_queue(me)
            first = queue.dequeue()
        with tf.control_dependencies([first]):
            tokens = tf.concat([[first], queue.dequeue_many(queue.size())], 0)
        self.used = tf.reduce_any(tokens > 0)
        return tf.abs(tokens[-1])

    def begin(self, session: v1.Session, stamp: int) -> None:
        """Takes a token, and takes back what was sent with earlier ones."""
        self._accumulators.drain(session)
        super().begin(session, stamp)


def of(
    mode: VariableUpdate,
    purpose: int,
    backup: BackupWorkers | None,
    dropped: DroppedExamples | None,
) -> SingleClient:
    """The client object of this task; the arguments are those of `BackupChief`."""
    if backup is None or dropped is None:
        return between_graph.of(mode, purpose)
    if mode.placement.client:
        return BackupFollower(mode, purpose, dropped)
    return BackupChief(mode, purpose, backup, dropped)


def _complete(
    held: Any, client: int, count: int, stamp: tf.Tensor, *, after: Any = ()
) -> tf.Operation:
    """Says that a client is complete, with the token of the step."""
    ends = [
        tensor
        for tensor in tf.nest.flatten(after, expand_composites=True)
        if tensor is not None
    ]
    with tf.control_dependencies([tf.group(*ends)]):
        return held.apply_grad(tf.one_hot(client, count), local_step=stamp)


def _either(flag: tf.Tensor, tensor: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    """A tensor that is there only if a flag is true, or another one."""
    other = tf.raw_ops.Switch(data=other, pred=flag).output_false
    return tf.raw_ops.Merge(inputs=[other, tensor]).output


def _enqueue_if(flag: tf.Tensor, queue: Any, value: tf.Tensor) -> tf.Operation:
    """Enqueues a value if a flag is true."""
    ways = tf.raw_ops.Switch(data=value, pred=flag)
    with tf.control_dependencies([queue.enqueue(ways.output_true)]):
        sent = tf.identity(ways.output_true)
    return tf.raw_ops.Merge(inputs=[ways.output_false, sent]).output.op
