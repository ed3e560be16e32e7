"""What losses and metrics ask of logits, in one tensor or in pieces."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from models import logits

v1 = tf.compat.v1


class _Pieces:
    shape = tf.TensorShape([2, 3])

    def cross_entropy(self, labels):
        return ("cross_entropy", labels)

    def in_top_k(self, labels, k):
        return ("in_top_k", labels, k)


class LogitsTest(absltest.TestCase):
    def test_of_a_tensor(self):
        values = np.array([[1.0, 3.0, 3.0], [2.0, 0.0, -1.0]], np.float32)
        with tf.Graph().as_default(), v1.Session() as session:
            entropy = logits.cross_entropy(tf.constant(values), tf.constant([1, 2]))
            first = logits.in_top_k(tf.constant(values), tf.constant([1, 2]), 1)
            five = logits.in_top_k(tf.constant(values), tf.constant([1, 2]), 5)
            entropy, first, five = session.run([entropy, first, five])
        wanted = np.log(np.exp(values).sum(1)) - values[[0, 1], [1, 2]]
        np.testing.assert_allclose(entropy, wanted, rtol=1e-6)
        np.testing.assert_array_equal(first, [True, False])
        np.testing.assert_array_equal(five, [True, True])

    def test_pieces_answer_themselves(self):
        self.assertEqual(logits.cross_entropy(_Pieces(), 7), ("cross_entropy", 7))
        self.assertEqual(logits.in_top_k(_Pieces(), 7, 5), ("in_top_k", 7, 3))


if __name__ == "__main__":
    absltest.main()
