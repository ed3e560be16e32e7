"""Sources of a stream: nests and weights reach every tower, staged or not."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import batch_reader
from towers.data.stream_source import StreamSource


class _Counted(StreamSource):
    """Example i is {"a": i, "b": [i, -i]} with the labels (i % 3,) and weight i + 1."""

    num_classes, num_examples = 3, 1000

    def __init__(self):
        super().__init__(prefetch=1, threads=None)

    def batches(self, share, position):
        @tf.autograph.experimental.do_not_convert
        def read(step):
            first = position + step * share.step + share.first
            i = first + tf.range(share.count, dtype=tf.int64)
            features = {"a": i, "b": tf.stack([i, -i], 1)}
            return features, (i % 3,), i, tf.cast(i + 1, tf.float32)

        return tf.data.Dataset.range(1000).map(read)


class StreamSourceTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(
        layout=("1x12", "4x3", "two_hosts", "unequal"), stage=(False, True)
    )
    def test_nests_and_weights_reach_each_tower(self, layout, stage):
        groups, batch_size = batch_reader.LAYOUTS[layout]
        with tf.Graph().as_default(), batch_reader.session() as session:
            feed = _Counted().feed(
                groups,
                batch_size=batch_size,
                position=tf.constant(5, tf.int64),
                limit=20,
                stage=stage,
            )
            session.run(feed.initializer)
            end = 5
            for _ in range(2):
                batches, _ = session.run([feed.batches, feed.refills])
                for size, batch in zip(
                    batch_reader.sizes(layout), batches, strict=True
                ):
                    first, end = end, end + size
                    i = np.arange(first, end)
                    self.assertEqual(batch.first, first)
                    self.assertAllEqual(batch.features["a"], i)
                    self.assertAllEqual(batch.features["b"], np.stack([i, -i], 1))
                    self.assertAllEqual(batch.labels, (i % 3,))
                    self.assertAllEqual(batch.weights, np.where(i < 20, i + 1, 0))
