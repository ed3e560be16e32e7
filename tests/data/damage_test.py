"""The file, the record and the reason of damaged data."""

import os
import tempfile
from unittest import mock

import tensorflow as tf
import tensorflow_datasets as tfds
from absl.testing import parameterized
from tensorflow_datasets.core.utils import shard_utils

from towers.data import damage

_RECORDS = 4  # in each of two files
_BYTES = 16  # of a record's length and checksums


def _decode(record):
    """A number of one to three letters."""
    with tf.control_dependencies(
        [tf.debugging.assert_less(tf.strings.length(record), 4, "too long")]
    ):
        return tf.strings.to_number(record, tf.int32)


class DamageTest(parameterized.TestCase, tf.test.TestCase):
    def setUp(self):
        super().setUp()
        root = tempfile.TemporaryDirectory()
        self.addCleanup(root.cleanup)
        self.files = []
        for name in "ab":
            path = os.path.join(root.name, name)
            self._write(path, [b"%d" % (100 + n) for n in range(_RECORDS)])
            self.files.append(
                shard_utils.FileInstruction(
                    filename=path, skip=0, take=_RECORDS, examples_in_shard=_RECORDS
                )
            )

    def _write(self, path, records):
        with tf.io.TFRecordWriter(path) as writer:
            for record in records:
                writer.write(record)

    def _part(self, skip, take):
        path = self.files[1].filename
        return shard_utils.FileInstruction(
            filename=path, skip=skip, take=take, examples_in_shard=_RECORDS
        )

    def test_whole_files(self):
        self.assertEqual(damage.first(self.files, _decode), "")
        self.assertEqual(damage.missing(self.files), [])

    @parameterized.parameters(
        (b"a word", "too long"), (b"no", "could not correctly convert"), (b"", "conv")
    )
    def test_a_record_that_cannot_be_decoded(self, record, reason):
        self._write(self.files[1].filename, [b"1", b"2", record, b"also no"])
        sentence = rf"^record 2, counted from 0, of b: .*{reason}[^\n]*$"
        self.assertRegex(damage.first(self.files, _decode), sentence)
        self.assertRegex(damage.first([self._part(1, 2)], _decode), sentence)
        self.assertEqual(damage.first([self._part(0, 2)], _decode), "")

    def test_another_byte(self):
        with open(self.files[0].filename, "r+b") as file:
            file.seek(_BYTES + 3 + 12)
            file.write(b"x")
        self.assertRegex(
            damage.first(self.files, _decode), "^record 1, .* of a: corrupted record"
        )

    def test_a_file_that_is_cut(self):
        size = os.path.getsize(self.files[1].filename)
        for left, sentence in (
            (size - 1, "record 3, counted from 0, of b: truncated record"),
            (size * 3 // 4, "b has 3 of 4 records"),
            (0, "b has 0 of 4 records"),
        ):
            os.truncate(self.files[1].filename, left)
            self.assertStartsWith(damage.first(self.files, _decode), sentence)

    def test_a_file_that_is_not_there(self):
        os.remove(self.files[1].filename)
        self.assertEqual(damage.missing(self.files), [self.files[1].filename])
        self.assertRegex(
            damage.first(self.files, _decode), "^record 0, .* of b: .*No such file"
        )

    def test_the_first_record_alone(self):
        self._write(self.files[0].filename, [b"1", b"no"])
        self.assertEqual(damage.first(self.files, _decode, most=1), "")
        self._write(self.files[0].filename, [b"no"])
        self.assertRegex(damage.first(self.files, _decode, most=1), "^record 0, ")

    def test_a_feature_that_is_not_in_the_records(self):
        features = tfds.features.FeaturesDict({"label": tfds.features.Scalar(tf.int64)})
        self._write(self.files[0].filename, [tf.train.Example().SerializeToString()])
        self.assertRegex(
            damage.first(self.files, features.deserialize_example),
            "^record 0, counted from 0, of a: .*label",
        )

    def test_a_long_search_is_announced(self):
        with self.assertNoLogs("towers.data.damage", "WARNING"):
            damage.first(self.files, _decode)
        with mock.patch.object(damage, "_MANY_RECORDS", 7):
            with self.assertLogs("towers.data.damage", "WARNING"):
                damage.first(self.files, _decode)
