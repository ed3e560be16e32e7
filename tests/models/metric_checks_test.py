"""Losses, metrics, pictures and derived values that are wrong are refused by name."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from models import metric_checks

_BATCH = 4


class ValueTest(parameterized.TestCase):
    @parameterized.parameters(
        (lambda: tf.zeros([4]), "loss"),
        (lambda: tf.zeros([4]), "a"),
        (lambda: tf.zeros([4, 3]), "a"),
        (lambda: tf.zeros([4, 3, 2], tf.float64), "a"),
    )
    def test_takes(self, value, name):
        with tf.Graph().as_default():
            metric_checks.check_value("m", name, value(), _BATCH)

    @parameterized.parameters(
        (lambda: False, "bool, and must be float32"),
        (lambda: 1.0, r"float, and .* or wider: float32 \(4, ...\)$"),
        (lambda: tf.zeros([3, 3]) + _unknown(), r"float32 \(3, 3\), .* \(4, ...\)$"),
        (lambda: tf.zeros([4, 3], tf.int32), r"int32 \(4, 3\), and must be float32"),
        (lambda: tf.zeros([4], tf.float64), r"float64 \(4,\), and must be float32"),
        (
            lambda: tf.compat.v1.placeholder(tf.float32, [4, None]),
            r"float32 \(4, None\), and must be",
        ),
    )
    def test_refuses(self, value, sentence):
        with (
            tf.Graph().as_default(),
            self.assertRaisesRegex(ValueError, f"^a of model 'm' is {sentence}"),
        ):
            metric_checks.check_value("m", "a", value(), _BATCH)

    def test_a_loss_is_not_wider(self):
        with (
            tf.Graph().as_default(),
            self.assertRaisesRegex(ValueError, r"^loss .* example of a batch$"),
        ):
            metric_checks.check_value("m", "loss", _unknown() * [[1]] * 4, _BATCH)


def _unknown():
    """A scalar that is no constant."""
    return tf.compat.v1.placeholder(tf.float32, [])


class PictureTest(parameterized.TestCase):
    @parameterized.parameters(
        ([4, 2, 5, 1], tf.uint8), ([4, 2, 5, 3], tf.float32), ([4, 1, 1, 3], tf.half)
    )
    def test_takes(self, shape, dtype):
        with tf.Graph().as_default():
            metric_checks.check_picture("m", "a", tf.zeros(shape, dtype), _BATCH)

    @parameterized.parameters(
        ([4, 3], tf.float32),
        ([3, 2, 2, 1], tf.float32),
        ([4, 2, 2, 4], tf.float32),
        ([4, 2, 2, 1], tf.int32),
    )
    def test_refuses(self, shape, dtype):
        words = rf"{dtype.name} \({', '.join(map(str, shape))}\)"
        with (
            tf.Graph().as_default(),
            self.assertRaisesRegex(
                ValueError,
                f"^picture a of model 'm' is {words}, and must be uint8 or float "
                r"\(4, height, width, 1 or 3\)$",
            ),
        ):
            metric_checks.check_picture("m", "a", tf.zeros(shape, dtype), _BATCH)

    @parameterized.parameters("a b", "", 3)
    def test_refuses_names(self, name):
        with self.assertRaisesRegex(ValueError, f"^{name} of model 'm': no such name"):
            metric_checks.check_picture("m", name, 3, _BATCH)


class DerivedTest(parameterized.TestCase):
    @parameterized.parameters(1, 2.5, np.float32(0.5), np.float64(0.5))
    def test_a_number(self, value):
        actual = metric_checks.number_or_picture("a", value)
        self.assertIs(type(actual), float)
        self.assertEqual(actual, value)

    @parameterized.parameters(1, 3)
    def test_a_picture(self, channels):
        picture = np.zeros([5, 6, channels], np.uint8)
        self.assertIs(metric_checks.number_or_picture("a", picture), picture)

    @parameterized.parameters(
        (np.ones([3]), r"float64 \(3,\)"),
        (np.zeros([5, 6, 2], np.uint8), r"uint8 \(5, 6, 2\)"),
        (np.zeros([5, 6, 3]), r"float64 \(5, 6, 3\)"),
    )
    def test_refuses(self, value, words):
        with self.assertRaisesRegex(ValueError, f"^'a' is {words}; return a number"):
            metric_checks.number_or_picture("a", value)
