"""A step changes nothing before all means are there, and is counted."""

import tensorflow as tf
from absl.testing import absltest

from towers.variable_update.step_marks import StepMarks
from towers.variable_update.train_steps import TowerSums

v1 = tf.compat.v1


class StepMarksTest(absltest.TestCase):
    def test_it_counts_steps_and_waits_for_every_mean(self):
        with tf.Graph().as_default(), v1.Session() as session:
            marks = StepMarks("/device:CPU:0")
            late = v1.placeholder(tf.float32, [])
            late_mean = tf.debugging.check_numerics(late, "a worker is lost")
            rows = tf.IndexedSlices(
                tf.ones([1, 2]), tf.constant([0]), tf.constant([3, 2])
            )
            early = tf.constant(2.0)
            gradients = [[early, None, rows, late_mean]]
            sums = marks.begin(TowerSums(gradients, [early], early, {}))
            changed = tf.Variable(0.0, use_resource=True)
            changes = [changed.assign_add(sums.gradients[0][0], read_value=False)]
            changes += [sums.gradients[0][2].values.op, sums.statistics[0].op]
            step = marks.end(tf.group(*changes))
            session.run([changed.initializer])
            session.run([marks.begun.initializer, marks.done.initializer])
            for _ in range(2):
                session.run(step, {late: 1.0})
            counts = [marks.begun, marks.done, changed]
            self.assertEqual(session.run(counts), [2, 2, 4.0])
            with self.assertRaises(tf.errors.InvalidArgumentError):
                session.run(step, {late: float("nan")})
            self.assertEqual(session.run(counts), [2, 2, 4.0])
            session.run(marks.begin(sums).loss, {late: 1.0})
            self.assertGreater(*session.run(counts[:2]))
