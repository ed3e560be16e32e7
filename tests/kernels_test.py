"""Gradients by other kernels: the same numbers."""

import collections

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from towers.compute import kernels

v1 = tf.compat.v1

# name -> input, filters, options of `tf.nn.conv2d`, whether it is a matrix product.
CASES = {
    "one_by_one": ((3, 5, 4, 6), (1, 1, 6, 8), {}, True),
    "valid": ((3, 5, 4, 6), (1, 1, 6, 8), {"padding": "VALID"}, True),
    "dilated": ((3, 5, 4, 6), (1, 1, 6, 8), {"dilations": 2}, True),
    "strided": ((3, 5, 4, 6), (1, 1, 6, 8), {"strides": 2}, False),
    "padded": (
        (3, 5, 4, 6),
        (1, 1, 6, 8),
        {"padding": [[0, 0], [1, 1], [0, 0], [0, 0]]},
        False,
    ),
    "padded_and_strided": (
        (3, 3, 3, 6),
        (1, 1, 6, 8),
        {"padding": [[0, 0], [1, 1], [1, 1], [0, 0]], "strides": 2},
        False,
    ),
    "three_by_three": ((3, 5, 4, 6), (3, 3, 6, 8), {}, False),
    "three_by_three_strided": ((3, 5, 4, 6), (3, 3, 6, 8), {"strides": 2}, False),
}


class KernelsTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.named_parameters((name, *case) for name, case in CASES.items())
    def test_the_gradients_are_those_of_tensorflow(self, x, filters, options, product):
        try:
            found, kinds = self._gradients(x, filters, options)
            wanted, _ = self._gradients(x, filters, options, kind="gpu")
        except tf.errors.InvalidArgumentError as error:
            if "dilation rates larger than 1" not in error.message:
                raise
            self.skipTest("TensorFlow has no such gradient in bfloat16 on this CPU")
        for one, other in zip(found, wanted):
            # Numbers of 8 bits, added in float32 and then rounded to 8 bits.
            self.assertAllClose(one, other, rtol=2**-7, atol=0.01 * abs(other).max())
        self.assertEqual(kinds["MatMul"], product)
        self.assertEqual(kinds["Conv2DBackpropFilter"], not product)

    @parameterized.parameters(("gpu", tf.bfloat16), ("cpu", tf.float32))
    def test_elsewhere_they_are_made_as_ever(self, kind, dtype):
        x, filters, options, _ = CASES["one_by_one"]
        _, kinds = self._gradients(x, filters, options, kind=kind, dtype=dtype)
        self.assertEqual((kinds["MatMul"], kinds["Conv2DBackpropFilter"]), (0, 1))

    @parameterized.parameters(("cpu", True), ("gpu", False))
    def test_the_backward_pass_does_not_queue_behind_the_filters(self, kind, first):
        with tf.Graph().as_default() as graph:
            x, filters = tf.ones([2, 8, 8, 3]), tf.ones([3, 3, 3, 4])
            with kernels.gradients(kind=kind, dtype=tf.float32):
                y = tf.nn.conv2d(x, filters, 1, "SAME")
            tf.gradients(y, [x, filters])
        made = [op.type for op in graph.get_operations()]
        order = made.index("Conv2DBackpropFilter") < made.index("Conv2DBackpropInput")
        self.assertEqual(order, first)

    def test_sizes_that_are_not_known(self):
        with tf.Graph().as_default():
            x = v1.placeholder(tf.bfloat16, [None, None, None, 2])
            w = tf.ones([1, 1, 2, 3], tf.bfloat16)
            with kernels.gradients(kind="cpu", dtype=tf.bfloat16):
                y = tf.nn.conv2d(x, w, 1, "SAME")
            [dw] = tf.gradients(y, [w])
            with v1.Session() as session:
                found = session.run(dw, {x: np.ones([2, 3, 4, 2])})
        self.assertAllEqual(found, np.full([1, 1, 2, 3], 24))

    @parameterized.product(known=(True, False), dtype=(tf.int32, tf.int64))
    def test_the_gradient_of_a_padding(self, known, dtype):
        dy = np.arange(6 * 7, dtype=np.float32).reshape(6, 7)
        with tf.Graph().as_default() as graph, v1.Session() as session:
            x, paddings = tf.ones([3, 2]), tf.constant([[1, 2], [0, 5]], dtype)
            if not known:
                x = v1.placeholder_with_default(x, [None, 2])
                paddings = v1.placeholder_with_default(paddings, [None, 2])
            with kernels.gradients(kind="cpu", dtype=tf.float32):
                y = tf.pad(x, paddings)
            [dx] = tf.gradients(y, [x], tf.constant(dy))
            self.assertAllEqual(session.run(dx), dy[1:4, :2])
            computed = {op.type for op in graph.get_operations()} & {"StridedSlice"}
        self.assertEqual(bool(computed), not known)

    @parameterized.parameters(
        ("NHWC", (4096, 6)),
        ("NHWC", (64, 8, 8, 6)),
        ("NCHW", (1024, 6, 2, 2)),
        ("NHWC", (4096, 6), True),
    )
    def test_the_gradient_of_a_bias_is_added_in_float32(
        self, data_format, shape, unknown=False
    ):
        """TensorFlow's kernel adds in bfloat16, and comes to 256 ones at most."""
        random = np.random.default_rng(0)
        axis = 1 if data_format == "NCHW" else len(shape) - 1
        with tf.Graph().as_default(), v1.Session() as session:
            dy = tf.constant(random.uniform(0, 2, shape), tf.bfloat16)
            bias = tf.zeros([6], tf.bfloat16)
            x = tf.zeros(shape, tf.bfloat16)
            if unknown:
                x = v1.placeholder_with_default(x, [None, None])
                bias = v1.placeholder_with_default(bias, [None])
                dy = v1.placeholder_with_default(dy, [None, None])
            with kernels.gradients(kind="cpu", dtype=tf.bfloat16):
                y = tf.nn.bias_add(x, bias, data_format)
            made = tf.gradients(y, [x, bias], dy)
            wide = [tf.cast(value, tf.float32) for value in (dy, *made)]
            dy, by_input, by_bias = session.run(wide)
        self.assertAllEqual(by_input, dy)
        others = tuple(k for k in range(len(shape)) if k != axis)
        wanted = dy.astype(np.float64).sum(others)
        self.assertAllClose(by_bias, wanted, rtol=2**-7)

    @parameterized.parameters(tf.bfloat16, tf.float16, tf.float32)
    def test_rows_are_summed_in_float32(self, dtype):
        with tf.Graph().as_default(), v1.Session() as session:
            found = session.run(kernels.sum_of_rows(tf.ones([2048, 3], dtype)))
        self.assertEqual(found.dtype, dtype.as_numpy_dtype)
        self.assertAllEqual(found.astype(np.float32), [2048.0] * 3)

    @parameterized.parameters(
        ("NHWC", "VALID", True),
        ("NHWC", [[0, 0], [0, 1], [1, 1], [0, 0]], True),
        ("NHWC", "SAME", False),
        ("NCHW", "VALID", True),
        ("NCHW", "SAME", True),
        ("NCHW", "SAME", False),
    )
    def test_max_pooling(self, data_format, padding, apart):
        x = np.random.default_rng(0).permutation(3 * 7 * 6 * 4).astype(np.float32)
        x = x.reshape(3, 7, 6, 4)
        turned = data_format == "NCHW"
        with tf.Graph().as_default() as graph:
            channels_last = tf.constant(x)
            here = (
                tf.transpose(channels_last, [0, 3, 1, 2]) if turned else channels_last
            )
            with kernels.gradients(kind="cpu", dtype=tf.float32, apart=apart):
                y = tf.nn.max_pool2d(
                    here, (3, 2), (2, 1), padding, data_format=data_format
                )
            weights = tf.reshape(tf.range(tf.size(y, tf.int32)), tf.shape(y))
            [dx] = tf.gradients(y, [here], tf.cast(weights, tf.float32))
            formats = [
                op.get_attr("data_format")
                for op in graph.get_operations()
                if op.type == "MaxPoolGrad"
            ]
            with v1.Session() as session:
                y, dx = session.run([y, dx])
        self.assertEqual(formats, [b"NHWC" if apart else data_format.encode()])
        # Each output's weight goes back to the input that it is.
        wanted = np.zeros(x.size)
        np.add.at(wanted, y.astype(int).ravel(), np.arange(y.size))
        there = dx.transpose(0, 2, 3, 1) if turned else dx
        self.assertAllEqual(there, wanted[x.astype(int)])

    def _gradients(self, x, filters, options, *, kind="cpu", dtype=tf.bfloat16):
        """By the input and by the filters; types of operation -> how many."""
        random = np.random.default_rng(0)
        with tf.Graph().as_default() as graph:
            x, w = (
                tf.constant(random.uniform(-1, 1, shape), dtype)
                for shape in (x, filters)
            )
            with kernels.gradients(kind=kind, dtype=dtype):
                y = tf.nn.conv2d(x, w, **{"strides": 1, "padding": "SAME"} | options)
            dy = tf.constant(random.uniform(-1, 1, y.shape), dtype)
            made = tf.gradients(y, [x, w], dy)
            kinds = collections.Counter(op.type for op in graph.get_operations())
            with v1.Session() as session:
                found = session.run([tf.cast(value, tf.float32) for value in made])
        return found, kinds


if __name__ == "__main__":
    tf.test.main()
