"""Images in files: TFRecords, folders of classes and CIFAR's batches."""

import os
import shutil

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import batch_reader
from tests.image_folders import ImageFoldersTestCase, decoded, sentence_of
from towers.data import image_layouts

v1 = tf.compat.v1


class ImageLayoutsTest(ImageFoldersTestCase):
    def test_tfrecords_and_folders_have_the_same_images(self):
        of_records = image_layouts.find(
            "imagenet", splits=("train",), data_dir=str(self.root / "tfrecords")
        )
        of_folders = image_layouts.find(str(self.root / "folders"), splits=("train",))
        self.assertEqual((of_records.num_classes, of_records.num_examples), (1000, 24))
        self.assertEqual((of_folders.num_classes, of_folders.num_examples), (4, 24))
        images = {
            label: [image for image, other in decoded(of_records) if other == label]
            for label in range(4)
        }
        for image, label in decoded(of_folders):
            self.assertAllEqual(image, images[label].pop(0))

    def test_boxes_of_tfrecords(self):
        records = image_layouts.find(
            str(self.root / "tfrecords"), splits=("validation", "test")
        )
        with tf.Graph().as_default(), v1.Session() as session:
            image, boxes, label = records.encoded(
                records.by_number(tf.constant(2, tf.int64)).get_single_element()
            )
            image, boxes, label = session.run([image, boxes, label])
        self.assertAllClose(boxes, [[0.2, 0.3, 0.7, 0.8]] * 2)
        self.assertEqual((image[:3], label), (b"\xff\xd8\xff", 2))

    @parameterized.parameters("tfrecords", "folders")
    def test_each_example_once_in_an_epoch_on_any_towers(self, layout):
        source = self.source(str(self.root / layout))
        whole = batch_reader.read(source, 4, layout="1x12")
        for other in ("4x3", "two_hosts"):
            for ours, theirs in zip(batch_reader.read(source, 4, layout=other), whole):
                if isinstance(ours, np.ndarray):
                    self.assertAllEqual(ours, theirs)
        labels = whole[1]
        self.assertAllEqual(np.bincount(labels[:24])[:4], [6] * 4)
        self.assertAllEqual(np.bincount(labels[24:])[:4], [6] * 4)
        self.assertNotAllEqual(labels[:24], labels[24:])

    def test_a_run_goes_on_at_any_example(self):
        source = self.source(str(self.root / "tfrecords"))
        whole = batch_reader.read(source, 4, layout="1x12")
        rest = batch_reader.read(source, 2, layout="4x3", position=24)
        for part, of_rest in zip(whole[:3], rest[:3]):
            self.assertAllEqual(part[24:], of_rest)

    def test_evaluation_is_in_order(self):
        source = self.source(str(self.root / "tfrecords"), training=False)
        self.assertEqual(source.num_examples, 6)
        labels = batch_reader.read(source, 1, layout="1x12", limit=6)[1]
        self.assertAllEqual(labels, [0, 1, 2, 3, 0, 1] * 2)

    def test_slices(self):
        records = image_layouts.find(
            str(self.root / "tfrecords"), splits=("train[25%:50%]",)
        )
        self.assertEqual(records.num_examples, 6)
        labels = [label for _, label in decoded(records)]
        self.assertAllEqual(labels, [2, 3, 0, 1, 2, 3])
        for split, words in (("train[50:60]", "only 24"), ("train[5]", "not a slice")):
            self.assertIn(
                words,
                sentence_of(
                    lambda split=split: image_layouts.find(
                        str(self.root / "folders"), splits=(split,)
                    )
                ),
            )

    def test_slices_of_folders(self):
        whole, part = (
            decoded(image_layouts.find(str(self.root / "folders"), splits=(split,)))
            for split in ("train", "train[25%:50%]")
        )
        for (image, label), (wanted, other) in zip(part, whole[6:12], strict=True):
            self.assertAllEqual(image, wanted)
            self.assertEqual(label, other)

    def test_a_background_class(self):
        source = self.source(str(self.root / "tfrecords"), background_class=True)
        self.assertEqual(source.num_classes, 1001)
        labels = batch_reader.read(source, 2, layout="1x12")[1]
        self.assertAllEqual(np.bincount(labels), [0, 6, 6, 6, 6])
        with self.assertRaisesRegex(ValueError, "background_class=True: is for Imag"):
            self.source(
                str(self.root / "cifar10"),
                name="cifar10",
                background_class=True,
                shape=(32, 32, 3),
                preprocessing="cifar",
            )

    def test_sentences_about_folders(self):
        shards = self.folder("tfrecords")
        os.remove(f"{shards}/train-00002-of-00004")
        empty, classes = self.create_tempdir().full_path, self.folder("folders")
        os.mkdir(f"{classes}/train/n99")
        stranger = self.folder("folders")
        shutil.copytree(f"{stranger}/train/n01440764", f"{stranger}/validation/zebra")
        mixed = self.folder("tfrecords")
        shutil.copy(f"{mixed}/train-00000-of-00004", f"{mixed}/train-00000-of-00001")
        for folder, name, words in (
            (shards, "imagenet", "train-00002-of-00004 is missing: 1 of 4 files of tr"),
            (mixed, "imagenet", "shards of two sets of train: 1 of 1 and 4 of 4"),
            (empty, "imagenet", "holds nothing, and not the files of imagenet"),
            (f"{empty}/none", "imagenet", "there is no such directory"),
            (
                str(self.root / "cifar10"),
                "imagenet",
                "holds cifar10's batches, and not",
            ),
            (shards, "cifar10", "holds TFRecords of train and validation, and not"),
            (str(self.root / "tfds"), "imagenet", "write imagenet2012 as data_name"),
            (classes, "imagenet", "the class .*/n99 has no images; remove its folder"),
            ("", "imagenet", "name their folder with data_dir, or .* imagenet2012"),
        ):
            sentence = sentence_of(
                lambda folder=folder, name=name: image_layouts.find(
                    name, splits=("train",), data_dir=folder
                )
            )
            self.assertRegex(sentence, words)
        for folder, splits, words in (
            (stranger, ("validation",), "validation has a class that train has not: z"),
            (stranger, ("test",), "there is no split test, only validation, train"),
        ):
            sentence = sentence_of(
                lambda folder=folder, splits=splits: image_layouts.find(
                    folder, splits=splits
                )
            )
            self.assertIn(words, sentence)

    def test_folders_without_splits(self):
        records = image_layouts.find(
            str(self.root / "folders" / "train"), splits=("train[:50%]",)
        )
        self.assertEqual((records.num_classes, records.num_examples), (4, 12))
