"""Inputs: the same stream for every layout of towers, from any position on."""

import glob
import os
import shutil
import tempfile

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from towers import inputs
from towers.inputs import Request

v1 = tf.compat.v1

_CPUS = [f"/device:CPU:{index}" for index in range(4)]

# Twelve rows per step: name -> (groups, batch size).
_LAYOUTS = {
    "1x12": ([(_CPUS[0], _CPUS[:1])], 12),
    "3x4": ([(_CPUS[0], _CPUS[:3])], 4),
    "4x3": ([(_CPUS[0], _CPUS)], 3),
    "two_hosts": ([(_CPUS[0], _CPUS[:1]), (_CPUS[1], _CPUS[1:])], 3),
}


def _session():
    config = v1.ConfigProto(device_count={"CPU": len(_CPUS)})
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return v1.Session(config=config)


def _read(source, steps, *, layout="4x3", position=0, limit=None, **options):
    """The features, labels and weights of so many steps, joined, and each `first`."""
    groups, batch_size = _LAYOUTS[layout]
    with tf.Graph().as_default(), _session() as session:
        where = v1.placeholder_with_default(tf.constant(position, tf.int64), [])
        feed = source.feed(
            groups, batch_size=batch_size, position=where, limit=limit, **options
        )
        # Elsewhere first: the initializer may be run again, in the middle of things.
        session.run(feed.initializer, {where: 1})
        session.run([feed.batches, feed.step_op])
        session.run(feed.initializer)
        taken = [session.run([feed.batches, feed.step_op])[0] for _ in range(steps)]
    batches = [batch for step in taken for batch in step]
    joined = [np.concatenate([batch[part] for batch in batches]) for part in range(3)]
    return *joined, [int(batch.first) for batch in batches]


def _distorted(training=True, augment=True):
    """A source of ten images with distortions."""
    images = np.random.default_rng(0).integers(0, 256, (10, 32, 32, 3), np.uint8)
    request = Request(shape=(32, 32, 3), preprocessing="cifar", augment=augment, seed=5)
    return inputs.from_arrays(
        images, np.arange(10), num_classes=10, request=request, training=training
    )


def _synthetic():
    return inputs.get("synthetic", Request(shape=(4, 5, 3), num_classes=7, seed=5))


