"""The text that ships with the project, as TFDS sees it."""

import hashlib

import tensorflow as tf
import tensorflow_datasets as tfds

from towers.data import shakespeare


class ShakespeareTest(tf.test.TestCase):
    def test_the_text_is_the_one_that_others_report_on(self):
        text = shakespeare.read_text()
        self.assertLen(text, 1_115_394)
        self.assertLen(set(text), 65)
        self.assertEqual(
            hashlib.sha256(text).hexdigest(),
            "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
        )

    def test_tfds_prepares_and_reads_it_by_name(self):
        builder = tfds.builder("shakespeare", data_dir=self.create_tempdir().full_path)
        self.assertIsInstance(builder, shakespeare.Shakespeare)
        with tf.Graph().as_default():
            builder.download_and_prepare()
            parts = [
                next(iter(tfds.as_numpy(builder.as_dataset(split=split))))["text"]
                for split in ("train", "validation")
            ]
        self.assertEqual([len(part) for part in parts], [1_003_854, 111_540])
        self.assertEqual(b"".join(parts), shakespeare.read_text())
