"""Examples from tables: columns, categories, and values that are missing."""

import os

import pyarrow as pa
import pyarrow.parquet
import tensorflow as tf
from absl.testing import parameterized

from towers.data.tables import from_csv, from_parquet

v1 = tf.compat.v1

_CSV = "area,rooms,city,price\n10.5,2,Rome,100\n20,3,Oslo,300\n,1,Rome,50\n"


def _rows(data, numbers):
    with tf.Graph().as_default(), v1.Session() as session:
        return session.run(data.read(tf.constant(numbers, tf.int64)))


class TablesTest(parameterized.TestCase, tf.test.TestCase):
    def _file(self, text=_CSV, name="a.csv"):
        path = os.path.join(self.create_tempdir().full_path, name)
        with open(path, "w") as file:
            file.write(text)
        return path

    def test_columns_become_features(self):
        path = self._file()
        columns = {"size": ["area", "rooms"], "city": "city"}
        data = from_csv([path, path], columns, "price", "rooms", fill={"area": -1.0})
        self.assertEqual((data.num_examples, data.name), (6, "table"))
        self.assertEqual(
            data.specs,
            (
                {"size": tf.TensorSpec([2]), "city": tf.TensorSpec([], tf.int32)},
                tf.TensorSpec([], tf.int32),
                tf.TensorSpec([]),
            ),
        )
        features, price, weights = _rows(data, [2, 3, 1])
        self.assertAllEqual(features["size"], [[-1, 1], [10.5, 2], [20, 3]])
        self.assertAllEqual(features["city"], [1, 1, 0])
        self.assertAllEqual(price, [50, 100, 300])
        self.assertAllEqual(weights, [1, 2, 3])
        self.assertEqual(data.vocabulary, (b"city=Oslo", b"city=Rome"))

    def test_parquet_holds_the_same(self):
        path = os.path.join(self.create_tempdir().full_path, "a.parquet")
        table = pa.table(
            {
                "city": pa.array(["Rome", "Oslo"]).dictionary_encode(),
                "new": [True, False],
                "number": pa.array([2**40, 1]),
            }
        )
        pyarrow.parquet.write_table(table, path)
        data = from_parquet([path], ("city", "new"), "number")
        (city, new), number = _rows(data, [0, 1])
        self.assertAllEqual(city, [1, 0])
        self.assertAllEqual(new, [True, False])
        self.assertAllEqual(number, [2**40, 1])
        with self.assertRaisesRegex(ValueError, "_parquet: .* has no column 'area'"):
            from_parquet([path], "area")

    def _folder(self, **rows):
        """A folder as Spark writes it, in two parts, with a partition of its own."""
        folder = self.create_tempdir().full_path
        for part, day in enumerate(("mon", "tue")):
            place = os.path.join(folder, f"day={day}")
            os.mkdir(place)
            name = f"part-0000{part}-1a2b.c000.snappy.parquet"
            table = pa.table({key: values[part] for key, values in rows.items()})
            pyarrow.parquet.write_table(table, os.path.join(place, name))
            with open(os.path.join(place, f".{name}.crc"), "w") as file:
                file.write("crc")
        open(os.path.join(folder, "_SUCCESS"), "w").close()
        return folder

    def test_folders_of_spark_are_read(self):
        arrays = [[1.5, 2], [3, 4]], [[5, 6]]
        folder = self._folder(x=arrays, n=([1, 2], [3]))
        data = from_parquet([folder], {"x": "x", "all": ["n", "x"]}, "day")
        self.assertEqual(data.num_classes, 2)
        features, day = _rows(data, [0, 1, 2])
        self.assertAllEqual(features["x"], [[1.5, 2], [3, 4], [5, 6]])
        self.assertAllEqual(features["all"], [[1, 1.5, 2], [2, 3, 4], [3, 5, 6]])
        self.assertAllEqual(day, [0, 0, 1])
        matrices = from_parquet([self._folder(m=([[[1, 2]]], [[[3, 4]]]))], "m")
        self.assertAllEqual(_rows(matrices, [1])[0], [[[3, 4]]])

    @parameterized.parameters(
        (([[1, 2]], [[3]]), "'x' has 1 values in row 1, and 2 in row 0"),
        (([[1, 2]], [[3, None]]), "'x' lacks a value in row 1; leave the row out"),
        (([[1, 2]], [None]), "'x' has no value in row 1; say what stands"),
        (([["a"]], [["b"]]), "'x' is of list<.*string>; numbers, words, and arrays"),
        (([{"a": 1}], [{"a": 2}]), "'x' is of struct<.*>; write its fields as columns"),
        (
            ([dict(type=1, size=2, indices=[0], values=[1.0])],) * 2,
            "'x' is of struct<.*; for vectors of Spark ML, write vector_to_array",
        ),
        (([1], ["a"]), "cannot be read: .*'a' as a scalar of type int64"),
    )
    def test_what_spark_can_write_and_is_not_read(self, values, words):
        with self.assertRaisesRegex(ValueError, f"^from_parquet: .*{words}"):
            from_parquet([self._folder(x=values)], "x")

    def test_a_folder_that_is_no_table_is_named(self):
        folder = self.create_tempdir().full_path
        for name, words in (
            ("_SUCCESS", "has no Parquet files"),
            ("_delta_log", "has _delta_log: it is a Delta table"),
            ("_temporary", "has _temporary: its writer has not finished"),
        ):
            os.mkdir(os.path.join(folder, name))
            with self.assertRaisesRegex(ValueError, f"^from_parquet: {folder} {words}"):
                from_parquet([folder], "x")

    def test_labels_that_are_words_are_classes(self):
        self.assertEqual(from_csv([self._file()], "rooms", "city").num_classes, 2)
        self.assertIsNone(from_csv([self._file()], "city", "rooms").num_classes)

    def test_another_split_is_numbered_as_the_training(self):
        training = from_csv([self._file()], "city")
        text = "city\nRome\nRome\n"
        again = from_csv([self._file(text)], "city").by_vocabulary(training.vocabulary)
        self.assertAllEqual(_rows(again, [0, 1])[0], [1, 1])
        self.assertEqual(again.vocabulary, training.vocabulary)
        new = self._file("city\nRome\nBonn\n")
        with self.assertRaisesRegex(ValueError, "'city' is 'Bonn' in row 1, which the"):
            from_csv([new], "city").by_vocabulary(training.vocabulary)
        filled = from_csv([new], "city", fill={"city": "Oslo"})
        filled = filled.by_vocabulary(training.vocabulary)
        self.assertAllEqual(_rows(filled, [0, 1])[0], [1, 0])

    @parameterized.parameters(
        ("area", {}, "'area' has no value in row 2; say what stands for it by fill="),
        (
            "area",
            {"fill": {"area": "x"}},
            "fill={'area': 'x'}, and the column is of",
        ),
        ("rooms", {"fill": {"area": 1}}, "fill names 'area', which is not read"),
        ("flat", {}, "a.csv has no column 'flat'"),
        ((), {}, "features has no array"),
        (
            ["rooms", "city"],
            {},
            "'city' holds words, and a list of columns is a vector",
        ),
    )
    def test_what_is_wrong_is_named(self, features, options, words):
        with self.assertRaisesRegex(ValueError, f"^from_csv: .*{words}"):
            from_csv([self._file()], features, "price", **options)

    @parameterized.parameters(
        ("city\n", "has no rows"),
        ("city,a\n1\n", "cannot be read: CSV parse error"),
        ("a,city\n1,\n", "'city' has no value in row 0"),
        ("city\n2020-01-01\n", "'city' is of date32.*; numbers, words, and arrays"),
    )
    def test_what_is_wrong_in_a_file_is_named(self, text, words):
        with self.assertRaisesRegex(ValueError, f"^from_csv: .*{words}"):
            from_csv([self._file(text)], "city")
        with self.assertRaisesRegex(ValueError, "cannot be read: .*No such file"):
            from_csv(["/none.csv"], "city")
