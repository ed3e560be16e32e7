"""Gradients of convolutions as matrix products: equal, and used where faster."""

import collections
import os
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import arrays
from towers.compute import convolution, kernels
from towers.layout import processor

v1 = tf.compat.v1

_PADDED = {"padding": [[0, 0], [1, 1], [1, 1], [0, 0]]}

# name -> input, filters, options of `tf.nn.conv2d`; in bfloat16 without AMX, the number
# of products of the gradient by the filters, and of that by the input.
CASES = {
    "pointwise": ((3, 5, 4, 6), (1, 1, 6, 8), {}, 1, 1),
    "pointwise_valid": ((3, 5, 4, 6), (1, 1, 6, 8), {"padding": "VALID"}, 1, 1),
    "pointwise_dilated": ((3, 5, 4, 6), (1, 1, 6, 8), {"dilations": 2}, 1, 1),
    "pointwise_small": ((3, 8, 4, 6), (1, 1, 6, 8), {}, 1, 0),
    "pointwise_large": ((2, 18, 4, 6), (1, 1, 6, 8), {}, 0, 0),
    "strided": ((3, 6, 4, 6), (1, 1, 6, 8), {"strides": 2}, 1, 1),
    "strided_large": ((3, 60, 36, 6), (1, 1, 6, 8), {"strides": [3, 2]}, 1, 1),
    "strided_uneven": ((3, 5, 4, 6), (1, 1, 6, 8), {"strides": 2}, 0, 0),
    "padded": ((3, 5, 4, 6), (1, 1, 6, 8), _PADDED, 0, 0),
    "padded_strided": ((3, 3, 3, 6), (1, 1, 6, 8), {**_PADDED, "strides": 2}, 0, 0),
    "square": ((3, 5, 4, 128), (3, 3, 128, 128), {}, 9, 0),
    "square_valid": ((3, 5, 4, 128), (3, 3, 128, 128), {"padding": "VALID"}, 9, 0),
    "square_narrow": ((3, 5, 4, 128), (3, 3, 128, 64), {}, 0, 0),
    "square_large": ((1, 18, 4, 128), (3, 3, 128, 128), {}, 0, 0),
    "square_strided": ((3, 6, 4, 128), (3, 3, 128, 128), {"strides": 2}, 0, 0),
    "square_dilated": ((3, 7, 8, 128), (3, 3, 128, 128), {"dilations": 2}, 0, 0),
    "square_of_64": ((3, 5, 4, 64), (3, 3, 64, 64), {}, 0, 0),
    "square_of_64_large": ((1, 65, 4, 64), (3, 3, 64, 64), {}, 0, 0),
    "square_of_63": ((1, 65, 4, 63), (3, 3, 63, 128), {}, 0, 0),
    "two_by_four": ((3, 5, 6, 128), (2, 4, 128, 128), {}, 8, 0),
    "two_by_five": ((3, 5, 6, 128), (2, 5, 128, 128), {}, 10, 0),
}

# name -> the number of products of the gradient by the filters, in float32 with AVX2.
WITH_AVX2 = {
    "pointwise": 0,
    "strided": 0,
    "padded": 0,
    "square": 9,
    "square_valid": 9,
    "square_narrow": 9,
    "square_large": 9,
    "square_strided": 0,
    "square_dilated": 0,
    "square_of_64": 0,
    "square_of_64_large": 9,
    "square_of_63": 0,
    "two_by_four": 8,
    "two_by_five": 0,
}

_COPIES = ("Pad", "StridedSlice")


class ConvolutionTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.named_parameters((name, *case) for name, case in CASES.items())
    def test_the_gradients_are_those_of_tensorflow(self, x, filters, options, *kinds):
        if not processor.has("avx512f"):
            self.skipTest("TensorFlow's kernels of bfloat16 may abort on this CPU")
        self._processor("avx512_bf16")
        try:
            actual, products = self._gradients(x, filters, options)
            theirs, _ = self._gradients(x, filters, options, kind="gpu")
        except tf.errors.InvalidArgumentError as error:
            if "dilation rates larger than 1" not in error.message:
                raise
            self.skipTest("TensorFlow has no such gradient in bfloat16 on this CPU")
        self.assertEqual(products, kinds)
        # The kernels of bfloat16 have an error of up to 2 %.
        wide = {"kind": "gpu", "dtype": tf.float32}
        exact, _ = self._gradients(x, filters, options, **wide)
        for value, by_kernel, by_float32, product in zip(
            actual, theirs, exact, products[::-1]
        ):
            wanted = by_float32 if product else by_kernel
            # Numbers of 8 bits are added in float32, and the sum is rounded to 8 bits.
            bounds = {"rtol": 2**-7, "atol": 0.01 * abs(wanted).max()}
            arrays.assert_close(value, wanted, **bounds)

    @parameterized.parameters(
        ("cpu", tf.bfloat16, "avx512_bf16", {"square": (9, 0), "strided": (1, 1)}),
        (
            *("cpu", tf.bfloat16, "avx512_bf16 amx_bf16"),
            {"pointwise": (1, 0), "pointwise_large": (1, 0), "strided": (1, 1)},
        ),
        (
            *("cpu", tf.float32, "avx512f"),
            {"pointwise": (1, 0), "pointwise_large": (1, 0), "strided": (0, 0)},
        ),
        ("cpu", tf.float32, "sve", {"pointwise": (0, 0), "strided": (0, 0)}),
        ("cpu", tf.float16, "avx512f", {"pointwise": (0, 0), "strided": (0, 0)}),
        ("gpu", tf.bfloat16, "avx512_bf16", {"pointwise": (0, 0), "strided": (0, 0)}),
        ("gpu", tf.float32, "avx512f", {"pointwise": (0, 0), "strided": (0, 0)}),
    )
    def test_where_products_are_faster(self, kind, dtype, instructions, others):
        self._processor(instructions)
        for name, wanted in {"square": (0, 0), **others}.items():
            _, products = self._gradients(*CASES[name][:3], kind=kind, dtype=dtype)
            self.assertEqual(products, wanted)

    @parameterized.parameters(*WITH_AVX2.items())
    def test_float32_with_avx2(self, name, wanted):
        self._processor("avx2")
        actual, products = self._gradients(*CASES[name][:3], dtype=tf.float32)
        self.assertEqual(products, (wanted, 0))
        wide = {"kind": "gpu", "dtype": tf.float32}  # TensorFlow's own gradients
        theirs, _ = self._gradients(*CASES[name][:3], **wide)
        for value, exact in zip(actual, theirs):
            arrays.assert_close(value, exact, rtol=1e-5, atol=1e-5 * abs(exact).max())

    @parameterized.parameters("0", None)
    def test_float32_with_avx2_but_without_onednn(self, value):
        self._processor("avx2")
        name = "TF_ENABLE_ONEDNN_OPTS"
        rest = {key: text for key, text in os.environ.items() if key != name}
        environment = rest if value is None else {**rest, name: value}
        self.enter_context(mock.patch.dict(os.environ, environment, clear=True))
        _, products = self._gradients(*CASES["square"][:3], dtype=tf.float32)
        self.assertEqual(products, (0, 0))

    @parameterized.parameters(
        *((6, 1, 6), (6, 2, 3), (6, 3, 2), (6, 5, 2), (6, 6, 1), (6, 100, 1)),
        *((18, 1, 6), (11, 1, 1)),
    )
    def test_parts_of_the_batch_are_added(self, batch, images, parts):
        self._processor("avx2")
        x, filters = (batch, 5, 4, 64), (3, 3, 64, 128)
        wide = {"kind": "gpu", "dtype": tf.float32}  # TensorFlow's own gradients
        theirs, _ = self._gradients(x, filters, {}, **wide)
        size = images * 5 * 4 * 64 * 4
        with mock.patch.object(convolution, "_PART_BYTES", size):
            actual, products = self._gradients(x, filters, {}, dtype=tf.float32)
        self.assertEqual(products, (9 * parts, 0))
        for value, exact in zip(actual, theirs):
            arrays.assert_close(value, exact, rtol=1e-5, atol=1e-5 * abs(exact).max())

    def test_two_parts_of_the_input_are_in_memory_at_most(self):
        self._processor("avx2")
        with tf.Graph().as_default() as graph:
            x, filters = tf.ones([2, 8, 8, 64]), tf.ones([3, 3, 64, 128])
            with kernels.gradients(kind="cpu", dtype=tf.float32):
                y = tf.nn.conv2d(x, filters, 1, "SAME")
            tf.gradients(y, [filters])
        parts = [op for op in graph.get_operations() if op.type == "StridedSlice"]
        parts = [op for op in parts if op.inputs[0].shape.rank == 4]
        # The numbers that say what is cut out are constants that wait.
        begins = [op.inputs[1].op for op in parts]
        before = [[i.type for i in begin.control_inputs] for begin in begins]
        self.assertEqual(before, [[], [], *[["MatMul"]] * 7])

    @parameterized.parameters(
        (tf.float32, "avx2", (3, 3, 64, 128), 1), (tf.bfloat16, "", (1, 1, 64, 8), 2)
    )
    def test_the_forward_pass_copies_no_input(self, dtype, known, size, strides):
        self._processor(known)
        with tf.Graph().as_default() as graph:
            x, filters = tf.ones([6, 8, 8, 64], dtype), tf.ones(size, dtype)
            with kernels.gradients(kind="cpu", dtype=dtype):
                y = tf.nn.conv2d(x, filters, strides, "SAME")
            dy = tf.ones_like(y)
            for part_bytes in (2**24, 2**13):
                with mock.patch.object(convolution, "_PART_BYTES", part_bytes):
                    tf.gradients(y, [filters], dy)
        copies = [op for op in graph.get_operations() if op.type in _COPIES]
        copies = [op for op in copies if op.inputs[0].shape.rank >= 4]
        self.assertNotEmpty(copies)
        for copy in copies:
            self.assertIn(dy.op, _ancestors(copy))

    def test_groups(self):
        _, products = self._gradients((2, 5, 4, 6), (1, 1, 3, 8), {}, dtype=tf.float32)
        self.assertEqual(products, (0, 0))

    @parameterized.parameters(("cpu", True), ("gpu", False))
    def test_the_backward_pass_does_not_queue_behind_the_filters(self, kind, first):
        with tf.Graph().as_default() as graph:
            x, filters = tf.ones([2, 8, 8, 3]), tf.ones([3, 3, 3, 4])
            with kernels.gradients(kind=kind, dtype=tf.float32):
                y = tf.nn.conv2d(x, filters, 1, "SAME")
            tf.gradients(y, [x, filters])
        types = [op.type for op in graph.get_operations()]
        order = types.index("Conv2DBackpropFilter") < types.index("Conv2DBackpropInput")
        self.assertEqual(order, first)

    def test_sizes_that_are_not_known(self):
        with tf.Graph().as_default():
            x = v1.placeholder(tf.bfloat16, [None, None, None, 2])
            w = tf.ones([1, 1, 2, 3], tf.bfloat16)
            with kernels.gradients(kind="cpu", dtype=tf.bfloat16):
                y = tf.nn.conv2d(x, w, 1, "SAME")
            [dw] = tf.gradients(y, [w])
            with v1.Session() as session:
                actual = session.run(dw, {x: np.ones([2, 3, 4, 2])})
        self.assertAllEqual(actual, np.full([1, 1, 2, 3], 24))

    def _processor(self, instructions):
        known = instructions.split()
        has = mock.patch.object(convolution.processor, "has", known.__contains__)
        self.enter_context(has)

    def _gradients(self, x, filters, options, *, kind="cpu", dtype=tf.bfloat16):
        """By the input and by the filters; products for the latter and the former."""
        random = np.random.default_rng(0)
        with tf.Graph().as_default() as graph:
            x, w = (_uniform(random, shape, dtype) for shape in (x, filters))
            with kernels.gradients(kind=kind, dtype=dtype):
                y = tf.nn.conv2d(x, w, **{"strides": 1, "padding": "SAME"} | options)
            gradients = tf.gradients(y, [x, w], _uniform(random, y.shape, dtype))
            kinds = collections.Counter(
                (op.type, op.type == "MatMul" and op.get_attr("transpose_a"))
                for op in graph.get_operations()
            )
            with v1.Session() as session:
                values = session.run(
                    [tf.cast(value, tf.float32) for value in gradients]
                )
        products = kinds["MatMul", True], kinds["MatMul", False]
        by_kernels = tuple(
            kinds[f"Conv2DBackprop{which}", False] for which in ("Filter", "Input")
        )
        self.assertEqual(by_kernels, tuple(int(not number) for number in products))
        return values, products


def _ancestors(op):
    """All operations that run before `op`."""
    reached, queue = set(), [op]
    while queue:
        op = queue.pop()
        before = [tensor.op for tensor in op.inputs] + list(op.control_inputs)
        queue += [each for each in before if each not in reached]
        reached.update(before)
    return reached


def _uniform(random, shape, dtype):
    """Numbers that bfloat16 has, too."""
    return tf.cast(tf.constant(random.uniform(-1, 1, shape), tf.bfloat16), dtype)
