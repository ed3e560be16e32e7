"""Nests of tensors: their names, sizes and pieces."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from towers.data import nests

_IMAGE, _TABLE = tf.TensorSpec([6, 2, 2, 1], tf.uint8), tf.TensorSpec([6, 5])
_NEST = {"b": (_TABLE,), "a": _IMAGE}


class NamesTest(parameterized.TestCase, tf.test.TestCase):
    def test_a_lone_tensor_has_the_name_of_its_kind(self):
        self.assertEqual(nests.named("features", _TABLE), {"features": _TABLE})
        names = nests.named("labels", _NEST)
        self.assertEqual(names, {"labels/0": _IMAGE, "labels/1": _TABLE})
        self.assertEqual(nests.named("labels", ()), {})

    @parameterized.parameters(
        ("features", "features"),
        ("features/12", "features"),
        ("labels/0", "labels"),
        ("weights", "weights"),
        ("total_weight", ""),
        ("first", ""),
    )
    def test_what_is_divided_with_the_batch(self, name, kind):
        self.assertEqual(nests.of_batch(name), kind)

    def test_placeholders_are_called_as_the_inputs(self):
        with tf.Graph().as_default():
            tensors = nests.placeholders("features", _NEST)
            self.assertEqual(tensors["a"].op.name, "features/0")
            self.assertEqual(tensors["b"][0].op.name, "features/1")
            self.assertEqual(
                (tensors["a"].dtype, tensors["a"].shape), (tf.uint8, [6, 2, 2, 1])
            )
            flat = nests.flat({"features": tensors, "labels": (), "first": 1})
        self.assertEqual([*flat], ["features/0", "features/1", "first"])


class SizesTest(tf.test.TestCase):
    def test_of_a_batch(self):
        self.assertEqual(nests.batch_size(_NEST), 6)
        self.assertEqual(nests.num_bytes(_NEST), 6 * 4 * 1 + 6 * 5 * 4)
        self.assertEqual(nests.num_bytes(()), 0)

    def test_specs_of_a_batch_and_of_its_pieces(self):
        example = {"a": tf.TensorSpec([3], tf.bool), "b": ()}
        batch = nests.batch_of(example, 6)
        self.assertEqual(batch, {"a": tf.TensorSpec([6, 3], tf.bool), "b": ()})
        self.assertEqual(nests.piece(batch, 3)["a"], tf.TensorSpec([2, 3], tf.bool))
        with self.assertRaises(AssertionError):
            nests.piece(batch, 4)

    def test_pieces(self):
        with tf.Graph().as_default(), self.session() as session:
            batch = ({"a": tf.range(6)}, (), tf.constant([1.0, 2, 3, 4, 5, 6]))
            pieces = session.run(nests.split(batch, (2, 2, 2)))
        self.assertEqual(len(pieces), 3)
        self.assertAllEqual(
            np.stack([p[0]["a"] for p in pieces]), [[0, 1], [2, 3], [4, 5]]
        )
        self.assertAllEqual(pieces[1][2], [3, 4])
        self.assertEqual(pieces[1][1], ())
