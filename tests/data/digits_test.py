"""The digits that ship with the project, as TFDS sees them."""

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

from towers.data import digits


class DigitsTest(tf.test.TestCase):
    def test_the_file_is_the_one_of_scikit_learn(self):
        table = digits.read_table()
        self.assertEqual(table.shape, (1797, 65))
        self.assertEqual(table[:, :64].max(), 16)
        self.assertAllEqual(table[:10, 64], np.arange(10))
        counts = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
        self.assertAllEqual(np.bincount(table[:, 64]), counts)

    def test_a_fifth_of_each_digit_is_held_out(self):
        labels = digits.read_table()[:, 64]
        held_out = digits.hold_out(labels)
        self.assertEqual(held_out.sum(), 355)
        self.assertAllEqual(np.bincount(labels[held_out]), np.bincount(labels) // 5)

    def test_images_use_the_whole_range(self):
        picture = digits.image(np.array([0, 8, 16] + 62 * [4], np.uint8))
        self.assertEqual(picture.shape, (8, 8, 1))
        self.assertEqual(picture.dtype, np.uint8)
        self.assertAllEqual(picture.ravel()[:4], [0, 128, 255, 64])

    def test_tfds_prepares_and_reads_it_by_name(self):
        builder = tfds.builder("digits", data_dir=self.create_tempdir().full_path)
        self.assertIsInstance(builder, digits.Digits)
        with tf.Graph().as_default():
            builder.download_and_prepare()
        counts = {
            name: split.num_examples for name, split in builder.info.splits.items()
        }
        self.assertEqual(counts, {"train": 1442, "test": 355})
        with tf.Graph().as_default():
            read = tfds.as_numpy(builder.as_dataset(split="test"))
            actual = sorted((int(x["label"]), x["image"].tobytes()) for x in read)
        table = digits.read_table()
        wanted = sorted(
            (int(row[64]), digits.image(row).tobytes())
            for row in table[digits.hold_out(table[:, 64])]
        )
        self.assertEqual(actual, wanted)
