"""`python -m towers.data` shows a data set."""

import contextlib
import importlib
import io
import os

import tensorflow as tf
from absl.testing import parameterized

from tests import digit_runs

_main = importlib.import_module("towers.data.__main__").main
_HERE = "tests.data.__main___test"


def data(split):
    """Two examples."""
    del split
    from_arrays = importlib.import_module("towers.data").from_arrays
    return from_arrays({"table": [[0.25, 1.0], [2.0, 3.0]]}, [4, 5])


def _shown(*arguments):
    """The exit status, and what is printed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = _main([f"--data_dir={digit_runs.data_dir()}", *arguments])
    return status, out.getvalue()


class MainTest(parameterized.TestCase):
    def test_images(self):
        path = os.path.join(self.create_tempdir(), "digits.png")
        status, text = _shown("digits", "--count=3", f"--picture={path}")
        self.assertEqual(status, 0, text)
        lines = text.splitlines()[-12:]  # TFDS may log that it reads a file
        self.assertEqual(
            lines[:3],
            [
                "digits, split train: 1442 examples, 10 classes",
                "  features: uint8 [8, 8, 1]",
                "  labels: int32 []",
            ],
        )
        self.assertEqual([line.split()[0] for line in lines[3::3]], ["example"] * 3)
        with open(path, "rb") as file:
            self.assertEqual(tf.io.decode_png(file.read()).shape, [8, 3 * 9, 1])

    def test_texts(self):
        status, text = _shown("shakespeare", "--count=1")
        self.assertEqual(status, 0, text)
        self.assertIn("features: int32 [64]", text)
        # the first characters of Shakespeare: First Citizen
        self.assertRegex(text, r"features: \[ *70 105 114 ")

    def test_data_of_a_user(self):
        status, text = _shown(f"{_HERE}:data", "--split=validation")
        self.assertEqual(status, 0, text)
        self.assertIn("split validation: 2 examples\n", text)
        self.assertRegex(text, r"example 1\n  features\['table'\]: \[2. 3.\]\n  .*: 5")

    @parameterized.parameters(
        (["nosuch"], "error: .*no such data set"),
        (["digits", "--split=dev"], "error: .*there is no split dev, only train, test"),
        (["shakespeare", "--picture=x.png"], "error: .*no feature is an image"),
    )
    def test_mistakes(self, arguments, words):
        status, text = _shown(*arguments)
        self.assertEqual(status, 2)
        self.assertRegex(text, words)
        self.assertNotIn("Traceback", text)
        self.assertFalse(os.path.exists("x.png"))
