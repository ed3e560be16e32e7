"""Examples that cannot be read: named, or left out with weight 0."""

import os
import pathlib

import numpy as np
import tensorflow as tf

from tests import batch_reader, make_imagenet
from tests.image_folders import ImageFoldersTestCase, sentence_of
from towers.data import inputs


class DamagedExamplesTest(ImageFoldersTestCase):
    def test_a_damaged_image_is_named(self):
        folder = self.folder("folders")
        path = os.path.join(folder, "train", "n01443537", "00009.JPEG")
        with open(path, "r+b") as file:
            file.truncate(os.path.getsize(path) // 2)
        source = self.source(folder)
        try:
            batch_reader.read(source, 2, layout="1x12")
        except tf.errors.OpError as error:
            sentence = inputs.explain(error, source)
        self.assertRegex(sentence, rf"damaged \({path}: .*JPEG.*max_damaged_examples=1")

    def test_damaged_examples_have_weight_0_up_to_a_number(self):
        folder = self.folder("folders")
        bad = ("n01443537/00009.JPEG", "n01440764/00004.JPEG")
        for name in bad:
            path = pathlib.Path(folder, "train", name)
            path.write_bytes(path.read_bytes()[:300])
        sources = [self.source(folder, max_damaged=most) for most in (2, 1)]
        whole = batch_reader.read(self.source(str(self.root / "folders")), 4)
        features, labels, weights, _ = batch_reader.read(sources[0], 4, layout="4x3")
        self.assertAllEqual(np.sum(weights == 0), 4)  # in two epochs
        self.assertAllEqual(features[weights == 1], whole[0][weights == 1])
        self.assertAllEqual(labels[weights == 1], whole[1][weights == 1])
        rest = batch_reader.read(sources[0], 1, layout="1x12", position=20)
        self.assertAllEqual(rest[2], weights[20:32])
        with self.assertRaisesRegex(tf.errors.OpError, "more than max_damaged_ex") as e:
            batch_reader.read(sources[1], 2, layout="1x12")
        self.assertStartsWith(inputs.explain(e.exception, sources[1]), "more than max")

    def _labels(self, *labels, box=(0.0, 0.0, 1.0, 1.0)):
        """A folder with one file of records of these labels; that of 2 has a box."""
        folder = self.create_tempdir().full_path
        image = make_imagenet.jpegs(1, 20, 20)[0]
        with tf.io.TFRecordWriter(f"{folder}/train-00000-of-00001") as file:
            for label in labels:
                boxes = [box] if label == 2 else []
                file.write(make_imagenet.example(image, label, boxes))
        return folder

    def test_labels_out_of_range(self):
        source = self.source(self._labels(*[1] * 30, 0, 1000))
        with self.assertRaises(tf.errors.OpError) as caught:
            batch_reader.read(source, 16, layout="1x2")
        sentence = inputs.explain(caught.exception, source)
        self.assertIn("record 30, counted from 0, of", sentence)
        self.assertIn("label 0 is not in [1, 1001)", sentence)

    def test_a_box_outside_of_the_image(self):
        box = (0.0, 0.0, 1.0, 1.5)
        source = self.source(self._labels(*[1] * 30, 2, *[3] * 10, box=box))
        with self.assertRaises(tf.errors.OpError) as caught:
            batch_reader.read(source, 4, layout="1x12")
        self.assertRegex(
            inputs.explain(caught.exception, source),
            r"\(record 30, counted from 0, of \S+: it is whole, but its boxes",
        )

    def test_some_examples_are_read_before_the_first_step(self):
        folder = self._labels(1000, 0)
        sentence = sentence_of(lambda: self.source(folder))
        self.assertRegex(
            sentence,
            r"^the data set is damaged \(record 1, counted from 0, of .*/train-00000-of"
            r"-00001: label 0 is not in \[1, 1001\)\); write the labels anew"
            ", or go on without it by max_damaged_examples=1$",
        )
        self.assertEqual(self.source(folder, max_damaged=1).num_examples, 2)
