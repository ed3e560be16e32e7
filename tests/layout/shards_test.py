"""Which layers of a model can be sharded."""

from types import SimpleNamespace

import tensorflow as tf
from absl.testing import absltest

from models.logits import Product
from towers.layout import shards
from towers.layout.parts import Split
from towers.layout.shards import Shards

v1 = tf.compat.v1


def _read(name, shape):
    return v1.placeholder(tf.float32, shape, f"read/{name}")


class SplitsTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.enter_context(tf.Graph().as_default())
        x = tf.zeros([2, 4])
        kernel, bias = _read("last/kernel", [4, 7]), _read("last/bias", [7])
        self.y = tf.matmul(x, kernel) + bias
        other = Product(tf.zeros([2, 3]), x, _read("first/kernel", [4, 3]))
        self.table = _read("words", [11, 4])
        self.nn = SimpleNamespace(
            products=[other, Product(self.y, x, kernel, bias)],
            tables=[self.table, self.table],
        )

    def _splits(self, *counts, outputs=None):
        outputs = self.y if outputs is None else outputs
        return shards.splits(Shards(*counts), self.nn, outputs, "mine")

    def test_the_layer_that_is_last(self):
        splits = self._splits(3)
        classes = {"last/kernel": Split(3, 1, True), "last/bias": Split(3, 0, True)}
        self.assertEqual(splits, classes)

    def test_the_layer_that_is_last_beside_other_outputs(self):
        beside = {"aux": tf.zeros([2]), "logits": (self.y, self.y)}
        self.assertEqual(self._splits(3, outputs=beside), self._splits(3))

    def test_tables_by_rows(self):
        self.assertEqual(self._splits(1, 4), {"words": Split(4)})

    def test_a_classifier_that_is_a_table(self):
        y = tf.matmul(tf.zeros([2, 4]), self.table, transpose_b=True)
        self.nn.products = [Product(y, tf.zeros([2, 4]), self.table, transposed=True)]
        self.assertEqual(self._splits(2, outputs=y), {"words": Split(2, 0, True)})

    def test_a_table_that_is_the_classifier_is_spread_for_both_uses(self):
        x, bias = tf.zeros([2, 4]), _read("last/offset", [11])
        y = tf.matmul(x, self.table, transpose_b=True) + bias
        self.nn.products = [Product(y, x, self.table, bias, transposed=True)]
        both = dict.fromkeys(("words", "last/offset"), Split(2, 0, True))
        self.assertEqual(self._splits(2, 1, outputs=y), both)
        self.assertEqual(self._splits(1, 2, outputs=y), both)
        # With tables on ps tasks, only the rows are cut.
        self.assertEqual(self._splits(1, 2, True, outputs=y), {"words": Split(2)})
        # A table cut by columns has no rows.
        self.nn.products = [Product(y, x, self.table, bias, transposed=False)]
        self.assertEqual(self._splits(1, 2, outputs=y), {"words": Split(2)})

    def test_what_cannot_be_spread_is_refused(self):
        with self.assertRaisesRegex(ValueError, "of mine does not end with a dense"):
            self._splits(2, outputs=tf.nn.relu(self.y))
        both = tuple(product.y for product in self.nn.products)
        with self.assertRaisesRegex(ValueError, "of mine returns what 2 dense layers"):
            self._splits(2, outputs=both)
        with self.assertRaisesRegex(ValueError, "7 classes apart.*=7 or fewer"):
            self._splits(8)
        with self.assertRaisesRegex(ValueError, "words has 11 rows"):
            self._splits(1, 12)
        self.nn.tables = [2.0 * self.table]
        with self.assertRaisesRegex(ValueError, "is computed from variables"):
            self._splits(1, 2)
        self.nn.tables = []
        with self.assertRaisesRegex(ValueError, "no block of mine looks up rows"):
            self._splits(1, 2)
