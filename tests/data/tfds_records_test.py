"""TFDS files are read in an order that can be repeated, or by number."""

import base64
import dataclasses
import glob
import os
import shutil
import tempfile
from unittest import mock

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds
from absl.testing import parameterized

from tests import batch_reader
from tests.batch_reader import read_records
from towers.data import inputs, order, records, tfds_records
from towers.data.source import ClientShare, Request

v1 = tf.compat.v1

# A picture of red and green pixels, then another one.
_PIXELS = [[[10, 200, 30], [250, 0, 90]]]
_ANIMATED_GIF = base64.b64decode(
    "R0lGODdhAgABAIEAAArIHvoAWgAAAAAAACwAAAAAAgABAAAIBQABBAgIACH5BAEAAAIALAAAAAACAAEA"
    "gQX/pfU34QAAAAAAAAgFAAMACAgAOw=="
)
_WEBP = base64.b64decode("UklGRiIAAABXRUJQVlA4TBYAAAAvAQAAAA9wHOQrwN+DZ/4jDRWI6H8A")


class TfdsRecordsTestShards(tfds.core.GeneratorBasedBuilder):
    """Sixty numbered pictures of different heights, in a few files."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict(
                {
                    "picture": tfds.features.Image(shape=(None, 5, 1)),
                    "kind": tfds.features.ClassLabel(num_classes=3),
                    "note": tfds.features.Text(),
                }
            ),
            supervised_keys=("picture", "kind"),
        )

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for number in range(60):
            picture = np.full((3 + number % 4, 5, 1), number, np.uint8)
            yield number, {"picture": picture, "kind": number % 3, "note": "none"}


class TfdsRecordsTestFormats(TfdsRecordsTestShards):
    """Pictures in several formats; the files are kept as they come."""

    SHAPE = (None, None, 3)

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict(
                {
                    "picture": tfds.features.Image(shape=self.SHAPE),
                    "kind": tfds.features.ClassLabel(num_classes=9),
                }
            ),
        )

    def _generate_examples(self):
        for number, picture in enumerate(self._pictures()):
            yield number, {"picture": picture, "kind": number}

    def _pictures(self):
        with tf.Graph().as_default(), v1.Session() as session:
            pixels = tf.constant(_PIXELS, tf.uint8)
            jpeg = tf.io.encode_jpeg(pixels, quality=100, chroma_downsampling=False)
            files = session.run([tf.io.encode_png(pixels), jpeg])
        return [*files, _ANIMATED_GIF, _WEBP]


class TfdsRecordsTestSizes(TfdsRecordsTestFormats):
    """Pictures that are not all of the size declared, one of them empty."""

    SHAPE = (1, 2, 3)

    def _pictures(self):
        with tf.Graph().as_default(), v1.Session() as session:
            high = session.run(tf.io.encode_png(tf.zeros([2, 2, 3], tf.uint8)))
        return [_WEBP, b"", high]


def _numbers(pairs):
    return [int(image[0, 0, 0]) for image, _ in pairs]


class FromTfds(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        root = tempfile.TemporaryDirectory()
        cls.addClassCleanup(root.cleanup)
        cls.builder = TfdsRecordsTestShards(data_dir=root.name)
        config = tfds.download.DownloadConfig(num_shards=6)
        with tf.Graph().as_default():
            cls.builder.download_and_prepare(download_config=config)

    def _records(self, split="train"):
        return tfds_records.from_tfds(
            self.builder, self.builder.info.splits[split], keys=("picture", "kind")
        )


class FromTfdsTest(FromTfds):
    def test_says_what_it_is(self):
        examples = self._records()
        self.assertEqual(examples.name, "tfds_records_test_shards/1.0.0")
        self.assertEqual((examples.num_examples, examples.num_classes), (60, 3))
        self.assertEqual(examples.shape, (None, 5, 1))
        self.assertEqual(examples.dtype, tf.uint8)
        self.assertEqual(examples.num_bytes, float("inf"))
        self.assertLen(self.builder.info.splits["train"].filenames, 6)
        self.assertEqual(examples.path, os.fspath(self.builder.data_path))

    def test_every_record_is_read_once(self):
        pairs = read_records(self._records())
        self.assertCountEqual(_numbers(pairs), range(60))
        for (image, label), number in zip(pairs, _numbers(pairs)):
            self.assertEqual(image.shape, (3 + number % 4, 5, 1))
            self.assertEqual(label.dtype, np.int32)
            self.assertEqual(label, number % 3)

    def test_the_order_is_a_function_of_the_seed(self):
        orders = [
            _numbers(read_records(self._records(), seed)) for seed in ([1, 0], [1, 1])
        ]
        self.assertCountEqual(orders[0], orders[1])
        self.assertNotEqual(orders[0], orders[1])
        self.assertEqual(orders[0], _numbers(read_records(self._records(), [1, 0])))

    def test_a_part_of_a_split(self):
        part = _numbers(read_records(self._records("train[10:35]")))
        rest = _numbers(read_records(self._records("train[:10]+train[35:]")))
        self.assertLen(part, 25)
        self.assertCountEqual(part + rest, range(60))


class ByNumberTest(parameterized.TestCase, FromTfds):
    def _source(self, **changes):
        request = Request(shape=(5, 5, 1), preprocessing="imagenet", seed=5, **changes)
        return inputs.DatasetSource(self._records(), request)

    def test_records_by_their_numbers(self):
        examples = self._records("train[10:35]")
        with tf.Graph().as_default(), v1.Session() as session:
            number = v1.placeholder(tf.int64, [])
            record = examples.by_number(number).get_single_element()
            image = examples.decode(record)[0][0, 0, 0]
            read = [session.run(image, {number: n}) for n in range(25)]
        self.assertCountEqual(read, _numbers(read_records(examples)))

    def test_each_once_in_an_epoch_from_any_position(self):
        source = self._source()
        whole = batch_reader.read(source, 10, layout="1x12")
        labels = whole[1].reshape(2, 60)
        for epoch in labels:
            self.assertAllEqual(np.bincount(epoch), [20, 20, 20])
        self.assertNotAllEqual(*labels)
        rest = batch_reader.read(source, 3, layout="two_hosts", position=36)
        for part, all_of_it in zip(rest[:3], whole[:3]):
            self.assertAllEqual(part, all_of_it[36:72])

    def test_a_resumed_run_reads_nothing_before_its_position(self):
        with mock.patch.object(tfds_records, "read_tfds", side_effect=AssertionError):
            batch_reader.read(self._source(), 1, position=57)

    @parameterized.parameters(0, 2)
    def test_an_old_checkpoint_goes_on_in_the_order_of_its_time(self, most):
        """That is the order of records that are not read by number."""
        source = self._source(max_damaged=most)
        other = self._source()
        stream = other._stream
        records_ = stream.records._replace(by_number=None)
        other._stream = dataclasses.replace(stream, records=records_)
        old = batch_reader.read(other, 7, position=20)
        for version in (order.PERMUTED, order.KEYED, order.NUMBERED):
            part = ClientShare(order=np.int64(version))
            again = batch_reader.read(source, 7, position=20, part=part)
            same = all(np.array_equal(*p) for p in zip(again[:3], old[:3]))
            self.assertEqual(same, version < order.NUMBERED)

    def test_a_file_that_is_not_whole(self):
        root = self.create_tempdir().full_path
        shutil.copytree(self.builder.data_path, root, dirs_exist_ok=True)
        builder = tfds.builder_from_directory(root)
        name = sorted(glob.glob(f"{root}/*train*"))[2]
        with open(name, "r+b") as file:
            file.truncate(os.path.getsize(name) - 1)
        examples = tfds_records.from_tfds(
            builder, builder.info.splits["train"], keys=("picture", "kind")
        )
        request = Request(shape=(5, 5, 1), preprocessing="imagenet")
        words = rf"damaged \(record \d+ of {name} is not whole; .*\): put {root} back"
        with self.assertRaisesRegex(ValueError, words):
            inputs.DatasetSource(examples, request)


class PicturesTest(tf.test.TestCase):
    def _records(self, make, split):
        builder = make(data_dir=self.create_tempdir().full_path)
        with tf.Graph().as_default():
            builder.download_and_prepare()
        self.path = os.fspath(builder.data_path)
        return tfds_records.from_tfds(
            builder, builder.info.splits[split], keys=("picture", "kind")
        )

    def test_formats(self):
        pairs = read_records(self._records(TfdsRecordsTestFormats, "train"))
        self.assertCountEqual([int(label) for _, label in pairs], range(4))
        for image, label in pairs:
            self.assertAllClose(image, _PIXELS, atol=9 if label == 1 else 0)

    def test_what_is_wrong_with_a_record(self):
        """Records come in an order that depends on TFDS's hashes of their keys."""
        faults = {}
        for number in range(3):
            examples = self._records(
                TfdsRecordsTestSizes, f"train[{number}:{number + 1}]"
            )
            faults[number] = examples.locate(None)
            if not faults[number]:
                continue
            with self.assertRaises(tf.errors.InvalidArgumentError) as raised:
                read_records(examples)
            sentence = records.explain(raised.exception, examples=[examples])
            self.assertEqual(
                sentence,
                f"the data set is damaged ({faults[number]}): put {self.path} back as "
                "it was, or remove and prepare it again",
            )
            self.assertStartsWith(faults[number], f"record {number}, counted from 0, ")
        self.assertCountEqual(
            [fault.rpartition("00001: ")[2] for fault in faults.values()],
            [
                "",
                "Input is empty",
                "Shape of tensor decode_image/DecodeImage [2,2,3] is not compatible "
                "with expected shape [1,2,3]",
            ],
        )


class ReadBatchesTest(tf.test.TestCase):
    def test_a_damaged_file(self):
        folder = self.create_tempdir().full_path
        builder = TfdsRecordsTestShards(data_dir=folder)
        with tf.Graph().as_default():
            builder.download_and_prepare()
        features = tfds.features.FeaturesDict({"note": builder.info.features["note"]})
        files = builder.info.splits["train"].file_instructions
        (batch,) = tfds_records.read_batches(files, features)
        self.assertAllEqual(batch["note"], [b"none"] * 60)
        (path,) = builder.info.splits["train"].filepaths
        os.truncate(path, os.path.getsize(path) - 1)
        with self.assertRaisesRegex(
            ValueError, rf"damaged \(record 59, .*\): put {builder.data_path} back"
        ):
            list(tfds_records.read_batches(files, features))
