"""Copies of frozen variables on the towers' devices."""

import tensorflow as tf
from absl.testing import absltest

from towers.layout import placement
from towers.variable_update.synchronous import ParameterServer

v1 = tf.compat.v1


class FixedCopiesTest(absltest.TestCase):
    def test_towers_elsewhere_have_copies_that_are_not_saved(self):
        with tf.Graph().as_default() as graph:
            mode = ParameterServer(placement.local(3, kind="cpu"))
            for name in ("kept", "moving"):
                start = v1.ones_initializer()
                mode.create(name, tf.TensorShape([2]), start, trainable=False)
            mode.fix({"kept"})
            values = [mode.read("kept", tower) for tower in range(3)]
            same = {mode.read("moving", tower).name for tower in range(3)}
            self.assertEqual([x.device for x in values], list(mode.placement.towers))
            self.assertLen(mode.fixed.variables, 2)
            self.assertLen(same, 1)
            saved = mode.saved(v1.global_variables())
            self.assertCountEqual(saved, ["kept", "moving"])
            begin = v1.variables_initializer([*saved.values()])
            fill = tf.group(*mode.fixed.fill())
            config = placement.session_config(mode.placement)
            with v1.Session(graph=graph, config=config) as session:
                session.run(begin)
                session.run(fill)
                for value in session.run(values):
                    self.assertEqual(value.tolist(), [1.0, 1.0])
