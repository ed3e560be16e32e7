"""Accumulators are emptied, and drop gradients with an older token."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from towers.variable_update import accumulators

v1 = tf.compat.v1


class AccumulatorsTest(absltest.TestCase):
    def test_empty_ones_have_the_new_token(self):
        rows = tf.IndexedSlices(np.ones([1, 2], np.float32), [3], [5, 2])
        with tf.Graph().as_default():
            given, token = (v1.placeholder(tf.int64, []) for _ in range(2))
            every = accumulators.Accumulators(given)
            sends, takes = [], []
            for index, value in enumerate((tf.ones([2]), rows)):
                held = accumulators.shared(value, f"test/{index}")
                every.add(held)
                sends.append(accumulators.send(held, value, token))
                takes.append(accumulators.take(held))
            with v1.Session() as session:
                every.empty(session, 7)
                session.run(sends, {token: 7})
                session.run(sends[0], {token: 8})
                self.assertEqual(session.run(every.counts), [2, 1])
                every.empty(session, 9)
                self.assertEqual(session.run(every.counts), [0, 0])
                session.run(sends, {token: 8})
                self.assertEqual(session.run(every.counts), [0, 0])
                session.run(sends, {token: 9})
                dense, taken = session.run(takes)
                np.testing.assert_array_equal(dense, [1, 1])
                np.testing.assert_array_equal(taken.indices, [3])
                # Drained, they take what has the token of the step after.
                session.run(sends, {token: 10})
                every.drain(session)
                session.run(sends, {token: 10})
                self.assertEqual(session.run(every.counts), [0, 0])
                session.run(sends, {token: 11})
                self.assertEqual(session.run(every.counts), [1, 1])
