"""Losses and metrics of logits, in one tensor or sharded."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from models import logits

v1 = tf.compat.v1


class _Pieces:
    shape = tf.TensorShape([2, 3])

    def cross_entropy(self, labels, smoothing):
        return ("cross_entropy", labels, smoothing)

    def gathered(self):
        return "gathered"

    def in_top_k(self, labels, k):
        return ("in_top_k", labels, k)

    def argmax(self):
        return "argmax"


class LogitsTest(absltest.TestCase):
    def test_cross_entropy_of_a_tensor(self):
        values = np.array([[1.0, 3.0, 3.0], [2.0, 0.0, -1.0]], np.float32)
        with tf.Graph().as_default(), v1.Session() as session:
            entropy = logits.cross_entropy(tf.constant(values), tf.constant([1, 2]))
            entropy = session.run(entropy)
        wanted = np.log(np.exp(values).sum(1)) - values[[0, 1], [1, 2]]
        np.testing.assert_allclose(entropy, wanted, rtol=1e-6)

    def test_smoothing_divides_a_share_among_all_classes(self):
        values = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
        labels = np.array([[1, 3, 0], [2, 2, 1]])
        with tf.Graph().as_default(), v1.Session() as session:
            entropy = logits.cross_entropy(tf.constant(values), labels, 0.1)
            entropy = session.run(entropy)
        wanted = 0.9 * np.eye(4)[labels] + 0.1 / 4
        log_softmax = values - np.log(np.exp(values).sum(-1, keepdims=True))
        np.testing.assert_allclose(entropy, -(wanted * log_softmax).sum(-1), rtol=1e-5)

    def test_in_top_k_of_a_tensor(self):
        """The example of each label has so many larger logits; the last has a tie."""
        values = np.array([[4.0, 3.0, 2.0, 1.0]] * 4 + [[5.0, 3.0, 3.0, 1.0]])
        labels = np.array([0, 1, 2, 3, 2])
        larger = np.array([0, 1, 2, 3, 1])
        with tf.Graph().as_default(), v1.Session() as session:
            for k in range(1, 7):
                best = logits.in_top_k(tf.constant(values), labels, k)
                np.testing.assert_array_equal(session.run(best), larger < k, f"{k=}")

    def test_argmax_of_a_tensor(self):
        values = np.array([[1.0, 3.0, 3.0], [2.0, 0.0, -1.0]], np.float32)
        with tf.Graph().as_default(), v1.Session() as session:
            best = session.run(logits.argmax(tf.constant(values)))
        np.testing.assert_array_equal(best, [1, 0])

    def test_pieces_answer_themselves(self):
        self.assertEqual(logits.argmax(_Pieces()), "argmax")
        entropy = logits.cross_entropy(_Pieces(), 7, 0.1)
        self.assertEqual(entropy, ("cross_entropy", 7, 0.1))
        for k, asked in ((1, 1), (2, 2), (3, 3), (5, 3)):
            self.assertEqual(
                logits.in_top_k(_Pieces(), 7, k), ("in_top_k", 7, asked), f"{k=}"
            )
