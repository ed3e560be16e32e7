"""Two clients share a number of steps, here in one session."""

import collections
import threading
import time

import tensorflow as tf
from absl.testing import absltest

from towers.layout import placement
from towers.variable_update import asynchronous, step_quota

v1 = tf.compat.v1

_CPU = placement.device("CPU", 0)
_STAMP = 7 << step_quota.STEP_BITS


class TurnsTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        with tf.Graph().as_default(), tf.device(_CPU):
            boards = []
            for client in range(2):
                where = placement.Placement(
                    "cpu", (_CPU,), (_CPU,), (_CPU,), client=client, clients=2
                )
                boards.append(step_quota.QuotaBoard(where))
            self.counts = [
                v1.get_variable(f"count_{k}", [], tf.int64, v1.zeros_initializer())
                for k in range(4)
            ]
            self.chief, self.follower = (
                asynchronous.AsynchronousLoop(self._steps(board, counts), None, board)
                for board, counts in zip(boards, (self.counts[:2], self.counts[2:]))
            )
            self.board, self.followed = boards
            self.drawn = tf.raw_ops.ReadVariableOp(
                resource=self.board.draw.op.inputs[0], dtype=tf.int64
            )
            self.session = v1.Session()
            self.addCleanup(self.session.close)
            self.session.run(v1.global_variables_initializer())

    def _steps(self, board, counts):
        steps = []
        for number, count in enumerate(counts):
            done = count.assign_add(1).op
            loss, stale = tf.constant(float(number)), tf.constant(1, tf.int64)
            done = board.report(done, loss, stale)
            steps.append(asynchronous.TowerStep(done, loss, stale))
        return steps

    def _taken(self) -> list[int]:
        return [int(n) for n in self.session.run(self.counts)]

    def _follow(self) -> list[Exception]:
        """Takes turns in a thread, until it raises."""
        ended = []

        def run():
            try:
                loop = self.follower.runner(self.session)(0, 2**40)
                collections.deque(loop, maxlen=0)
            except step_quota.RestartedError as error:
                ended.append(error)

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()
        return ended

    def test_together_they_take_exactly_as_many_steps_as_the_chief_allows(self):
        self.board.close(self.session, _STAMP + 5)
        self.followed.stamp = _STAMP
        ended = self._follow()
        self.board.open(self.session)
        # Otherwise the chief could end before the follower's thread draws a step.
        patience = time.monotonic() + 60
        while self.session.run(self.drawn) < _STAMP + 3:
            self.assertLess(time.monotonic(), patience)
            time.sleep(0.001)
        run = self.chief.runner(self.session)
        for begin, count in ((0, 60), (60, 1), (61, 40)):
            steps = [(reached, len(losses)) for reached, losses, _ in run(begin, count)]
            self.assertEqual(steps[-1][0], begin + count)
            self.assertEqual(sum(number for _, number in steps), count)
            self.assertEqual(sum(self._taken()), begin + count)
        self.assertGreater(sum(self._taken()[2:]), 0)  # the follower took some
        self.assertEqual(sum(self.chief.staleness.values()), 101)
        self.board.close(self.session, _STAMP * 2)
        self.thread.join(30)
        self.assertIsNone(ended[0].stamp)

    def test_nobody_takes_a_step_before_turns_are_open(self):
        self.board.close(self.session, _STAMP)
        self.followed.stamp = _STAMP
        self._follow()
        self.thread.join(0.2)
        self.assertTrue(self.thread.is_alive())
        self.assertEqual(self._taken(), [0] * 4)
        self.board.close(self.session, 2 * _STAMP)
        self.thread.join(30)
        self.assertFalse(self.thread.is_alive())
