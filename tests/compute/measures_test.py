"""What a tower computes of its batch beside gradients."""

import types

import numpy as np
import tensorflow as tf

from towers.compute import measures

v1 = tf.compat.v1


class MeasuresTest(tf.test.TestCase):
    def test_shares_are_parts_of_the_mean_by_weight(self):
        def measure(outputs, labels, num_classes, batch_size):
            self.assertEqual((num_classes, batch_size), (7, 2))
            return {"loss": outputs - labels, "error": outputs}

        model = types.SimpleNamespace(measure=measure)
        task = types.SimpleNamespace(model=model, num_classes=7, training=True)
        with tf.Graph().as_default(), v1.Session() as session:
            batch = {
                "labels": tf.constant([1.0, 2.0]),
                "weights": tf.constant([0.25, 0.5]),
                "total_weight": tf.constant(2.0),
            }
            shares = measures.shares_of(task, tf.constant([3.0, 5.0]), batch)
            shares = session.run(shares)
        self.assertEqual(shares["loss"], (0.25 * 2 + 0.5 * 3) / 2)
        self.assertEqual(shares["error"], (0.25 * 3 + 0.5 * 5) / 2)

    def test_predictions_are_float32_or_whole_numbers(self):
        with tf.Graph().as_default(), v1.Session() as session:
            outputs = {
                "scores": tf.constant([1.5, 2.5], tf.bfloat16),
                "classes": tf.constant([3, 4], tf.int64),
            }
            tensors, names = measures.predicted(outputs, 2)
            values = session.run(tensors)
        self.assertEqual(values.pop("loss"), 0)
        self.assertEqual(values[names["scores"]].dtype, np.float32)
        np.testing.assert_array_equal(values[names["scores"]], [1.5, 2.5])
        np.testing.assert_array_equal(values[names["classes"]], [3, 4])
