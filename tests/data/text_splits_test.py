"""The parts of a text that its splits read."""

import os
import pathlib
import re
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import make_imagenet
from towers.data import text_splits, tfds_records


class WriteTest(tf.test.TestCase):
    def test_each_text_is_a_line_also_at_the_end_of_a_batch(self):
        path = pathlib.Path(self.create_tempdir()) / "text"
        batches = [{"note": np.array(texts)} for texts in ([b"a", b"b"], [b"c"])]
        with mock.patch.object(tfds_records, "read_batches", return_value=batches):
            text_splits._write(path, None, None)
        self.assertEqual(path.read_bytes(), b"a\nb\nc")


class FolderTest(parameterized.TestCase, tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)

    def write(self, name):
        (self.folder / name).write_text("a text")

    def split(self, name):
        return text_splits.find(os.fspath(self.folder)).split(name)

    @parameterized.parameters(
        ("test", "test.txt"),
        ("test", "ptb.test.txt"),
        ("test", "TEST"),
        ("test", "my_test-1"),
        ("validation", "valid.txt"),
        ("validation", "wiki.validation.tokens"),
        ("valid", "valid.txt"),
        ("dev-small", "a.dev-small.txt"),
        ("test", "contest.txt", False),
        ("test", "tests.txt", False),
        ("test", "test2.txt", False),
        ("validation", "invalid.txt", False),
        ("train", "training.txt", False),
        ("train", "entraîné.txt", False),
        ("a.c", "abc.txt", False),
        ("test", ".test.txt.swp", False),
    )
    def test_a_split_is_a_word_of_its_file_s_name(self, split, file, fits=True):
        self.write(file)
        if fits:
            self.assertEqual(self.split(split).path, os.fspath(self.folder / file))
        else:
            self.assertIsNone(self.split(split))

    def test_ptb_and_lm1b_as_unpacked(self):
        make_imagenet.write_texts(self.folder)
        ptb = text_splits.find(os.fspath(self.folder / "ptb"))
        for split, name in (("train", "train"), ("validation", "valid")):
            self.assertEqual(os.path.basename(ptb.split(split).path), f"ptb.{name}.txt")
        lm1b = text_splits.find(os.fspath(self.folder / "lm1b"))
        for split, shards in (
            ("train", [b"0", b"1", b"2"]),
            ("validation", [b"1"]),
            ("test", [b"0"]),
        ):
            text = lm1b.split(split).read()
            self.assertEqual(re.findall(rb"shard (\d)", text), shards)
        shard = self.folder / "lm1b/training-monolingual.tokenized.shuffled"
        (shard / "news.en-00001-of-00003").write_text("shard 7")
        self.assertIn(b"shard 7", lm1b.split("train").read())
        self.assertIsNone(lm1b.split("valid"))
        os.remove(shard / "news.en-00000-of-00003")  # which the benchmark holds out
        self.assertIn(b"shard 7", lm1b.split("train").read())
        os.remove(shard / "news.en-00002-of-00003")
        words = (
            "data_name=.*/lm1b: news.en-00002-of-00003 is missing: 1 of 2 files; copy"
        )
        with self.assertRaisesRegex(ValueError, words):
            lm1b.split("train")
        for name in os.listdir(held := str(shard).replace("training", "heldout")):
            os.remove(os.path.join(held, name))
        self.assertIsNone(lm1b.split("test"))

    def test_two_files_for_one_split(self):
        for name in ("train.txt", "contest.txt", "valid.txt", "ptb.validation.txt"):
            self.write(name)
        self.split("train")
        with self.assertRaisesRegex(
            ValueError,
            "which is the split validation, ptb.validation.txt or valid.txt[?] Leave "
            "one in the folder, or give the others other names$",
        ):
            self.split("validation")

    def test_one_file_for_two_splits(self):
        self.write("train-and-test.txt")
        for split, other in (("train", "test"), ("test", "train")):
            with self.assertRaisesRegex(
                ValueError, f"which split is train-and-test.txt, {split} or {other}[?]"
            ):
                self.split(split)
