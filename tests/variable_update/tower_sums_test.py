"""Sums become means."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from towers.variable_update.tower_sums import TowerSums

v1 = tf.compat.v1


class TowerSumsTest(absltest.TestCase):
    def test_means_of_what_is_there(self):
        with tf.Graph().as_default(), v1.Session() as session:
            rows = tf.IndexedSlices(tf.ones([1, 2]), [3], [5, 2])
            gradients = [[tf.constant([2.0, 4.0]), None, rows]]
            parts = (gradients, [tf.constant(3.0)], tf.constant(6.0))
            plain = TowerSums(*parts, {"top": tf.constant(1.0)})
            self.assertIs(plain.means(), plain)
            weight, share = tf.constant(0.5), tf.constant(0.75)
            means = plain._replace(weight=weight, share=share).means()
            self.assertEqual((means.weight, means.share), (None, None))
            dense, none, table = means.gradients[0]
            self.assertIsNone(none)
            np.testing.assert_array_equal(session.run(dense), [4, 8])
            np.testing.assert_array_equal(session.run(table.values), [[2, 2]])
            numbers = [*means.statistics, means.loss, means.metrics["top"]]
            self.assertEqual(session.run(numbers), [4, 12, 2])
            empty = plain._replace(weight=tf.constant(0.0)).means()
            self.assertEqual(session.run(empty.loss), 6)
