"""Held values are those of their step, and are written as variables are."""

import os
import pathlib
import tempfile

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from towers.checkpoints.held_values import HeldValues
from towers.layout import parts, placement
from towers.layout.parts import Split

v1 = tf.compat.v1


class HeldValuesTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = tempfile.mkdtemp()
        self.graph = self.enter_context(tf.Graph().as_default())
        with tf.device("/device:CPU:1"):
            self.weights = v1.get_variable("w", [3], use_resource=True)
        whole = parts.make("p", tf.ones([5, 2]), Split(2), ["/device:CPU:0"] * 2)
        text = v1.get_variable("t", initializer=tf.constant(["a", "b"]))
        saved = {"w": self.weights, "p": whole, "t": text}
        self.saver = v1.train.Saver(saved, max_to_keep=2)
        self.held = HeldValues(self.saver)
        self.change = self.weights.assign_add(tf.ones([3]), read_value=False)
        self.fill = v1.placeholder(tf.float32, [3])
        self.assign = self.weights.assign(self.fill, read_value=False)
        config = placement.session_config(placement.local(2, kind="cpu"))
        self.session = self.enter_context(v1.Session(config=config))
        self.session.run(v1.global_variables_initializer())

    def _files(self, saver, name):
        path = os.path.join(self.directory, name, "model.ckpt")
        saver.save(self.session, path, global_step=7, write_meta_graph=False)
        files = sorted(pathlib.Path(path).parent.glob("model.ckpt-7.*"))
        return [file.read_bytes() for file in files]

    def test_later_updates_do_not_change_it(self):
        straight = self._files(self.saver, "straight")
        self.held.hold(self.session)
        for _ in range(3):
            self.session.run(self.change)
        self.assertEqual(self._files(self.held.saver, "held"), straight)
        self.assertEqual(self._files(self.held.saver, "again"), straight)
        self.assertNotEqual(self._files(self.saver, "now"), straight)

    def test_what_was_left_is_not_written(self):
        self.held.hold(self.session)
        self.session.run(self.change)
        self.held.hold(self.session)
        self.assertEqual(
            self._files(self.held.saver, "held"), self._files(self.saver, "straight")
        )
        self.held.release(self.session)

    def test_what_is_not_finite_is_named(self):
        self.held.hold(self.session)
        self.session.run(self.assign, {self.fill: np.array([1, np.inf, 1])})
        self.assertIsNone(self.held.broken(self.session))
        self.held.hold(self.session)
        self.assertEqual(self.held.broken(self.session), "w")

    def test_it_keeps_as_many(self):
        self.assertEqual(self.held.saver.saver_def.max_to_keep, 2)
