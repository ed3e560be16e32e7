"""The place in the user's code where an error began."""

import functools
import re

import tensorflow as tf
from absl.testing import parameterized

from models import user_errors

v1 = tf.compat.v1


def _divide(x):
    return 1 / x  # the line that is named


def _add(x):
    return tf.constant([1.0]) + x  # TensorFlow fails below it


def _line(words: str) -> int:
    with open(__file__) as file:
        return 1 + [words in line for line in file].index(True)


def _raise(error: Exception):
    raise error


def _caught(act) -> Exception:
    try:
        with tf.Graph().as_default():
            act()
    except ValueError as error:
        return error


class UserErrorsTest(parameterized.TestCase):
    @parameterized.parameters(
        (_divide, 0, "ZeroDivisionError: division by zero", "the line that is named"),
        (_add, "a", "", "TensorFlow fails below it"),
    )
    def test_the_last_place_in_the_users_code(self, act, value, words, line):
        with self.assertRaises(ValueError) as caught:
            with user_errors.blamed(lambda: "it"), tf.Graph().as_default():
                act(value)
        place = re.escape(f"({__file__}:{_line(line)})")
        self.assertRegex(str(caught.exception), f"^it: {words}.*{place}$")

    @parameterized.parameters(
        (ValueError("one\ntwo"), "one"),
        (ValueError(), "ValueError"),
        (RuntimeError("one:\n  two"), "RuntimeError: one: two"),
        (RuntimeError(), "RuntimeError"),
        (RuntimeError("x" * 999), "RuntimeError: " + "x" * 800 + " ..."),
        (ValueError("half a word " * 99), "half a word " * 66 + "half a ..."),
    )
    def test_one_line(self, error, words):
        self.assertEqual(user_errors.sentence(error), words)
        with self.assertRaisesRegex(ValueError, rf"^it: {words} \({__file__}:\d+\)$"):
            with user_errors.blamed(lambda: "it"):
                _raise(error)

    @parameterized.parameters(
        (lambda x: v1.assign_add(x, 1.0), "assign_add"),
        (lambda x: v1.scatter_update(x, [0], [1.0]), "_lazy_read"),
        (lambda x: x.read_value(), "read_value"),
    )
    def test_what_a_block_reads_is_no_variable(self, act, name):
        with self.assertRaisesRegex(
            ValueError, rf"^it: .* a tensor without '{name}'; .*\({__file__}:\d+\)$"
        ):
            with user_errors.blamed(lambda: "it"), tf.Graph().as_default():
                act(v1.placeholder(tf.float32, [1]))
        with self.assertRaisesRegex(ValueError, "^it: AttributeError: .*'asign'"):
            with user_errors.blamed(lambda: "it"), tf.Graph().as_default():
                v1.placeholder(tf.float32, [1]).asign(1.0)

    @parameterized.parameters(
        (lambda x: {"a": x, "b": x}.shape, "a dict of 'a', 'b' has no 'shape'"),
        (lambda x: (x, x).dtype, "a tuple of 2 has no 'dtype', which a tensor has"),
        (lambda x: tf.nn.relu({"a": x}), "an operation of TensorFlow takes a tensor"),
        (lambda x: {"a": x}.b, "AttributeError: 'dict' object has no attribute 'b'"),
    )
    def test_a_nest_that_is_used_as_a_tensor(self, act, words):
        with self.assertRaisesRegex(ValueError, f"^it: {words}"):
            with user_errors.blamed(lambda: "it"), tf.Graph().as_default():
                act(v1.placeholder(tf.float32, [3]))

    def test_a_call_that_does_not_fit(self):
        with self.assertRaisesRegex(ValueError, r"^it: TypeError: .* 1 positional"):
            with user_errors.blamed(lambda: "it"):
                _divide(1, 2)

    def test_code_of_others_is_not_the_users(self):
        error = _caught(lambda: tf.reshape(tf.zeros([2]), [3]))
        self.assertStartsWith(user_errors.place(error), f"{__file__}:")
        error.__traceback__ = error.__traceback__.tb_next.tb_next  # inside TensorFlow
        self.assertEqual(user_errors.place(error), "")

    def test_where_a_function_is_defined(self):
        class Own:
            def __init__(self):  # of the class
                pass

            def __call__(self):  # of an object
                pass

        for function, words in (
            (_divide, "def _divide"),
            (functools.partial(_divide, 1), "def _divide"),
            (Own, "  # of the " + "class"),
            (Own(), "  # of an " + "object"),
            (self._bound, "def " + "_bound"),
        ):
            place = f"{__file__}:{_line(words)}"
            self.assertEqual(user_errors.defined(function), place)
        for function in (len, tf.reshape, object(), None):
            self.assertEqual(user_errors.defined(function), "")

    def _bound(self):
        pass

    def test_a_function_that_was_not_reached(self):
        error = TypeError("no")
        self.assertEqual(user_errors.sentence(error, len), "TypeError: no")
        place = re.escape(f"({user_errors.defined(_divide)})")
        self.assertRegex(
            user_errors.sentence(error, _divide), f"^TypeError: no {place}$"
        )
        with self.assertRaisesRegex(ValueError, f"^it: none {place}$"):
            with user_errors.blamed(lambda: "it"):
                _raise(user_errors.SignatureError("none", _divide))
