"""Gradients of a segment by name, on the devices where they are added."""

import tensorflow as tf
from absl.testing import absltest

from towers.layout.placeholders import owner, shard
from towers.pipelines import segment_gradients

v1 = tf.compat.v1


class NamedTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.enter_context(tf.Graph().as_default())

    def _named(self, loss, **by):
        gradients = tf.gradients(loss, list(by.values()))
        return segment_gradients.named(dict(zip(by, gradients)), by)

    def test_dense_sparse_and_none(self):
        w, table = v1.placeholder(tf.float32, [3]), v1.placeholder(tf.float32, [4, 3])
        x, idle = v1.placeholder(tf.float32, [3]), v1.placeholder(tf.float32, [])
        loss = tf.reduce_sum(tf.gather(table, [1, 2]) * w * x)
        by = {"grad0/w": w, "grad0/table": table, "dx0/0": x, "grad0/idle": idle}
        gradients = self._named(loss, **by)
        self.assertEqual(
            set(gradients), {"grad0/w/0", "grad0/table/0", "grad0/table/1", "dx0/0"}
        )
        self.assertEqual({t.op.type for t in gradients.values()}, {"Identity"})
        self.assertEqual({t.device for t in gradients.values()}, {""})

    def test_a_part_stays_where_its_gradient_was_made_or_goes_where_it_lies(self):
        with tf.device(owner(3)):
            first, second = (v1.placeholder(tf.float32, [3]) for _ in range(2))
        with tf.device(shard(1)):
            vector = tf.constant([1.0, 2.0, 3.0])
        gradients = segment_gradients.named(
            {"a": vector, "b": 2.0 * vector}, {"a": first, "b": second}
        )
        self.assertEqual(gradients["a/0"].device, shard(1))
        self.assertEqual(gradients["b/0"].device, owner(3))

    def test_a_table_in_parts_that_is_read_as_a_whole_too_has_a_dense_gradient(self):
        with tf.device(owner(0)):
            table = v1.placeholder(tf.float32, [4, 3])
        rows = tf.reduce_sum(tf.gather(table, [1, 1]))
        self.assertEqual(set(self._named(rows, t=table)), {"t/0", "t/1"})
        gradients = self._named(rows + tf.reduce_sum(table @ tf.ones([3, 1])), t=table)
        self.assertEqual(set(gradients), {"t/0"})
        self.assertEqual(gradients["t/0"].device, owner(0))
        with v1.Session() as session:
            graph_def = v1.get_default_graph().as_graph_def()
            for node in graph_def.node:
                node.device = ""
            with tf.Graph().as_default() as graph:
                names = [gradients["t/0"].name]
                (again,) = tf.import_graph_def(graph_def, return_elements=names)
            with v1.Session(graph=graph) as session:
                value = session.run(again)
        self.assertEqual(value.tolist(), [[1.0] * 3, [3.0] * 3, [1.0] * 3, [1.0] * 3])

    def test_a_sparse_gradient_becomes_dense(self):
        with tf.Graph().as_default(), v1.Session() as session:
            values, indices = tf.constant([[1.0], [2.0], [4.0]]), tf.constant([1, 0, 1])
            gradient = segment_gradients.dense(
                [values, indices], tf.TensorShape([3, 1])
            )
            self.assertEqual(session.run(gradient).tolist(), [[2.0], [5.0], [0.0]])
