"""A model's summaries are found, and made again elsewhere."""

import tensorflow as tf
from absl.testing import parameterized

from towers.compute import summaries

v1 = tf.compat.v1


class SummariesTest(parameterized.TestCase):
    @parameterized.parameters(
        lambda: v1.summary.scalar("a", 2.5 * tf.ones([])),
        lambda: v1.summary.histogram("a", tf.range(9)),
        lambda: v1.summary.image("a", tf.ones([5, 2, 3, 3]), max_outputs=4),
        lambda: v1.summary.audio("a", tf.ones([1, 9, 2]), 16e3, max_outputs=2),
        lambda: v1.summary.text("a", tf.strings.join(["b", "c"])),
        lambda: v1.summary.tensor_summary("a", tf.ones([2, 2])),
    )
    def test_are_what_they_were(self, make):
        """With all their options, of each kind."""
        with tf.Graph().as_default() as graph, v1.name_scope("block"):
            expected = make()
            [summary] = summaries.collect(graph)
            tensors = {
                n: graph.get_tensor_by_name(n) for n in summaries.names([summary])
            }
            self.assertEqual(summary.tag, "block/a")
            self.assertEmpty(summaries.given([summary], {}))
            [summary] = summaries.given([summary], tensors)
            with tf.device("/device:CPU:0"):
                again = summaries.again(summary, summary.tag)
                other = summaries.again(summary, "other")
            self.assertEqual(again.device, "/device:CPU:0")
            with v1.Session() as session:
                texts = session.run([expected, again, other])
        first, second, third = map(v1.Summary.FromString, texts)
        self.assertEqual(first, second)
        self.assertStartsWith(third.value[0].tag, "other")
        self.assertLen(third.value, len(first.value))

    def test_other_items_are_left(self):
        key = v1.GraphKeys.SUMMARIES
        with tf.Graph().as_default():
            elsewhere = v1.summary.scalar("a", tf.ones([]))
        with tf.Graph().as_default() as graph:
            # a summary of an earlier block's graph
            v1.add_to_collection(key, elsewhere)
            v1.add_to_collection(key, v1.placeholder(tf.string))
            v1.add_to_collection(key, tf.raw_ops.MergeSummary(inputs=[["b"], ["c"]]))
            self.assertEmpty(summaries.collect(graph))
