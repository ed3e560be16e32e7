"""Which examples of a batch count."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from towers.data import source


class WeightedTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(
        (None, [1, 1, 1]), (9, [1, 1, 1]), (8, [1, 1, 0]), (6, [0, 0, 0])
    )
    def test_examples_from_the_limit_on_weigh_nothing(self, limit, weights):
        with tf.Graph().as_default(), self.session():
            features, labels = tf.zeros([3, 5], tf.int32), tf.ones([3, 5], tf.int32)
            indices = tf.constant(np.arange(6, 9))
            batch = source.weighted(features, labels, indices, limit=limit)
            self.assertAllEqual(batch.weights, weights)
            self.assertAllEqual(batch.first, 6)
            self.assertIs(batch.features, features)
            self.assertIs(batch.labels, labels)

    def test_what_all_parts_of_a_step_weigh(self):
        with tf.Graph().as_default(), self.session():
            for limit, weight in ((None, 12), (100, 12), (31, 7), (24, 0), (20, 0)):
                for index in range(3):
                    first = tf.constant(24 + 4 * index, tf.int64)
                    part = source.ClientShare(index, 3)
                    weight_of_all = source.weight_of_all(first, part, 4, limit)
                    self.assertAllEqual(weight_of_all, weight)
            self.assertIsNone(source.weight_of_all(first, source.ClientShare(), 4, 31))

    def test_what_unequal_parts_of_a_step_weigh(self):
        with tf.Graph().as_default(), self.session():
            for index, before in enumerate((0, 5, 7)):
                part = source.ClientShare(index, 3, rows=(5, 2, 4))
                first = tf.constant(22 + before, tf.int64)
                rows = part.rows[index]
                self.assertAllEqual(source.weight_of_all(first, part, rows, None), 11)
                self.assertAllEqual(source.weight_of_all(first, part, rows, 30), 8)


class TotalWeightsTest(tf.test.TestCase):
    def test_a_class_without_a_weight_is_an_error(self):
        with tf.Graph().as_default(), self.session():
            batch = source.Batch((), tf.constant([1, 2]), tf.ones([2]), tf.constant(0))
            feed = source.Feed([batch], tf.no_op(), [tf.no_op()], tf.constant(4.0))
            weighted = feed.class_weighted((0.0, 3.0, 0.5))
            self.assertAllEqual(weighted.batches[0].weights, [3.0, 0.5])
            self.assertIsNone(weighted.weight)  # other clients' classes are unknown
            self.assertIs(feed.class_weighted(()), feed)
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "= 2 is not"):
                self.evaluate(feed.class_weighted((0.0, 3.0)).batches[0].weights)

    def test_towers_on_one_joined_batch_share_one_tensor(self):
        with tf.Graph().as_default(), self.session():
            weights = [tf.constant([1.0, 1.0]), tf.constant([0.5, 0.0])]
            batches = [source.Batch((), (), w, tf.constant(0)) for w in weights]
            feed = source.Feed(batches, tf.no_op(), [tf.no_op()] * 2)
            first, second = feed.total_weights(joined=True)
            self.assertIs(first, second)  # computed once per step
            self.assertAllEqual(first, 2.5)
            self.assertAllEqual(tf.stack(feed.total_weights(joined=False)), [2.0, 0.5])
