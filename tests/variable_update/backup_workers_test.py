"""A chief goes on without slow followers; here all three clients are in one graph."""

import dataclasses
import threading
import time

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from flags.cluster import ClusterFlags
from tests.processes.programs import PATIENCE
from towers.layout import placement
from towers.membership_log import MembershipLog
from towers.options import Options
from towers.variable_update import between_graph, synchronous, train_steps
from towers.variable_update.backup_workers import BackupWorkers, of
from towers.variable_update.dropped_examples import DroppedExamples
from towers.variable_update.tower_sums import TowerSums
from towers.variable_update.train_steps import TrainStep

v1 = tf.compat.v1

_CPU = placement.device("CPU", 0)
_WHERE = placement.Placement("cpu", (_CPU,), (_CPU,), (_CPU,), clients=3)


class _Clients:
    """A chief and two followers, each of which sends one number.

    Args:
      backup: the settings.
      limit: as in `DroppedExamples`.
    """

    def __init__(self, backup: BackupWorkers, limit: int | None = None):
        with tf.Graph().as_default(), tf.device(_CPU):
            mode = synchronous.ParameterServer(_WHERE)
            counters = train_steps.create_counters(mode, Options(batch_size=1))
            self.numbers = [v1.placeholder(tf.float32, []) for _ in range(3)]
            dropped = DroppedExamples(
                counters, _WHERE, (2, 3, 5), limit=limit, replay=backup.replay
            )
            self.clients, self.steps = [], []
            for client, number in enumerate(self.numbers):
                where = dataclasses.replace(_WHERE, client=client)
                mode = synchronous.ParameterServer(where)
                peer = of(mode, between_graph.TRAIN, backup, dropped)
                self.clients.append(peer)
                rows = tf.IndexedSlices(
                    tf.fill([1, 2], number), tf.constant([client]), tf.constant([9, 2])
                )
                unknown = v1.placeholder_with_default(number[None], None)
                sums = TowerSums(
                    [[number, rows, unknown]], [number], number, {}, number
                )
                step = peer.step(sums, finish=self._finish, refills=[])
                self.steps.append(step)
            self.tokens = [between_graph.token_queue(k).dequeue() for k in (1, 2)]
            config = v1.ConfigProto(operation_timeout_in_ms=int(1000 * PATIENCE))
            self.session = v1.Session(config=config)
            self.session.run(v1.global_variables_initializer())

    def _finish(self, total: TowerSums) -> TrainStep:
        self.total = (total.gradients[0][0], total.gradients[0][1], total.share)
        _, rows, unknown = total.gradients[0]
        with tf.control_dependencies([total.loss, rows.values, unknown]):
            step = v1.train.get_global_step().assign_add(1)
        return TrainStep(step.op, step, total.loss, total.metrics)

    def begin(self, *followers: int) -> int:
        """Releases them, and lets these followers take their first token."""
        self.clients[0].release(self.session)
        for k in followers:
            stamp = int(self.session.run(self.tokens[k - 1]))
            self.clients[k].begin(self.session, stamp)
        return stamp

    def follow(self, client: int, number: float, after=0.0) -> threading.Thread:
        """Lets a follower send its number; its `result` will be (token, used)."""

        def run():
            time.sleep(after)
            fetches = [self.clients[client].token, self.clients[client].used]
            feeds = {self.numbers[client]: number}
            thread.result = self.session.run([*fetches, self.steps[client].step], feeds)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def lead(self, number: float):
        """The chief's step: the sum, its rows, the share, and who was used."""
        fetches = [*self.total, self.clients[0].used, self.steps[0].step]
        dense, rows, share, used, _ = self.session.run(
            fetches, {self.numbers[0]: number}
        )
        table = dict(zip(rows.indices.tolist(), rows.values[:, 0].tolist()))
        return dense, table, round(float(share), 6), np.flatnonzero(used).tolist()


