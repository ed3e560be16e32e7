"""Examples in files: one each or in TFRecords, parsed and augmented by TensorFlow."""

import os

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import batch_reader
from towers.data import inputs
from towers.data.example_source import ExampleSource
from towers.data.files import from_files
from towers.data.source import Request

_REQUEST = Request(
    shape=(),
    kind="examples",
    features={"n": tf.TensorSpec([2])},
    labels=tf.TensorSpec([], tf.int32),
)


def _example(text):
    number = tf.strings.to_number(text)
    return {"n": tf.stack([number, -number])}, tf.cast(number, tf.int32)


def _of_file(path):
    return _example(tf.io.read_file(path))


def _unchanged(features, label, draws):
    del draws
    return features, label


class FromFilesTest(parameterized.TestCase, tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = self.create_tempdir().full_path

    def _files(self, count=10):
        paths = [os.path.join(self.folder, f"{number}.txt") for number in range(count)]
        for number, path in enumerate(paths):
            with open(path, "w") as file:
                file.write(f"{number}")
        return paths

    def _records(self):
        """Ten records, in files of 4, 0 and 6."""
        paths = [f"{self.folder}/x.tfrecord-{k:05}-of-00003" for k in range(3)]
        for path, numbers in zip(paths, (range(4), (), range(4, 10))):
            with tf.io.TFRecordWriter(path) as writer:
                for number in numbers:
                    writer.write(str(number).encode())
        return paths

    @parameterized.parameters("4x3", "two_hosts")
    def test_files_and_records_are_read_by_their_numbers(self, layout):
        for data in (
            from_files(self._files(), _of_file),
            from_files(self._records(), _example),
        ):
            self.assertEqual(data.num_examples, 10)
            self.assertFalse(data.in_python)
            source = ExampleSource(data, _REQUEST, training=False)
            features, labels, *_ = self._read(source, layout)
            self.assertAllEqual(labels, [*range(10), *range(10), *range(4)])
            self.assertAllEqual(features, np.stack([labels, -labels], 1))

    @parameterized.parameters("parse", "augment", "")
    def test_tells_whether_python_is_called(self, where):
        def called(example):
            features, label = example
            (label,) = tf.numpy_function(lambda x: [x], [label], [label.dtype])
            return features, tf.ensure_shape(label, [])

        def parse(path):
            return called(_of_file(path)) if where == "parse" else _of_file(path)

        def augment(*example):
            return called(example[:2]) if where == "augment" else example[:2]

        data = from_files(self._files(), parse, augment=augment)
        self.assertEqual(data.in_python, bool(where))

    def _read(self, source, layout="4x3"):
        groups, batch_size = batch_reader.LAYOUTS[layout]
        with tf.Graph().as_default(), batch_reader.session() as session:
            feed = source.feed(
                groups, batch_size=batch_size, position=tf.constant(0, tf.int64)
            )
            session.run(feed.initializer)
            batches = [b for _ in range(2) for b in session.run(feed.batches)]
        features = np.concatenate([batch.features["n"] for batch in batches])
        return features, np.concatenate([batch.labels for batch in batches])

    def test_augments_for_training(self):
        def augment(features, label, draws):
            return {"n": features["n"] + draws[:2]}, label

        data = from_files(self._files(), _of_file, augment=augment)
        features, labels = self._read(ExampleSource(data, _REQUEST))
        moved = features - np.stack([labels, -labels], 1)
        self.assertAllInRange(moved, 0, 1)
        self.assertLen(np.unique(moved), 48)
        plain, labels = self._read(ExampleSource(data, _REQUEST, training=False))
        self.assertAllEqual(plain[:, 0], labels)

    def test_a_file_that_cannot_be_read_is_named(self):
        paths = self._files()
        source = ExampleSource(from_files(paths, _of_file), _REQUEST)
        with open(paths[6], "w") as file:
            file.write("six")
        with self.assertRaises(tf.errors.OpError) as caught:
            self._read(source)
        self.assertRegex(
            inputs.explain(caught.exception, source),
            f"^from_files: {paths[6]} cannot be read: .*six",
        )

    def test_a_damaged_record_is_named(self):
        paths = self._records()
        source = ExampleSource(from_files(paths, _example), _REQUEST)
        with open(paths[2], "r+b") as file:
            file.seek(2 * 17 + 12)
            file.write(b"x")
        with self.assertRaises(tf.errors.OpError) as caught:
            self._read(source)
        self.assertRegex(
            inputs.explain(caught.exception, source),
            f"^from_files: record 2 of {paths[2]} cannot be read: ",
        )

    def test_what_is_no_example_is_refused(self):
        paths, (records, *_) = self._files(2), self._records()
        for given, parse, options, words in (
            ([], _of_file, {}, r"paths is \[\]; give a list of files"),
            (paths[0], _of_file, {}, "paths is '.*0.txt'; give a list"),
            ([*paths, "/none"], _of_file, {}, "there is no file /none"),
            (
                [paths[0], records],
                _of_file,
                {},
                "00003 holds records, and .*0.txt is no",
            ),
            (paths, tf.io.read_file, {}, r"parse returns features as string \(\); it"),
            (paths, lambda path: (), {}, "parse failed: .*is a tuple of 0"),
            (paths, tf.io.decode_jpeg, {}, r"features as uint8 \(None, None, None\)"),
            (paths, lambda path: 1 / 0, {}, "parse failed: ZeroDivisionError"),
            (
                paths,
                _of_file,
                {"augment": lambda x, y, d: x},
                "augment returns features",
            ),
            (paths, _of_file, {"augment": lambda x: x}, "augment failed: TypeError"),
        ):
            with self.subTest(words), self.assertRaisesRegex(ValueError, words):
                from_files(given, parse, **options)
        from_files(paths, _of_file, augment=_unchanged)
        with open(records, "ab") as file:
            file.write(b"half")
        with self.assertRaisesRegex(ValueError, "record 4 of .* is not whole"):
            from_files([records], _example)
