"""The names that a checkpoint has, and those that it must have."""

import os

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from towers.checkpoints import contents

v1 = tf.compat.v1


class ContentsTest(parameterized.TestCase):
    def _write(self, **values):
        """The path of a checkpoint with these values."""
        path = os.path.join(self.create_tempdir(), "model.ckpt-1")
        with tf.Graph().as_default():
            settings = {
                name.replace("__", "/"): v1.get_variable(
                    name, initializer=value, use_resource=True
                )
                for name, value in values.items()
            }
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                v1.train.Saver(settings).save(session, path, write_meta_graph=False)
        return path

    def test_names_and_shapes(self):
        path = self._write(a=[1.0, 2.0], b__c=3.0)
        self.assertEqual(contents.of(path), {"a": [2], "b/c": []})

    def test_what_differs_is_named(self):
        path = self._write(a=[1.0, 2.0], b=3.0)
        contents.check_same(path, {"a": [2], "b": []})
        contents.check_same(path, {"a": [2]}, partial=True)
        with self.assertRaisesRegex(
            ValueError, r"not in it: c; only in it: b; of another shape: a is \[2\]"
        ):
            contents.check_same(path, {"a": [3], "c": []})

    def test_a_checkpoint_of_tf_cnn_benchmarks_is_not_continued(self):
        path = self._write(v0__cg__conv0__conv2d__kernel=1.0)
        with self.assertRaisesRegex(
            ValueError,
            "model.ckpt-1 is a checkpoint of tf_cnn_benchmarks, which is not",
        ):
            contents.check_same(path, {"conv1/conv/kernel": []})

    def test_what_was_frozen_has_no_slots(self):
        path = self._write(a=1.0, b=2.0, b__Slot=3.0)
        here = {"a": [], "a/Slot": [], "b": []}
        contents.check_same(path, here)
        self.assertEqual(contents.untrained(here, contents.of(path)), {"a/Slot": "a"})
        for others in (dict(here, **{"a/Other": []}), {"a": [], "b": []}, {"a": []}):
            with self.assertRaises(ValueError):
                contents.check_same(path, others)

    def test_what_is_carried_may_be_missing_on_either_side(self):
        contents.check_same(self._write(a=1.0), {"a": [], "carried/x/b": [5]})
        contents.check_same(self._write(a=1.0, carried__x__b=2.0), {"a": []})
        self.assertEqual(contents.kind_of("carried/x/b"), "x")
        self.assertEqual(contents.kind_of("a/carried/b"), "")

    def test_counts_of_dropped_examples_may_be_missing_on_either_side(self):
        path = self._write(a=1.0, skipped_examples=np.int64(3))
        contents.check_same(path, {"a": []})
        contents.check_same(path, {"a": [], "client_offsets": [2]})
        contents.check_offsets(path, {"a": [], "client_offsets": [2]})

    def test_clients_that_are_behind_must_be_the_same(self):
        behind = self._write(client_offsets=np.array([4, -4]))
        contents.check_offsets(behind, {"client_offsets": [2]})
        for shapes in ({}, {"client_offsets": [3]}):
            with self.assertRaisesRegex(
                ValueError, "model.ckpt-1 is of 2 workers with dropped_examples=replay"
            ):
                contents.check_offsets(behind, shapes)
        contents.check_offsets(self._write(client_offsets=np.zeros(2, np.int64)), {})

    def test_variables_of_callbacks_may_be_missing_on_either_side(self):
        contents.check_same(self._write(a=1.0), {"a": [], "callbacks/b/c": [5]})
        contents.check_same(self._write(a=1.0, callbacks__b__c=2.0), {"a": []})
        self.assertEqual(contents.kind_of("callbacks/b/c"), "callbacks/b/c")

    @parameterized.parameters(-1, 2**62)
    def test_a_count_that_no_run_reaches(self, count):
        path = self._write(position=np.int64(count), other=np.int64(-1))
        contents.check_counts(path, {"other"})
        with self.assertRaisesRegex(tf.errors.DataLossError, f"position is {count}"):
            contents.check_counts(path, {"position", "other"})
