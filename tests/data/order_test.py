"""The order of epochs: each a permutation, computed index by index."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from towers.data import order

v1 = tf.compat.v1


def _read(indices, n, seed=3):
    with tf.Graph().as_default(), v1.Session() as session:
        indices = tf.constant(indices, tf.int64)
        return session.run(order.epoch_order(indices, n, seed))


class EpochOrderTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(1, 2, 3, 97, 1000)
    def test_every_epoch_is_a_permutation(self, n):
        epochs = _read(np.arange(4 * n), n).reshape(4, n)
        self.assertAllEqual(np.sort(epochs, 1), np.tile(np.arange(n), (4, 1)))
        if n > 50:
            for first, second in ((0, 1), (1, 2), (0, 3)):
                self.assertBetween(np.sum(epochs[first] == epochs[second]), 0, 9)

    def test_an_index_has_its_number_wherever_it_is_read(self):
        whole = _read(np.arange(5000), 2000)
        self.assertAllEqual(
            _read([4321, 17, 1999, 2000], 2000), whole[[4321, 17, 1999, 2000]]
        )
        self.assertNotAllEqual(_read(np.arange(5000), 2000, seed=4), whole)
        self.assertAllEqual(
            _read(np.arange(9), 7, seed=2**64 + 3), _read(np.arange(9), 7)
        )

    def test_far_into_a_stream_of_many_examples(self):
        n = 20_000_000
        numbers = _read(np.arange(1000) + 30 * n - 500, n)
        self.assertLen(np.unique(numbers), 1000)
        self.assertAllInRange(numbers, 0, n - 1)
        # The distance of neighbours is n / 3 on average, as in a random permutation.
        self.assertAllInRange(np.abs(np.diff(numbers)).mean() / n, 0.30, 0.37)

    def test_numbers_come_to_each_place_alike(self):
        n, epochs = 50, 1500
        numbers = _read(np.arange(n * epochs), n).reshape(epochs, n)
        for what in (
            numbers[:, 0],
            numbers[:, -1],
            (numbers[:, 1] - numbers[:, 0]) % n,
        ):
            counts = np.bincount(what, minlength=n)[1:]
            mean = counts.mean()
            # Chi-squared divided by its 48 degrees of freedom exceeds 1.8 once in 2,000
            # cases.
            self.assertLess(np.mean((counts - mean) ** 2 / mean), 1.8)
