"""TFDS files, arrays and datasets are read in an order that can be repeated."""

import base64
import os
import tempfile

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

from towers.data import records

v1 = tf.compat.v1

# A picture of red and green pixels, then another one.
_PIXELS = [[[10, 200, 30], [250, 0, 90]]]
_ANIMATED_GIF = base64.b64decode(
    "R0lGODdhAgABAIEAAArIHvoAWgAAAAAAACwAAAAAAgABAAAIBQABBAgIACH5BAEAAAIALAAAAAACAAEA"
    "gQX/pfU34QAAAAAAAAgFAAMACAgAOw=="
)
_WEBP = base64.b64decode("UklGRiIAAABXRUJQVlA4TBYAAAAvAQAAAA9wHOQrwN+DZ/4jDRWI6H8A")


class RecordsTestShards(tfds.core.GeneratorBasedBuilder):
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


class RecordsTestFormats(RecordsTestShards):
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


class RecordsTestSizes(RecordsTestFormats):
    """Pictures that are not all of the size declared, one of them empty."""

    SHAPE = (1, 2, 3)

    def _pictures(self):
        with tf.Graph().as_default(), v1.Session() as session:
            high = session.run(tf.io.encode_png(tf.zeros([2, 2, 3], tf.uint8)))
        return [_WEBP, b"", high]


def _read(examples, seed=None):
    """All (image, label) of records, in order."""
    with tf.Graph().as_default(), v1.Session() as session:
        if seed is not None:
            seed = tf.constant(seed, tf.int64)
        dataset = examples.open(seed).enumerate()
        dataset = dataset.map(lambda _, record: examples.decode(record))
        pair = v1.data.make_one_shot_iterator(dataset).get_next()
        pairs = []
        while True:
            try:
                pairs.append(session.run(pair))
            except tf.errors.OutOfRangeError:
                return pairs


def _numbers(pairs):
    return [int(image[0, 0, 0]) for image, _ in pairs]


class FromTfdsTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        root = tempfile.TemporaryDirectory()
        cls.addClassCleanup(root.cleanup)
        cls.builder = RecordsTestShards(data_dir=root.name)
        config = tfds.download.DownloadConfig(num_shards=6)
        with tf.Graph().as_default():
            cls.builder.download_and_prepare(download_config=config)

    def _records(self, split="train"):
        return records.from_tfds(
            self.builder, self.builder.info.splits[split], keys=("picture", "kind")
        )

    def test_says_what_it_is(self):
        examples = self._records()
        self.assertEqual(examples.name, "records_test_shards/1.0.0")
        self.assertEqual((examples.num_examples, examples.num_classes), (60, 3))
        self.assertEqual(examples.shape, (None, 5, 1))
        self.assertEqual(examples.dtype, tf.uint8)
        self.assertEqual(examples.num_bytes, float("inf"))
        self.assertLen(self.builder.info.splits["train"].filenames, 6)
        self.assertEqual(examples.path, os.fspath(self.builder.data_path))

    def test_every_record_is_read_once(self):
        pairs = _read(self._records())
        self.assertCountEqual(_numbers(pairs), range(60))
        for (image, label), number in zip(pairs, _numbers(pairs)):
            self.assertEqual(image.shape, (3 + number % 4, 5, 1))
            self.assertEqual(label.dtype, np.int32)
            self.assertEqual(label, number % 3)

    def test_the_order_is_a_function_of_the_seed(self):
        orders = [_numbers(_read(self._records(), seed)) for seed in ([1, 0], [1, 1])]
        self.assertCountEqual(orders[0], orders[1])
        self.assertNotEqual(orders[0], orders[1])
        self.assertEqual(orders[0], _numbers(_read(self._records(), [1, 0])))

    def test_a_part_of_a_split(self):
        part = _numbers(_read(self._records("train[10:35]")))
        rest = _numbers(_read(self._records("train[:10]+train[35:]")))
        self.assertLen(part, 25)
        self.assertCountEqual(part + rest, range(60))


