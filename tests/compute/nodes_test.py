"""Names of inputs and tensors, and the operations that they stand for."""

import tensorflow as tf
from absl.testing import absltest

from towers.compute import nodes


class NodesTest(absltest.TestCase):
    def test_names(self):
        for name, operation, tensor in (
            ("a/b", "a/b", "a/b:0"),
            ("a:2", "a", "a:2"),
            ("^a", "a", "a:0"),
        ):
            self.assertEqual(nodes.operation_of(name), operation)
            self.assertEqual(nodes.tensor_of(name), tensor)

    def test_what_is_needed(self):
        with tf.Graph().as_default() as graph:
            a, b, c = (tf.constant(1.0, name=name) for name in "abc")
            first = tf.add(a, b, name="first")
            with tf.control_dependencies([c]):
                tf.split([first, first], 2, name="both")
            tf.identity(c, name="other")
        by_name = {node.name: node for node in graph.as_graph_def().node}
        needed = nodes.needed_by(by_name, ["both:1"])
        self.assertContainsSubset({"a", "b", "c", "first", "both"}, needed)
        self.assertNotIn("other", needed)