class FeedTest(parameterized.TestCase, tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.one_tower = _read(_distorted(), 4, layout="1x12")[:3]

    @parameterized.parameters(
        ("3x4", False), ("4x3", True), ("two_hosts", False), ("two_hosts", True)
    )
    def test_the_stream_is_that_of_one_tower(self, layout, stage):
        parts = _read(_distorted(), 3, layout=layout, stage=stage)
        for whole, part in zip(self.one_tower, parts):
            self.assertAllEqual(part, whole[:36])
        batch_size = _LAYOUTS[layout][1]
        self.assertAllEqual(parts[3], np.arange(0, 36, batch_size))

    @parameterized.parameters("1x12", "4x3", "two_hosts")
    def test_goes_on_from_any_position(self, layout):
        rest = _read(_distorted(), 2, layout=layout, position=17)
        for whole, part in zip(self.one_tower, rest):
            self.assertAllEqual(part, whole[17 : 17 + 24])
        self.assertEqual(rest[3][0], 17)

    @parameterized.parameters("3x4", "two_hosts")
    def test_evaluation_counts_every_example_once(self, layout):
        source = _distorted(training=False)
        features, labels, weights, _ = _read(
            source, 2, layout=layout, limit=source.num_examples
        )
        self.assertAllEqual(weights, [1] * 10 + [0] * 14)
        self.assertAllEqual(labels[:10], np.arange(10))
        self.assertAllInRange(features, -3, 3)  # finite where the weight is 0 too

    def test_distortions_can_be_left_out(self):
        labels = self.one_tower[1][:12]
        plain = _read(_distorted(augment=False), 1)
        as_they_are = _read(_distorted(training=False), 1)
        self.assertAllEqual(plain[1], labels)
        self.assertNotAllEqual(plain[1], as_they_are[1])
        self.assertAllEqual(plain[0][0], as_they_are[0][plain[1][0]])

    def test_where_things_lie(self):
        with tf.Graph().as_default():
            feed = _distorted().feed(
                _LAYOUTS["4x3"][0],
                batch_size=3,
                position=tf.constant(0, tf.int64),
                stage=True,
            )
            for device, batch in zip(_CPUS, feed.batches):
                self.assertEqual(batch.features.device, device)
                self.assertEqual(batch.features.shape, [3, 32, 32, 3])
                self.assertEqual(batch.labels.dtype, tf.int32)
                self.assertEqual(batch.weights.device, _CPUS[0])
                self.assertEqual(batch.first.dtype, tf.int64)
            self.assertEmpty(v1.global_variables() + v1.local_variables())

    def test_gpus_are_staged_for(self):
        for device, staged in (("/device:GPU:0", True), ("/device:CPU:0", False)):
            with tf.Graph().as_default() as graph:
                _distorted().feed(
                    [(_CPUS[0], [device])],
                    batch_size=3,
                    position=tf.constant(0, tf.int64),
                )
                kinds = {op.type for op in graph.get_operations()}
                self.assertEqual("Unstage" in kinds, staged)

    def test_threads_of_its_own(self):
        request = Request(shape=(4, 4, 1), threads=1, prefetch=3)
        images = np.zeros((5, 4, 4, 1), np.float32)
        source = inputs.from_arrays(
            images, np.arange(5), num_classes=5, request=request, training=False
        )
        self.assertAllEqual(_read(source, 1)[1], np.arange(12) % 5)


class SyntheticTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters("3x4", "two_hosts")
    def test_rows_do_not_depend_on_the_layout(self, layout):
        whole = _read(_synthetic(), 2, layout="1x12", position=24, limit=40)
        parts = _read(_synthetic(), 2, layout=layout, position=24, limit=40)
        for one, other in zip(whole[:3], parts[:3]):
            self.assertAllEqual(one, other)
        self.assertAllEqual(whole[0][:12], whole[0][12:])
        self.assertAllEqual(whole[2], [1] * 16 + [0] * 8)
        self.assertAllEqual(parts[3], np.arange(24, 48, _LAYOUTS[layout][1]))

    def test_looks_like_scaled_images(self):
        request = Request(shape=(50, 50, 3), num_classes=4)
        source = inputs.get("synthetic", request)
        features, labels, _, _ = _read(source, 1)
        self.assertEqual((source.num_classes, source.shape), (4, (50, 50, 3)))
        self.assertAllInRange(features, 7 / 127.5 - 1.001, 247 / 127.5 - 0.999)
        self.assertAllClose(features.mean(), -0.5 / 127.5, atol=0.01)
        # A normal distribution cut off at 2 deviations keeps 0.88 of its deviation.
        self.assertAllClose(features.std(), 0.88 * 60 / 127.5, atol=0.01)
        self.assertContainsSubset(labels, range(4))
        self.assertGreater(len(set(labels)), 1)


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
        self.assertEqual((train.shape, train.num_classes), ((8, 8, 1), 10))
        features, labels, _, _ = _read(train, 2)
        self.assertAllInRange(features, -1, 1)
        self.assertNotAllEqual(labels[:12], np.sort(labels[:12]))
        part = inputs.get("digits", self.request, split="train[:100]", training=False)
        self.assertEqual(part.num_examples, 100)

    def test_every_row_of_the_table_is_tested(self):
        self.assertCountEqual(inputs.DATASETS, ["digits", "synthetic"])

    def test_images_that_do_not_fit(self):
        request = Request(
            shape=(32, 32, 3), preprocessing="cifar", data_dir=self.request.data_dir
        )
        with self.assertRaisesRegex(
            ValueError, "digits/1.0.0: images of 8x8x1 do not fit .* 32x32x3"
        ):
            inputs.get("digits", request)

    def test_unknown_names(self):
        with self.assertRaisesRegex(ValueError, "did you mean mnist"):
            inputs.get("mnits", self.request)

    @parameterized.parameters(
        ("truncate", 0), ("truncate", 2**28), ("flip", 0), ("remove", 2**28)
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
        if damage == "remove":
            os.remove(file)
        found = inputs.get("digits", Request(shape=(8, 8, 1), data_dir=folder))
        source = inputs.DatasetSource(
            found.records, Request(shape=(8, 8, 1)), memory=memory
        )
        with self.assertRaises(tf.errors.OpError) as caught:
            _read(source, 130)
        sentence = inputs.explain(caught.exception, source, _synthetic(), found)
        self.assertRegex(sentence, rf"damaged .*: remove {folder}/digits/1.0.0 and")
        self.assertNotIn("\n", sentence)


class OwnDataTest(tf.test.TestCase):
    def test_arrays_are_taken_as_they_are(self):
        images = np.random.default_rng(0).normal(size=(5, 3, 4, 2)).astype(np.float32)
        source = inputs.from_arrays(images, [4, 3, 2, 1, 0], num_classes=6)
        self.assertEqual((source.num_examples, source.num_classes), (5, 6))
        self.assertEqual((source.name, source.path), ("arrays", ""))
        features, labels, weights, _ = _read(source, 5)
        self.assertAllEqual(features, images[4 - labels])
        self.assertAllEqual(weights, np.ones(60))
        self.assertAllEqual(np.bincount(labels), [12] * 5)

    def test_a_dataset(self):
        def make():
            return tf.data.Dataset.range(8).map(
                lambda i: (tf.fill([2, 2, 1], tf.cast(i * 10, tf.uint8)), i)
            )

        source = inputs.from_dataset(
            make, num_examples=8, num_classes=8, training=False
        )
        features, labels, _, _ = _read(source, 1)
        self.assertAllEqual(labels, np.arange(12) % 8)
        self.assertAllClose(features[:, 0, 0, 0], labels * 10 / 127.5 - 1)


if __name__ == "__main__":
    tf.test.main()