class BackupWorkersTest(parameterized.TestCase):
    def _join(self, thread: threading.Thread) -> list:
        thread.join(PATIENCE)
        self.assertFalse(thread.is_alive())
        return thread.result[:2]

    def test_a_late_follower_is_dropped_and_goes_on_from_the_newest_token(self):
        clients = _Clients(BackupWorkers(1))
        stamp = clients.begin(1, 2)
        fast = clients.follow(1, 10.0)
        taken = clients.lead(1.0)
        self.assertEqual(taken, (11, {0: 1, 1: 10}, 0.5, [0, 1]))
        self.assertEqual(self._join(fast), [stamp + 1, True])
        fast = clients.follow(1, 20.0, after=0.3)  # one of the two is waited for
        self.assertEqual(clients.lead(2.0)[0], 22)
        self._join(fast)
        # Too late by two steps; its sums are those of the first.
        late = clients.follow(2, 100.0)
        self.assertEqual(self._join(late), [stamp + 2, False])
        clients.clients[2].begin(clients.session, stamp + 2)
        slow = clients.follow(2, 300.0)
        taken = clients.lead(3.0)
        self.assertEqual(taken, (303, {0: 3, 2: 300}, 0.7, [0, 2]))
        self.assertEqual(self._join(slow), [stamp + 3, True])

    def test_those_that_are_complete_by_then_are_used_too(self):
        clients = _Clients(BackupWorkers(2))
        stamp = clients.begin(1, 2)
        followers = [clients.follow(k, 10.0**k) for k in (1, 2)]
        complete = clients.clients[0].accumulators.counts[0]
        until = time.monotonic() + PATIENCE
        while clients.session.run(complete) < 2:
            self.assertLess(time.monotonic(), until)
        self.assertEqual(clients.lead(1.0), (111, {0: 1, 1: 10, 2: 100}, 1, [0, 1, 2]))
        for thread in followers:
            self.assertEqual(self._join(thread), [stamp + 1, True])
        # Alone, as two are not waited for.
        self.assertEqual(clients.lead(1.0), (1, {0: 1}, 0.2, [0]))

    def test_a_follower_without_examples_is_not_waited_for(self):
        # Rows 0 and 1, then 2 to 4, then 5 to 9: the last one has none.
        clients = _Clients(BackupWorkers(1), limit=4)
        stamp = clients.begin(1, 2)
        without = clients.follow(2, 100.0)
        fast = clients.follow(1, 10.0)
        self.assertEqual(clients.lead(1.0)[3], [0, 1])
        self.assertEqual(self._join(fast), [stamp + 1, True])
        self.assertEqual(self._join(without), [stamp + 1, False])

    def test_a_log_says_who_is_used(self):
        log = MembershipLog(((0, (0, 2)), (1, (0, 1)), (2, (0, 1, 2))))
        clients = _Clients(BackupWorkers(1, log=log))
        stamp = clients.begin(2)
        first = clients.follow(2, 100.0)
        self.assertEqual(clients.lead(1.0)[3], [0, 2])
        # Its next token is that of the next step in which it is used.
        self.assertEqual(int(clients.session.run(clients.tokens[0])), stamp + 1)
        clients.clients[1].begin(clients.session, stamp + 1)
        second = clients.follow(1, 10.0)
        taken = clients.lead(2.0)
        self.assertEqual(taken, (12, {0: 2, 1: 10}, 0.5, [0, 1]))
        self.assertEqual(self._join(first), [stamp + 2, True])
        clients.clients[2].begin(clients.session, stamp + 2)
        self.assertEqual(self._join(second), [stamp + 2, True])
        last = [clients.follow(k, 10.0**k) for k in (1, 2)]
        self.assertEqual(clients.lead(3.0)[0], 113)
        for thread in last:
            self._join(thread)

    @parameterized.parameters(
        (1, 1, "is 1 worker, and a step needs one at least; leave it out"),
        (3, 3, "are 3 workers, and a step needs one at least; write 2 or less"),
    )
    def test_a_step_needs_a_worker(self, count, clients, words):
        where = dataclasses.replace(_WHERE, clients=clients)
        with self.assertRaisesRegex(ValueError, f"backup_workers={count}: .*{words}"):
            BackupWorkers.of(ClusterFlags(backup_workers=count), where)

    def test_the_settings(self):
        path = self.create_tempfile(content='{"step": 0, "workers": [0, 2]}').full_path
        self.assertIsNone(BackupWorkers.of(ClusterFlags(), _WHERE))
        flags = ClusterFlags(backup_workers=2, dropped_examples="replay")
        self.assertEqual(BackupWorkers.of(flags, _WHERE), BackupWorkers(2, True))
        flags = ClusterFlags(backup_workers=1, replay_membership=path)
        log = BackupWorkers.of(flags, _WHERE).log
        self.assertEqual(log.changes, ((0, (0, 2)),))
        follower = dataclasses.replace(_WHERE, client=1)
        self.assertIsNone(BackupWorkers.of(flags, follower).log)

    @parameterized.parameters(
        ("[0, 3]", "names worker 3, and there are 3 workers"),
        ("[1, 2]", "leaves out worker 0"),
    )
    def test_refuses_a_log_of_another_run(self, workers, words):
        text = f'{{"step": 0, "workers": {workers}}}'
        path = self.create_tempfile(content=text).full_path
        flags = ClusterFlags(backup_workers=1, replay_membership=path)
        with self.assertRaisesRegex(ValueError, words):
            BackupWorkers.of(flags, _WHERE)