class PicturesTest(tf.test.TestCase):
    def _records(self, make, split):
        builder = make(data_dir=self.create_tempdir().full_path)
        with tf.Graph().as_default():
            builder.download_and_prepare()
        self.path = os.fspath(builder.data_path)
        return records.from_tfds(
            builder, builder.info.splits[split], keys=("picture", "kind")
        )

    def test_formats(self):
        pairs = _read(self._records(RecordsTestFormats, "train"))
        self.assertCountEqual([int(label) for _, label in pairs], range(4))
        for image, label in pairs:
            self.assertAllClose(image, _PIXELS, atol=9 if label == 1 else 0)

    def test_what_is_wrong_with_a_record(self):
        """Records come in an order that depends on TFDS's hashes of their keys."""
        faults = {}
        for number in range(3):
            examples = self._records(RecordsTestSizes, f"train[{number}:{number + 1}]")
            faults[number] = examples.locate(None)
            if not faults[number]:
                continue
            with self.assertRaises(tf.errors.InvalidArgumentError) as raised:
                _read(examples)
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
        builder = RecordsTestShards(data_dir=folder)
        with tf.Graph().as_default():
            builder.download_and_prepare()
        features = tfds.features.FeaturesDict({"note": builder.info.features["note"]})
        files = builder.info.splits["train"].file_instructions
        (batch,) = records.read_batches(files, features)
        self.assertAllEqual(batch["note"], [b"none"] * 60)
        (path,) = builder.info.splits["train"].filepaths
        os.truncate(path, os.path.getsize(path) - 1)
        with self.assertRaisesRegex(
            ValueError, rf"damaged \(record 59, .*\): put {builder.data_path} back"
        ):
            list(records.read_batches(files, features))


class OwnDataTest(tf.test.TestCase):
    def test_arrays(self):
        images = np.arange(24, dtype=np.uint8).reshape(3, 4, 2, 1)
        examples = records.from_arrays(images, np.array([2, 0, 1]), num_classes=3)
        self.assertEqual(examples.shape, (4, 2, 1))
        self.assertEqual(examples.num_bytes, 24)
        pairs = _read(examples)
        self.assertAllEqual([image for image, _ in pairs], images)
        self.assertAllEqual([label for _, label in pairs], [2, 0, 1])

    def test_arrays_that_do_not_fit(self):
        images, labels = np.zeros((3, 4, 4, 1)), np.array([0, 1, 2])
        for bad, sentence in (
            ((images[0], labels), "must be .examples, height"),
            ((images, labels[:2]), r"not \[3, 4, 4, 1\] and \[2\]"),
            ((images[:0], labels[:0]), r"not \[0,"),
            ((images[:, :0], labels), r"not \[3, 0, 4, 1\] and"),
            (
                (images + [[[[0]]], [[[np.nan]]], [[[0]]]], labels),
                r"and images\[1\] is",
            ),
            (
                (images - [[[[0]]], [[[0]]], [[[np.inf]]]], labels),
                r"and images\[2\] is",
            ),
            ((images, labels + 8), r"in \[0, 10\), not in \[8, 10\]"),
            ((images, labels - 1), r"not in \[-1, 1\]"),
            ((images, labels * 1.0), "integer scalars, not float64"),
        ):
            with self.assertRaisesRegex(ValueError, sentence):
                records.from_arrays(*bad, num_classes=10)

    def test_datasets_that_do_not_fit(self):
        zeros = tf.zeros
        for make, sentence in (
            (lambda: tf.data.Dataset.range(3), "pairs is needed"),
            (lambda: tf.data.Dataset.from_tensors((zeros([4, 4]), 1)), r"not \(4, 4\)"),
            (
                lambda: tf.data.Dataset.from_tensors((zeros([4, 4, 1]), [1])),
                r"scalars, not int32 \(1,\)",
            ),
        ):
            with self.assertRaisesRegex(ValueError, sentence):
                records.from_dataset(make, num_examples=3, num_classes=2)

    def test_a_label_out_of_range_is_an_error_of_reading(self):
        for label in (-1, 2):
            examples = records.from_dataset(
                lambda label=label: tf.data.Dataset.from_tensors(
                    (tf.zeros([4, 4, 1]), label)
                ),
                num_examples=1,
                num_classes=2,
            )
            with self.assertRaises(tf.errors.InvalidArgumentError) as raised:
                _read(examples)
            self.assertIn(
                f"label {label} is not in [0, 2)",
                records.explain(raised.exception, examples=[examples]),
            )


