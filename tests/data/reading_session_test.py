"""A session that reads data leaves the caller's graph as it is."""

import tensorflow as tf
from absl.testing import absltest

from towers.data.reading_session import reading_session

v1 = tf.compat.v1


class ReadingSessionTest(absltest.TestCase):
    def test_reads_in_a_graph_of_its_own(self):
        with tf.Graph().as_default() as graph:
            with reading_session() as session:
                rows = v1.data.make_one_shot_iterator(tf.data.Dataset.range(3))
                self.assertEqual(session.run(rows.get_next()), 0)
                self.assertIs(session, v1.get_default_session())
            self.assertIs(graph, v1.get_default_graph())
        self.assertEmpty(graph.get_operations())
        self.assertIsNone(v1.get_default_session())
