"""Which examples of a batch count."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from towers import feed


class WeightedTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(
        (None, [1, 1, 1]), (9, [1, 1, 1]), (8, [1, 1, 0]), (6, [0, 0, 0])
    )
    def test_examples_from_the_limit_on_weigh_nothing(self, limit, weights):
        with tf.Graph().as_default(), self.session():
            features, labels = tf.zeros([3, 5], tf.int32), tf.ones([3, 5], tf.int32)
            indices = tf.constant(np.arange(6, 9))
            batch = feed.weighted(features, labels, indices, limit)
            self.assertAllEqual(batch.weights, weights)
            self.assertAllEqual(batch.first, 6)
            self.assertIs(batch.features, features)
            self.assertIs(batch.labels, labels)


if __name__ == "__main__":
    tf.test.main()
