"""Inputs: the same stream for every layout of towers, from any position on."""

import dataclasses
import glob
import os
import shutil
import tempfile

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import batch_reader
from towers.data import inputs, preprocessing, records
from towers.data.source import ClientShare, Request

_OF_IMAGES = (
    "scale, cifar, cifar_tutorial, imagenet, tf_cnn_benchmarks, "
    "tf_cnn_benchmarks_ml_perf, official_models_imagenet, tf_cnn_benchmarks_cifar"
)

v1 = tf.compat.v1


_REQUEST = Request(shape=(32, 32, 3), preprocessing="cifar", seed=5)


def _distorted(training=True, augment=True):
    """A source of ten images with augmentation."""
    images = np.random.default_rng(0).integers(0, 256, (10, 32, 32, 3), np.uint8)
    request = dataclasses.replace(_REQUEST, augment=augment)
    return inputs.from_arrays(
        images, np.arange(10), num_classes=10, request=request, training=training
    )


class FeedTest(parameterized.TestCase, tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.one_tower = batch_reader.read(_distorted(), 4, layout="1x12")[:3]

    @parameterized.parameters(
        ("3x4", False), ("4x3", True), ("two_hosts", False), ("two_hosts", True)
    )
    def test_the_stream_is_that_of_one_tower(self, layout, stage):
        parts = batch_reader.read(_distorted(), 3, layout=layout, stage=stage)
        for whole, part in zip(self.one_tower, parts):
            self.assertAllEqual(part, whole[:36])
        batch_size = batch_reader.LAYOUTS[layout][1]
        self.assertAllEqual(parts[3], np.arange(0, 36, batch_size))

    def test_parts_of_a_step_are_the_step(self):
        """Three clients, with two towers each: a third of every step for each."""
        rows = [
            batch_reader.read(_distorted(), 3, layout="2x2", part=ClientShare(index, 3))
            for index in range(3)
        ]
        for number, whole in enumerate(self.one_tower):
            steps = [np.split(parts[number], 3) for parts in rows]
            joined = np.concatenate([s[k] for k in range(3) for s in steps])
            self.assertAllEqual(joined, whole[:36])

    @parameterized.parameters("1x12", "4x3", "two_hosts")
    def test_goes_on_from_any_position(self, layout):
        rest = batch_reader.read(_distorted(), 2, layout=layout, position=17)
        for whole, part in zip(self.one_tower, rest):
            self.assertAllEqual(part, whole[17 : 17 + 24])
        self.assertEqual(rest[3][0], 17)

    @parameterized.product(
        layout=("3x4", "two_hosts", "unequal"), position=(0, 7), memory=(0, 2**20)
    )
    def test_the_first_record_again_and_again(self, layout, position, memory):
        """It is distorted in another way each time."""
        request = dataclasses.replace(_REQUEST, repeated=True)
        records = _distorted().records

        def parts(request, training, **options):
            source = inputs.DatasetSource(
                records, request, training=training, memory=memory
            )
            return batch_reader.read(source, 3, **options)

        first = parts(dataclasses.replace(request, augment=False), True)[0][0]
        self.assertAllEqual(first, parts(_REQUEST, False)[0][0])
        features, labels, weights, _ = parts(
            request, True, layout=layout, position=position
        )
        self.assertAllEqual(labels, np.zeros(36))
        self.assertAllEqual(weights, np.ones(36))
        self.assertGreater(len({x.tobytes() for x in features}), 20)
        whole = parts(request, True, layout="1x12")
        self.assertAllEqual(features[: 36 - position], whole[0][position:])
        self.assertAllEqual(parts(request, False)[1][:10], np.arange(10))

    @parameterized.parameters("3x4", "two_hosts")
    def test_evaluation_counts_every_example_once(self, layout):
        source = _distorted(training=False)
        features, labels, weights, _ = batch_reader.read(
            source, 2, layout=layout, limit=source.num_examples
        )
        self.assertAllEqual(weights, [1] * 10 + [0] * 14)
        self.assertAllEqual(labels[:10], np.arange(10))
        self.assertAllInRange(features, -3, 3)  # finite where the weight is 0 too

    def test_augmentation_can_be_left_out(self):
        labels = self.one_tower[1][:12]
        plain = batch_reader.read(_distorted(augment=False), 1)
        as_they_are = batch_reader.read(_distorted(training=False), 1)
        self.assertAllEqual(plain[1], labels)
        self.assertNotAllEqual(plain[1], as_they_are[1])
        self.assertAllEqual(plain[0][0], as_they_are[0][plain[1][0]])

    def test_where_things_lie(self):
        with tf.Graph().as_default():
            feed = _distorted().feed(
                batch_reader.LAYOUTS["4x3"][0],
                batch_size=3,
                position=tf.constant(0, tf.int64),
                stage=True,
            )
            for device, batch in zip(batch_reader.CPUS, feed.batches):
                self.assertEqual(batch.features.device, device)
                self.assertEqual(batch.features.shape, [3, 32, 32, 3])
                self.assertEqual(batch.labels.dtype, tf.int32)
                self.assertEqual(batch.weights.device, batch_reader.CPUS[0])
                self.assertEqual(batch.first.dtype, tf.int64)
            self.assertEmpty(v1.global_variables() + v1.local_variables())

    def test_gpus_are_staged_for(self):
        for device, staged in (("/device:GPU:0", True), ("/device:CPU:0", False)):
            with tf.Graph().as_default() as graph:
                _distorted().feed(
                    [(batch_reader.CPUS[0], [device])],
                    batch_size=3,
                    position=tf.constant(0, tf.int64),
                )
                kinds = {op.type for op in graph.get_operations()}
                self.assertEqual("Unstage" in kinds, staged)

    def test_asynchronous_towers_are_not_staged_for(self):
        """One that holds the last batch may be slow, and the others go beyond it."""
        with tf.Graph().as_default() as graph:
            _distorted().feed(
                [(batch_reader.CPUS[0], ["/device:GPU:0", "/device:GPU:1"])],
                batch_size=3,
                position=tf.constant(0, tf.int64),
                part=ClientShare(apart=True),
            )
        self.assertNotIn("Unstage", {op.type for op in graph.get_operations()})

    def test_threads_of_its_own(self):
        request = Request(shape=(4, 4, 1), threads=1, prefetch=3)
        images = np.zeros((5, 4, 4, 1), np.float32)
        source = inputs.from_arrays(
            images, np.arange(5), num_classes=5, request=request, training=False
        )
        self.assertAllEqual(batch_reader.read(source, 1)[1], np.arange(12) % 5)


class GetTest(parameterized.TestCase, tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        root = tempfile.TemporaryDirectory()
        cls.addClassCleanup(root.cleanup)
        cls.request = Request(shape=(28, 28, 3), data_dir=root.name)
        inputs.get("digits", cls.request)

    def test_digits(self):
        train = inputs.get("digits", self.request)
        test = inputs.get("digits", self.request, training=False)
        self.assertEqual((train.num_examples, test.num_examples), (1442, 355))
        self.assertEqual((train.features.shape, train.num_classes), ((8, 8, 1), 10))
        features, labels, _, _ = batch_reader.read(train, 2)
        self.assertAllInRange(features, -1, 1)
        self.assertNotAllEqual(labels[:12], np.sort(labels[:12]))
        part = inputs.get("digits", self.request, split="train[:100]", training=False)
        self.assertEqual(part.num_examples, 100)

    def test_texts_and_ratings_are_read_from_a_disk(self):
        for kind, row in (("tokens", "bytes"), ("pairs", "pairs")):
            request = Request(shape=(5,), kind=kind, preprocessing=row)
            with self.assertRaisesRegex(ValueError, "=s3://b/x: only images are read"):
                inputs.get("s3://b/x", request)

    def test_every_row_of_the_table_is_tested(self):
        self.assertCountEqual(inputs.DATASETS, ["digits", "shakespeare", "synthetic"])
        rows = preprocessing.PREPROCESSING.values()
        kinds = {row.kind for row in rows}
        self.assertCountEqual(inputs.KINDS, kinds)

    def test_shakespeare(self):
        request = dataclasses.replace(
            self.request, shape=(40,), kind="tokens", preprocessing="bytes"
        )
        train = inputs.get("shakespeare", request)
        validation = inputs.get("shakespeare", request, training=False)
        # (1,003,854 - 1) // 40 and (111,540 - 1) // 40.
        counts = train.num_examples, validation.num_examples
        self.assertEqual(counts, (25096, 2788))
        features, labels, _, _ = batch_reader.read(validation, 1)
        self.assertStartsWith(bytes(features[0].astype(np.uint8)), b"?\n\nGREMIO:")
        self.assertStartsWith(bytes(labels[0].astype(np.uint8)), b"\n\nGREMIO:")

    @parameterized.parameters(("digits", "tokens"), ("shakespeare", "images"))
    def test_data_of_the_wrong_kind(self, name, kind):
        row = "bytes" if kind == "tokens" else "scale"
        request = dataclasses.replace(
            self.request, shape=(40,), kind=kind, preprocessing=row
        )
        wanted = "text" if kind == "tokens" else "image classification"
        with self.assertRaisesRegex(ValueError, f"{name}: not .* {wanted} data set"):
            inputs.get(name, request)

    def test_images_that_do_not_fit(self):
        request = Request(
            shape=(32, 32, 3), preprocessing="cifar", data_dir=self.request.data_dir
        )
        with self.assertRaisesRegex(
            ValueError, "digits/1.0.0: images of 8x8x1 do not fit .* 32x32x3"
        ):
            inputs.get("digits", request)

    @parameterized.parameters(
        ("images", "scal", _OF_IMAGES),
        ("images", "bytes", _OF_IMAGES),
        ("images", "pairs", _OF_IMAGES),
        ("tokens", "scale", "bytes, words"),
        ("pairs", "scale", "pairs"),
    )
    def test_no_such_preprocessing_for_that_kind_of_data(self, kind, name, there_is):
        request = Request(shape=(8, 8, 1), kind=kind, preprocessing=name)
        sentence = f"preprocessing='{name}', and for {kind} there is {there_is}$"
        for data in "synthetic", "digits", "no_such_data":
            with self.assertRaisesRegex(ValueError, sentence):
                inputs.get(data, request)
        images = np.zeros((5, 8, 8, 1), np.uint8)
        with self.assertRaisesRegex(ValueError, sentence):
            inputs.from_arrays(images, np.arange(5), num_classes=5, request=request)

    def test_no_such_kind_of_data(self):
        request = dataclasses.replace(self.request, kind="sounds")
        with self.assertRaisesRegex(ValueError, "'sounds', only images, tokens, pairs"):
            inputs.get("digits", request)

    @parameterized.parameters("bytes", "pairs")
    def test_only_images_are_distorted(self, row):
        kind = preprocessing.PREPROCESSING[row].kind
        request = Request(shape=(2,), kind=kind, preprocessing=row, augment=False)
        with self.assertRaisesRegex(ValueError, f"distorted, not {kind}; leave it out"):
            inputs.DatasetSource(None, request)

    def test_unknown_names(self):
        with self.assertRaisesRegex(ValueError, "did you mean mnist"):
            inputs.get("mnits", self.request)

    @parameterized.parameters(
        ("truncate", 2**28),
        ("flip", 0),
        ("remove", 2**28),
        ("folder", 2**28),
    )
    def test_damaged_files_are_named(self, damage, memory):
        folder = self.create_tempdir().full_path
        shutil.copytree(self.request.data_dir, folder, dirs_exist_ok=True)
        (file,) = glob.glob(f"{folder}/digits/1.0.0/digits-train*")
        with open(file, "r+b") as content:
            if damage == "truncate":
                content.truncate(50000)
            content.seek(3000)
            content.write(b"damage")
        damaged = inputs.get("digits", Request(shape=(8, 8, 1), data_dir=folder))
        if damage in ("remove", "folder"):  # while a run reads it
            os.remove(file)
        if damage == "folder":
            os.mkdir(file)
        source = inputs.DatasetSource(
            damaged.records, Request(shape=(8, 8, 1)), memory=memory
        )
        with self.assertRaises(tf.errors.OpError) as caught:
            batch_reader.read(source.decoded(), 130)
        synthetic = inputs.get("synthetic", self.request)
        sentence = inputs.explain(caught.exception, source, synthetic, damaged)
        self.assertRegex(
            sentence,
            rf"damaged \(record \d+, counted from 0, of ({folder}/digits/1.0.0/)?digits"
            r"-train.tfrecord-00000-of-00001: .*\)"
            rf"(: put {folder}/digits/1.0.0|; put that file) back",
        )
        self.assertNotIn("\n", sentence)


class OwnDataTest(tf.test.TestCase):
    def test_arrays_are_taken_as_they_are(self):
        images = np.random.default_rng(0).normal(size=(5, 3, 4, 2)).astype(np.float32)
        source = inputs.from_arrays(images, [4, 3, 2, 1, 0], num_classes=6)
        self.assertEqual((source.num_examples, source.num_classes), (5, 6))
        self.assertEqual((source.name, source.path), ("arrays", ""))
        features, labels, weights, _ = batch_reader.read(source, 5)
        self.assertAllEqual(features, images[4 - labels])
        self.assertAllEqual(weights, np.ones(60))
        self.assertAllEqual(np.bincount(labels), [12] * 5)

    def test_a_dataset(self):
        def make():
            return tf.data.Dataset.range(8).map(
                lambda i: (tf.fill([2, 2, 1], tf.cast(i * 10, tf.uint8)), i)
            )

        examples = records.from_dataset(make, num_examples=8, num_classes=8)
        request = Request(shape=())
        source = inputs.DatasetSource(examples, request, training=False)
        features, labels, _, _ = batch_reader.read(source, 1)
        self.assertAllEqual(labels, np.arange(12) % 8)
        self.assertAllClose(features[:, 0, 0, 0], labels * 10 / 127.5 - 1)

    def assertStartsWith(self, text, start):  # noqa: N802 - as unittest has it
        self.assertEqual(text[: len(start)], start)
