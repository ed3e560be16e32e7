"""A chief and a follower exchange gradients; here both are in one graph."""

import dataclasses
import threading
import time

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from tests.processes.programs import PATIENCE
from towers.layout import placement
from towers.variable_update import between_graph, synchronous
from towers.variable_update.between_graph import TowerSums, TrainStep

v1 = tf.compat.v1

_CPU = placement.device("CPU", 0)


def _session() -> v1.Session:
    """A session whose calls end."""
    return v1.Session(
        config=v1.ConfigProto(operation_timeout_in_ms=int(1000 * PATIENCE))
    )


def _where(client: int, count: int = 2) -> placement.Placement:
    return placement.Placement(
        "cpu", (_CPU,), (_CPU,), (_CPU,), client=client, clients=count
    )


def _of(client: int, count: int = 2, purpose: int = between_graph.TRAIN):
    return between_graph.of(synchronous.ParameterServer(_where(client, count)), purpose)


def _sums(value: tf.Tensor) -> TowerSums:
    """A dense gradient, none, a sparse one, a statistic, a loss and a metric."""
    rows = tf.IndexedSlices(
        tf.stack([[value, value], [1.0, 1.0]]),
        tf.constant([1, 7]),
        tf.constant([40, 2]),
    )
    dense = tf.fill([3], value)
    return TowerSums([[dense, None, rows]], [value * 2], value * 3, {"metric": value})


def _present(sums: TowerSums) -> list[tf.Tensor]:
    leaves = tf.nest.flatten(sums, expand_composites=True)
    return [leaf for leaf in leaves if leaf is not None]


class ClientsTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        with tf.Graph().as_default(), tf.device(_CPU):
            v1.train.create_global_step()
            self.numbers = [v1.placeholder(tf.float32, []) for _ in range(2)]
            self.chief, self.follower = (_of(client) for client in range(2))
            self.lead, self.part = (
                updater.step(_sums(number), finish=self._finish, refills=[])
                for updater, number in zip((self.chief, self.follower), self.numbers)
            )
            self.token = between_graph.token_queue(1).dequeue()
            self.session = _session()
            self.addCleanup(self.session.close)
            self.session.run(v1.global_variables_initializer())

    def _finish(self, total: TowerSums) -> TrainStep:
        self.total = _present(total)
        with tf.control_dependencies(self.total):
            step = v1.train.get_global_step().assign_add(1)
        return TrainStep(step.op, step, total.loss, total.metrics)

    def _begin(self) -> int:
        self.chief.release(self.session)
        stamp = int(self.session.run(self.token))
        self.follower.begin(self.session, stamp)
        return stamp

    def _follow(self, number: float) -> threading.Thread:
        def run():
            fetches = [self.follower.token, self.part.step]
            feeds = {self.numbers[1]: number}
            self.ended = self.session.run(fetches, feeds)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def _join(self, thread: threading.Thread) -> None:
        thread.join(PATIENCE)
        self.assertFalse(thread.is_alive())

    def _wait_for(self, count: tf.Tensor, least: int) -> None:
        """Until so many gradients are in an accumulator."""
        until = time.monotonic() + PATIENCE
        while self.session.run(count) < least:
            self.assertLess(time.monotonic(), until)

    def _lead(self, number: float) -> list[np.ndarray]:
        return self.session.run(
            [self.lead.step, *self.total], {self.numbers[0]: number}
        )

    def test_the_chief_adds_what_the_follower_sends_and_tells_it(self):
        stamp = self._begin()
        for step in (1, 2, 3):
            following = self._follow(10.0 * step)
            totals = self._lead(float(step))
            self._join(following)
            reached, dense, values, rows, shape, statistic, loss, metric = totals
            self.assertEqual(reached, step)
            np.testing.assert_array_equal(dense, [11 * step] * 3)
            np.testing.assert_array_equal(values, [[11 * step] * 2, [2, 2]])
            np.testing.assert_array_equal(rows, [1, 7])
            np.testing.assert_array_equal(shape, [40, 2])
            self.assertEqual((statistic, loss), (22 * step, 33 * step))
            self.assertEqual(metric, 11 * step)
            self.assertEqual(self.ended, [stamp + step, step])

    def test_what_was_sent_before_a_new_beginning_is_dropped(self):
        old = self._begin()
        late = self._follow(1000.0)  # no chief takes it
        self._wait_for(self.chief.accumulators.counts[0], 1)
        self.assertGreater(self._begin_again(late), old + 1)
        self.follower.begin(self.session, old)
        stale = self._follow(2000.0)
        self.chief.release(self.session)
        self._join(stale)
        self.follower.begin(self.session, self.ended[0])
        following = self._follow(2.0)
        self.assertEqual(self._lead(1.0)[1][0], 3.0)
        self._join(following)

    def _begin_again(self, waiting: threading.Thread) -> int:
        """The token of a new beginning reaches who waits for the old one's."""
        self.chief.release(self.session)
        self._join(waiting)
        return self.ended[0]

    def test_the_same_sent_twice_counts_once(self):
        stamp = self._begin()
        lost = self._follow(10.0)  # as if it were killed after it has sent
        self._wait_for(self.chief.accumulators.counts[-1], 1)
        again = self._follow(10.0)
        self._wait_for(self.chief.accumulators.counts[-1], 2)
        self.assertEqual(self._lead(1.0)[1][0], 11.0)
        with self.session.graph.as_default():
            more = between_graph.token_queue(1).enqueue(stamp + 2)
        self.session.run(more)
        self._join(lost)
        self._join(again)

    def test_followers_run_the_graph_that_the_chief_runs(self):
        for purpose in (between_graph.TRAIN, between_graph.PROBE):
            with tf.Graph().as_default():
                v1.train.create_global_step()
                chief = _of(0, purpose=purpose)
                token = between_graph.token_queue(1).dequeue()
                with _session() as session:
                    session.run(v1.global_variables_initializer())
                    chief.release(session)
                    stamp = int(session.run(token))
            self.assertEqual(between_graph.purpose_of(stamp), purpose)
            self.assertLess(stamp, 2**63)

    def test_no_run_has_more_steps_than_stamps_count(self):
        where = placement.local(1, kind="cpu")
        together = dataclasses.replace(where, clients=2)
        between_graph.check_steps(where, 2**28)
        between_graph.check_steps(together, 2**28 - 1)
        with self.assertRaisesRegex(
            ValueError, "count 268435455 steps .* 268435456; l"
        ):
            between_graph.check_steps(together, 2**28)

    def test_alone_there_is_nobody_to_wait_for(self):
        with tf.Graph().as_default():
            alone = _of(0, count=1)
            self.assertEqual(alone.count, 1)
            self.assertIs(alone.step(7, finish=lambda sums: sums, refills=[]), 7)
            self.assertIsNone(alone.release(None))
