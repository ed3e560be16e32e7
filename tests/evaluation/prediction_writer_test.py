"""Files of predictions, read back."""

import csv
import os
import unittest.mock

import numpy as np
from absl.testing import parameterized

from towers.evaluation import prediction_writer

_NEST = {
    "mask": np.arange(12.0, dtype=np.float32).reshape(3, 2, 2),
    "scores": (np.array([0.5, 1.5, 2.5], np.float32), np.array([3, 4, 5])),
}


class WriterTest(parameterized.TestCase):
    def test_arrays(self):
        path = self.create_tempfile("p.npz").full_path
        prediction_writer.prediction_writer(path)(_NEST)
        arrays = np.load(path)
        self.assertEqual(sorted(arrays), ["mask", "scores.0", "scores.1"])
        np.testing.assert_array_equal(arrays["mask"], _NEST["mask"])
        self.assertEqual(arrays["scores.1"].dtype, np.int64)
        prediction_writer.prediction_writer(path)(_NEST["mask"])
        self.assertEqual(list(np.load(path)), ["predictions"])

    def test_a_table(self):
        path = self.create_tempfile("p.csv").full_path
        prediction_writer.prediction_writer(path)(_NEST)
        with open(path, newline="", encoding="utf-8") as file:
            first, *rows = csv.reader(file)
        names = [*(f"mask.{i}" for i in range(4)), "scores.0", "scores.1"]
        self.assertEqual(first, names)
        self.assertEqual(rows[1], ["4.0", "5.0", "6.0", "7.0", "1.5", "4"])
        self.assertLen(rows, 3)

    @parameterized.parameters(
        ("p.txt", "must end with one of .npz, .csv, .parquet"),
        ("no/such/folder/p.npz", "cannot be written"),
    )
    def test_what_cannot_be_written_is_refused_at_once(self, name, sentence):
        path = os.path.join(self.create_tempdir().full_path, name)
        with self.assertRaisesRegex(ValueError, f"^out={path}: {sentence}"):
            prediction_writer.prediction_writer(path)

    def test_parquet_needs_its_library(self):
        path = os.path.join(self.create_tempdir().full_path, "p.parquet")
        with unittest.mock.patch("importlib.util.find_spec", return_value=None):
            with self.assertRaisesRegex(ValueError, "needs pyarrow"):
                prediction_writer.prediction_writer(path)

    def test_a_file_that_could_not_be_written_whole_is_not_there(self):
        path = os.path.join(self.create_tempdir().full_path, "p.csv")
        write = prediction_writer.prediction_writer(path)
        with self.assertRaises(ZeroDivisionError):
            write(_Breaks(np.ones(3)))
        self.assertEmpty(os.listdir(os.path.dirname(path)))


class _Breaks:
    """An array that fails when it is looked at."""

    def __init__(self, array):
        self.array = array

    def __array__(self, *args, **options):
        raise ZeroDivisionError
