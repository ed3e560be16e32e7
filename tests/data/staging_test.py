"""Staging: a step reads the batch that the step before has brought."""

import tensorflow as tf

from towers.data import staging

v1 = tf.compat.v1


def _pieces(counter, devices):
    """(features, labels, indices) for each device, numbered by a counter's readings."""
    number = counter.assign_add(1)
    return [
        (
            tf.fill([2, 3], tf.cast(number * 10 + tower, tf.float32)),
            tf.fill([2], tf.cast(number, tf.int32)),
            tf.fill([2], number),
        )
        for tower in range(len(devices))
    ]


class StagedTest(tf.test.TestCase):
    def test_hands_over_in_order_and_begins_anew(self):
        devices = ["/device:CPU:1", "/device:CPU:2"]
        config = v1.ConfigProto(device_count={"CPU": 3})
        with tf.Graph().as_default(), v1.Session(config=config) as session:
            with tf.device("/device:CPU:0"):
                counter = v1.Variable(tf.constant(0, tf.int64), use_resource=True)
                with tf.control_dependencies([counter.initializer]):
                    primers = _pieces(counter, devices)
                coming = _pieces(counter, devices)
                handed, start, refill = staging.staged(devices, primers, coming)
            for piece, device in zip(handed, devices):
                features, labels, indices = piece
                self.assertEqual(features.shape, [2, 3])
                self.assertEqual(labels.dtype, tf.int32)
                self.assertEqual(features.device, device)
                self.assertEqual(indices.device, "/device:CPU:0")
            for steps in (3, 5):
                session.run(start)
                for step in range(1, steps):
                    pieces, _ = session.run([handed, refill])
                    for tower, (features, labels, indices) in enumerate(pieces):
                        self.assertAllEqual(features, [[step * 10 + tower] * 3] * 2)
                        self.assertAllEqual(labels, [step] * 2)
                        self.assertAllEqual(indices, [step] * 2)