class PermutationTest(tf.test.TestCase):
    def test_is_one_and_depends_on_the_seed(self):
        with tf.Graph().as_default(), v1.Session() as session:
            seeds = [[1, 0], [1, 1], [2, 0], [1, 0]]
            orders = session.run(
                [records.permutation(50, tf.constant(seed, tf.int64)) for seed in seeds]
            )
        for order in orders:
            self.assertAllEqual(np.sort(order), np.arange(50))
        self.assertAllEqual(orders[0], orders[3])
        self.assertLen({tuple(order) for order in orders}, 3)


class ExplainTest(tf.test.TestCase):
    def _records(self, *paths):
        images = np.zeros([1, 2, 2, 1])
        examples = records.from_arrays(images, [0], num_classes=1)
        return [examples._replace(path=path) for path in paths]

    def test_names_the_damage_and_the_place(self):
        for words in (
            "truncated record at 12' failed with EOF",
            "corrupted record at 0",
            "Read less bytes than requested",
            'input file "/a b.txt" has body length 9 bytes, which is not an exact '
            "multiple of the record length",
            "/data/x.tfrecord-00000-of-00001; No such file or directory",
            "expected to contain 9 elements but contained only 7 elements.",
        ):
            message = f"Graph execution error:\n{words}\n[[{{node IteratorGetNext}}]]"
            error = tf.errors.DataLossError(None, None, message)
            examples = self._records("/data/a", "", "/data/a")
            sentence = records.explain(error, examples=examples)
            self.assertRegex(
                sentence, r"damaged \(.*\): put /data/a back as it was, or "
            )
            self.assertIn(words[:20], sentence)

    def test_leaves_other_errors_alone(self):
        for message in (
            "truncated record at 12 [[{{node save/RestoreV2}}]]",
            "something else [[{{node IteratorGetNext}}]]",
        ):
            error = tf.errors.DataLossError(None, None, message)
            examples = self._records("/data/a")
            self.assertIsNone(records.explain(error, examples=examples))

    def test_looks_for_what_tensorflow_does_not_say(self):
        (whole, *_), (damaged, *_) = self._records("/whole"), self._records("/damaged")
        whole = whole._replace(locate=lambda most: "")
        damaged = damaged._replace(locate=lambda most: "record 7 of x: empty")
        message = "what is new [[{{node decode/Some}}]] [[IteratorGetNext]]"
        error = tf.errors.InvalidArgumentError(None, None, message)
        sentence = records.explain(error, examples=[whole, damaged])
        self.assertStartsWith(
            sentence, "the data set is damaged (record 7 of x: empty): put /damaged ba"
        )
        self.assertIsNone(records.explain(error, examples=[whole]))

    def test_does_not_look_for_the_faults_of_others(self):
        (examples,) = self._records("/data/a")
        examples = examples._replace(locate=lambda most: self.fail("looked"))
        for kind, message in (
            (tf.errors.InvalidArgumentError, "[[{{node tower_0/a/MatMul}}]] [[%s]]"),
            (tf.errors.UnavailableError, "connection lost [[{{node input/%s}}]]"),
        ):
            error = kind(None, None, message % "IteratorGetNext")
            self.assertIsNone(records.explain(error, examples=[examples]))
