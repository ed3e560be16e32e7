"""Counted FLOPs against formulas, and the peak of the processor."""

from unittest import mock

import tensorflow as tf

from towers.compute import flops, kernels
from towers.compute.flops import measure_peak
from towers.layout import placement


class FlopsTest(tf.test.TestCase):
    def test_matmul_and_its_gradients(self):
        with tf.Graph().as_default() as graph, tf.name_scope("t"):
            a, b = tf.zeros([3, 5]), tf.zeros([5, 7])
            tf.gradients(tf.matmul(a, b), [a, b])
            self.assertEqual(flops.of_graph(graph, "t/"), 3 * 2 * 3 * 5 * 7)

    def test_the_nodes_of_a_template(self):
        with tf.Graph().as_default() as graph:
            x = tf.compat.v1.placeholder(tf.float32, [3, 5])
            tf.matmul(x, tf.zeros([5, 7]))
        self.assertEqual(flops.of_nodes(graph.as_graph_def()), 2 * 3 * 5 * 7)

    def test_transposed_and_batched_products(self):
        with tf.Graph().as_default() as graph:
            tf.matmul(tf.zeros([5, 3]), tf.zeros([7, 5]), True, True, name="t/a")
            tf.matmul(tf.zeros([2, 3, 5]), tf.zeros([2, 5, 7]), name="t/b")
            self.assertEqual(flops.of_graph(graph, "t/"), 3 * 2 * 3 * 5 * 7)

    def test_products_of_unknown_size_count_nothing(self):
        with tf.Graph().as_default() as graph:
            rows = tf.compat.v1.placeholder(tf.float32, [None, 5])
            kernel = tf.zeros([5, 7])
            tf.gradients(tf.matmul(rows, kernel, name="t/a"), [kernel], name="t")
            tf.matmul(tf.zeros([3, 5]), kernel, name="t/b")
            self.assertEqual(flops.of_graph(graph, "t"), 2 * 3 * 5 * 7)

    def test_convolution_and_its_gradients(self):
        for padding, size in (("SAME", 8), ("VALID", 6)):
            with tf.Graph().as_default() as graph, tf.name_scope("t"):
                x, w = tf.zeros([2, 8, 8, 3]), tf.zeros([3, 3, 3, 4])
                tf.gradients(tf.nn.conv2d(x, w, 1, padding), [x, w])
                pass_flops = 2 * 2 * size * size * 4 * 3 * 3 * 3
                self.assertEqual(flops.of_graph(graph, "t/"), 3 * pass_flops)

    def test_depthwise_convolution_and_its_gradients(self):
        with tf.Graph().as_default() as graph, tf.name_scope("t"):
            x, w = tf.zeros([2, 8, 8, 3]), tf.zeros([5, 3, 3, 1])
            y = tf.nn.depthwise_conv2d(x, w, [1, 2, 2, 1], "SAME")
            tf.gradients(y, [x, w])
        self.assertEqual(flops.of_graph(graph, "t/"), 3 * 2 * 2 * 4 * 4 * 3 * 5 * 3)

    def test_nchw_counts_as_much(self):
        with tf.Graph().as_default() as graph, tf.name_scope("t"):
            x, w = tf.zeros([2, 3, 8, 8]), tf.zeros([3, 3, 3, 4])
            tf.gradients(tf.nn.conv2d(x, w, 2, "SAME", "NCHW"), [x, w])
            self.assertEqual(flops.of_graph(graph, "t/"), 3 * 2 * 2 * 16 * 4 * 27)

    def test_sums_of_a_local_response_norm_are_not_counted(self):
        with tf.Graph().as_default() as graph:
            x = tf.compat.v1.placeholder(tf.float32, [2, 3, 3, 4])
            with kernels.gradients(kind="cpu", dtype=tf.float32):
                y = tf.nn.local_response_normalization(x, 1)
            tf.gradients(y, [x])
            products = [op for op in graph.get_operations() if op.type == "MatMul"]
            self.assertLen(products, 2)
            self.assertEqual(flops.of_graph(graph), 0)

    def test_a_sum_of_rows_is_not_counted(self):
        with tf.Graph().as_default() as graph:
            for rows in (3, 3000):
                kernels.sum_of_rows(tf.zeros([rows, 5], tf.bfloat16))
        self.assertEqual(flops.of_graph(graph), 0)

    def test_other_names_do_not_count(self):
        with tf.Graph().as_default() as graph:
            tf.matmul(tf.zeros([3, 5]), tf.zeros([5, 7]), name="other")
            self.assertEqual(flops.of_graph(graph, "t/"), 0)

    def test_a_peak_below_what_was_reached_is_measured_again(self):
        where = placement.local(1, kind="cpu")
        for at_least, calls in ((0.0, 2), (1e30, 20)):
            with mock.patch.object(flops, "_fastest", return_value=1e-3) as fastest:
                measure_peak(where, at_least=at_least)
            self.assertEqual(fastest.call_count, calls)

    def test_peak_is_more_than_one_gigaflop_per_second(self):
        where = placement.local(2, kind="cpu")
        for dtype in (tf.float32, tf.bfloat16):
            peak = measure_peak(where, dtype, seconds=0.02)
            self.assertBetween(peak, 1e9, 1e15)
