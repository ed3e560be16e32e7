"""The share of waiting: from seconds to the numbers of a line."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from towers.data.input_wait import WaitReads
from towers.session.input_share import InputShare

v1 = tf.compat.v1


class InputShareTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self._graph = tf.Graph()
        with self._graph.as_default():
            self._waited = v1.placeholder_with_default(np.array([2.0, 1.0]), [2])

    def _share(self, waiting):
        share = InputShare(WaitReads(self._waited, self._waited, waiting))
        with v1.Session(graph=self._graph) as session:
            share.begin(session)
        return share

    def test_since_the_line_before(self):
        share = self._share(1)
        share.add(3.0)
        share.add(1.0)
        values = {"waited": np.array([3.0, 1.5]), "rate": 0.1}
        self.assertEqual(share.since_last(values), 1 / 4)
        self.assertEqual(share.since_last(values), 0)  # no step since
        share.add(2.0)  # the second client waits longer
        self.assertEqual(share.since_last({"waited": np.array([3.0, 3.0])}), 1.5 / 2)

    def test_of_all_timed_steps_and_towers(self):
        share = self._share(2)
        with v1.Session(graph=self._graph) as session:
            share.end(session)
            self.assertIsNone(share.total)  # no step was timed
            share.add(4.0)
            share.end(session)
        self.assertEqual(share.total, 0)
        self.assertEqual(share.since_last({"waited": np.array([6.0, 1.0])}), 0.5)
        self.assertEqual(share.since_last({"waited": np.array([60.0, 1.0])}), 0)

    def test_it_is_at_most_1(self):
        share = self._share(1)
        share.add(1.0)
        self.assertEqual(share.since_last({"waited": np.array([4.0, 1.0])}), 1)

    def test_nothing_is_known_without_a_reader(self):
        share = InputShare(None)
        share.begin(None)
        share.add(1.0)
        share.end(None)
        self.assertIsNone(share.since_last({"rate": 0.1}))
        self.assertEqual(
            (share.total, share.fetches, share.fetches_now), (None, {}, {})
        )
