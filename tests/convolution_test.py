"""Gradients of convolutions by other kernels: the same numbers."""

import collections

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from towers.compute import convolution

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


class ConvolutionTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.named_parameters((name, *case) for name, case in CASES.items())
    def test_the_gradients_are_those_of_tensorflow(self, x, filters, options, product):
        found, kinds = self._gradients(x, filters, options)
        wanted, _ = self._gradients(x, filters, options, kind="gpu")
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

    def test_sizes_that_are_not_known(self):
        with tf.Graph().as_default():
            x = v1.placeholder(tf.bfloat16, [None, None, None, 2])
            w = tf.ones([1, 1, 2, 3], tf.bfloat16)
            with convolution.gradients(kind="cpu", dtype=tf.bfloat16):
                y = tf.nn.conv2d(x, w, 1, "SAME")
            [dw] = tf.gradients(y, [w])
            with v1.Session() as session:
                found = session.run(dw, {x: np.ones([2, 3, 4, 2])})
        self.assertAllEqual(found, np.full([1, 1, 2, 3], 24))

    def _gradients(self, x, filters, options, *, kind="cpu", dtype=tf.bfloat16):
        """By the input and by the filters; types of operation -> how many."""
        random = np.random.default_rng(0)
        with tf.Graph().as_default() as graph:
            x, w = (
                tf.constant(random.uniform(-1, 1, shape), dtype)
                for shape in (x, filters)
            )
            with convolution.gradients(kind=kind, dtype=dtype):
                y = tf.nn.conv2d(x, w, **{"strides": 1, "padding": "SAME"} | options)
            dy = tf.constant(random.uniform(-1, 1, y.shape), dtype)
            made = tf.gradients(y, [x, w], dy)
            kinds = collections.Counter(op.type for op in graph.get_operations())
            with v1.Session() as session:
                found = session.run([tf.cast(value, tf.float32) for value in made])
        return found, kinds


if __name__ == "__main__":
    tf.test.main()
