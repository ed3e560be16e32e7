"""Gradients by other kernels are equal."""

from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import arrays
from towers.compute import kernels
from towers.compute.nodes import ancestors

v1 = tf.compat.v1


class KernelsTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(("cpu", tf.bfloat16), ("cpu", tf.float32), ("gpu", None))
    def test_the_gradient_of_a_relu(self, kind, dtype):
        """On bits, also of numbers that are not finite; what it reads stays."""
        dtype = dtype or tf.bfloat16
        rare = [0.0, -0.0, np.inf, -np.inf, 1e-30, -1e-30]
        x = np.concatenate([rare, np.random.default_rng(0).normal(size=250)])
        with tf.Graph().as_default() as graph, v1.Session() as session:
            x, dy = tf.constant(x, dtype), tf.constant(np.linspace(-9, 9, 256), dtype)
            # no constant, as a constant's buffer is never reused
            dy += tf.zeros([256], dtype)
            with kernels.gradients(kind=kind, dtype=dtype):
                y = tf.nn.relu(x)
            [dx] = tf.gradients(y, [x], dy)
            inputs = {t.dtype for op in graph.get_operations() for t in op.inputs}
            values = session.run([tf.cast(v, tf.float32) for v in (x, y, dy, dx)])
        x, y, dy, dx = values
        self.assertEqual(tf.int16 in inputs, kind == "cpu" and dtype == tf.bfloat16)
        self.assertAllEqual(y, np.maximum(x, 0))
        self.assertAllEqual(dx, np.where(x > 0, dy, 0))

    @parameterized.product(
        transposed=[(False, False), (False, True), (True, False), (True, True)],
        dtype=(tf.float32, tf.complex64),
    )
    def test_the_gradients_of_a_product(self, transposed, dtype):
        shapes = [
            [3, 2] if transposed[0] else [2, 3],
            [4, 3] if transposed[1] else [3, 4],
        ]
        options = dict(zip(("transpose_a", "transpose_b"), transposed))
        gradients = self._of_product(shapes, dtype, **options)
        for value, wanted in zip(*gradients, strict=True):
            arrays.assert_close(value, wanted, rtol=1e-6, atol=1e-6)

    @parameterized.parameters(
        (16, 512, True),
        (128, 512, True),
        (15, 512, False),
        (129, 512, False),
        (16, 511, False),
        (8, 4096, True),
        (7, 4096, False),
        (8, 4096, False, tf.bfloat16),
        (16, 512, False, tf.float32, "avx2"),
        (None, 512, False),
    )
    def test_a_dense_layers_input_has_a_turned_product(
        self, rows, width, turned, dtype=tf.float32, instructions="avx512f"
    ):
        known = instructions.split()
        has = mock.patch.object(kernels.processor, "has", known.__contains__)
        with has, tf.Graph().as_default():
            x = v1.placeholder(dtype, [rows, width])
            with kernels.gradients(kind="cpu", dtype=dtype):
                y = x @ tf.zeros([width, width], dtype)
            [dx] = tf.gradients(y, [x])
        self.assertEqual(dx.op.type == "Transpose", turned)

    def test_what_a_turned_product_is(self):
        has = mock.patch.object(kernels.processor, "has", return_value=True)
        with has:
            for value, wanted in zip(*self._of_product([[16, 512], [512, 512]])):
                arrays.assert_close(value, wanted, rtol=1e-6, atol=1e-3)

    def _of_product(self, shapes, dtype=tf.float32, **options):
        """The gradients by these kernels, and by TensorFlow's."""
        random = np.random.default_rng(0)
        gradients = []
        with tf.Graph().as_default(), v1.Session() as session:
            parts = [[random.normal(size=shape) for shape in shapes] for _ in range(2)]
            a, b = (
                tf.cast(tf.complex(*pair), dtype)
                if dtype.is_complex
                else tf.constant(pair[0], dtype)
                for pair in zip(*parts)
            )
            for kind in ("cpu", "gpu"):
                with kernels.gradients(kind=kind, dtype=tf.float32):
                    y = tf.matmul(a, b, **options)
                gradients.append(tf.gradients(tf.math.abs(y) ** 2, [a, b]))
            return session.run(gradients)

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
            gradients = tf.gradients(y, [x, bias], dy)
            wide = [tf.cast(value, tf.float32) for value in (dy, *gradients)]
            dy, by_input, by_bias = session.run(wide)
        self.assertAllEqual(by_input, dy)
        others = tuple(k for k in range(len(shape)) if k != axis)
        wanted = dy.astype(np.float64).sum(others)
        self.assertAllClose(by_bias, wanted, rtol=2**-7)

    @parameterized.parameters(tf.bfloat16, tf.float16, tf.float32)
    def test_rows_are_summed_in_float32(self, dtype):
        with tf.Graph().as_default(), v1.Session() as session:
            sums = session.run(kernels.sum_of_rows(tf.ones([2048, 3], dtype)))
        self.assertEqual(sums.dtype, dtype.as_numpy_dtype)
        self.assertAllEqual(sums.astype(np.float32), [2048.0] * 3)

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
        # The gradient of an output goes to the input that is its maximum.
        wanted = np.zeros(x.size)
        np.add.at(wanted, y.astype(int).ravel(), np.arange(y.size))
        there = dx.transpose(0, 2, 3, 1) if turned else dx
        self.assertAllEqual(there, wanted[x.astype(int)])

    def test_local_response_norms_gradient_waits_for_that_of_its_output(self):
        """The forward pass would make parts of it, and hold them until the end."""
        with tf.Graph().as_default() as graph:
            x, dy = (v1.placeholder(tf.float32, [1, 2, 2, 8]) for _ in range(2))
            with kernels.gradients(kind="cpu", dtype=tf.float32):
                y = tf.nn.local_response_normalization(x)
            tf.gradients(y, [x], dy)
            waits = [
                dy.op.name in ancestors([op])
                for op in graph.get_operations()
                if op.type in ("Mul", "MatMul", "AddV2", "Rsqrt")
            ]
        self.assertNotEmpty(waits)
        self.assertAllEqual(waits, [True] * len(waits))
