"""Texts as windows of tokens: of files, folders and TFDS data sets."""

import builtins
import bz2
import gzip
import lzma
import os
import pathlib
from unittest import mock

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds
from absl.testing import parameterized

from tests import batch_reader
from towers.data import catalog, folders, inputs, text
from towers.data.preprocessing import PREPROCESSING
from towers.data.source import Request

LINES = b"the cat saw the dog\nthe dog saw a cat\n\nno cat sat\n"


class Notes(tfds.core.GeneratorBasedBuilder):
    """A TFDS data set with several texts in a split."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        text = tfds.features.Text()
        features = {"id": text, "note": text, "stars": np.int64}
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict(features),
            supervised_keys=("note", "stars"),
        )

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for index in range(3):
            yield index, {"id": "", "note": f"note {index}", "stars": index}


def _request(length, tokens="bytes", **options):
    return Request(shape=(length,), kind="tokens", preprocessing=tokens, **options)


def _windows(records):
    """Features and labels of all windows, in the text's order."""
    source = inputs.DatasetSource(
        records, _request(records.shape[0]), training=False, memory=0
    )
    features, labels, _, _ = batch_reader.read(source, -(-records.num_examples // 12))
    count = records.num_examples
    return features[:count], labels[:count]


class Pictures(Notes):
    """One whose examples are known by a text, which is none to be learnt."""

    def _info(self):
        text = tfds.features.Text()
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict({"id": text, "stars": np.int64}),
            supervised_keys=("stars", "stars"),
        )


class TextTestCase(parameterized.TestCase, tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)

    def write(self, name, content=LINES):
        path = self.folder / name
        path.write_bytes(content)
        return os.fspath(path)


class BytesTest(TextTestCase):
    def test_every_byte_but_the_first_is_predicted_once(self):
        content = bytes(range(256))
        path = self.write("a.txt", content)
        records = text.find(path, _request(10), splits=("train",))
        cut = 256 * 9 // 10
        self.assertEqual(records.num_examples, (cut - 1) // 10)
        self.assertEqual((records.num_classes, records.shape), (256, (10,)))
        features, labels = _windows(records)
        self.assertAllEqual(features.ravel(), np.arange(220))
        self.assertAllEqual(labels.ravel(), np.arange(1, 221))
        rest = text.find(path, _request(5), splits=("validation", "test"))
        features, labels = _windows(rest)
        self.assertAllEqual(features.ravel(), np.arange(cut, cut + 25))
        self.assertAllEqual(labels.ravel(), np.arange(cut + 1, cut + 26))

    @parameterized.parameters(0, 2**28)
    def test_every_epoch_has_all_windows_in_another_order(self, memory):
        path = self.write("a.txt", bytes(range(256)) * 2)
        request = _request(6)
        records = text.find(path, request, splits=("train",))
        count = records.num_examples
        self.assertEqual(count, 76)
        source = inputs.DatasetSource(records, request, memory=memory)
        features, labels, _, _ = batch_reader.read(source, 13)
        self.assertAllEqual((features + 1) % 256, labels)
        epochs = [features[:count, 0], features[count : 2 * count, 0]]
        for epoch in epochs:
            starts = np.arange(0, 6 * count, 6) % 256
            self.assertAllEqual(np.sort(epoch), np.sort(starts))
        self.assertNotAllEqual(*epochs)
        # The stream is the same from each position and for each layout of towers.
        for layout in ("1x12", "two_hosts"):
            again = batch_reader.read(source, 3, layout=layout, position=60)
            self.assertAllEqual(again[0], features[60:96])

    def test_a_text_that_is_too_short(self):
        path = self.write("a.txt", b"x" * 200)
        self.assertEqual(
            text.find(path, _request(32), splits=("train",)).num_examples, 5
        )
        with self.assertRaisesRegex(
            ValueError,
            f"^data_name={path}: its split validation, of 20 bytes, is too short for "
            "a window of 32 tokens and the one after it; name a longer text$",
        ):
            text.find(path, _request(32), splits=("test", "validation"))


class WordsTest(TextTestCase):
    def test_words_are_numbered_by_how_often_they_come(self):
        words = text.vocabulary(LINES.split(), 99)
        self.assertEqual(list(words)[:3], [b"cat", b"the", b"dog"])
        self.assertEqual(list(words)[-1], b"<unk>")
        few = text.vocabulary(LINES.split(), 3)
        self.assertEqual(few, (b"cat", b"the", b"<unk>"))

    def test_a_text_with_its_own_unknown_word_keeps_its_number_of_words(self):
        words = text.vocabulary(b"<unk> a <unk> b".split(), 9)
        self.assertEqual(words, (b"<unk>", b"a", b"b"))

    def test_validation_is_told_in_the_words_of_training(self):
        self.write("ptb.train.txt")
        self.write("ptb.valid.txt", b"the cow saw a\ncat\n")
        train, valid = (
            text.find(f"{self.folder}", _request(3, "words", num_classes=7), splits=[s])
            for s in ("train", "validation")
        )
        # cat 3, the 3, <eos> 4; dog, saw 2; a, no, sat 1 of which one is kept.
        self.assertEqual((train.num_classes, valid.num_classes), (7, 7))
        ids = {w: k for k, w in enumerate(["<eos>", "cat", "the", "dog", "saw", "a"])}
        features, labels = _windows(valid)
        self.assertAllEqual(
            features, [[ids["the"], 6, ids["saw"]], [ids["a"], 0, ids["cat"]]]
        )
        self.assertAllEqual(labels, [[6, ids["saw"], ids["a"]], [0, ids["cat"], 0]])

    def test_another_text_is_told_in_the_words_that_are_given(self):
        path = self.write("a.txt")
        words = (b"dog", b"<unk>", b"the")
        request = _request(3, "words", vocabulary=words)
        records = text.find(path, request, splits=("train",))
        self.assertEqual((records.vocabulary, records.num_classes), (words, 3))
        features, _ = _windows(records)
        self.assertAllEqual(features.ravel()[:6], [2, 1, 1, 2, 0, 1])

    def test_texts_that_would_not_fit_into_memory(self):
        path = self.write("a.txt")
        with (
            mock.patch.object(text, "_MOST_BYTES_IN_MEMORY", 10),
            self.assertRaisesRegex(ValueError, "too large to be cut into words"),
        ):
            text.find(path, _request(3, "words"), splits=("train",))


class FindTest(TextTestCase):
    def test_every_row_of_the_table_is_tested(self):
        self.assertCountEqual(text.TOKENS, ["bytes", "words"])
        rows = PREPROCESSING.items()
        of_tokens = [name for name, row in rows if row.kind == "tokens"]
        self.assertCountEqual(text.TOKENS, of_tokens)

    def test_a_tfds_data_set_is_one_text_with_a_line_for_each_example(self):
        request = _request(4, data_dir=os.fspath(self.folder))
        for _ in range(2):  # the second time it finds the file
            records = text.find("notes", request, splits=("train",))
            self.assertEqual(records.name, "notes/1.0.0")
            content = pathlib.Path(records.path).read_bytes()
            self.assertCountEqual(
                content.split(b"\n"), [b"note 0", b"note 1", b"note 2"]
            )
        part = text.find("notes", request, splits=("none", "train[:2]"))
        self.assertLen(pathlib.Path(part.path).read_bytes().split(b"\n"), 2)

    def test_where_the_data_set_cannot_be_written_the_text_goes_elsewhere(self):
        data, other = self.folder / "data", self.folder / "other"
        data.mkdir()
        request = _request(4, data_dir=os.fspath(data))
        catalog.prepared("notes", os.fspath(data), lambda name, info: None)
        with (
            mock.patch.object(os, "access", return_value=False),
            mock.patch.object(folders, "temporary_root", return_value=other),
        ):
            records = text.find("notes", request, splits=("train",))
        self.assertEqual(records.path, f"{other}/notes/1.0.0/train.txt")

    @parameterized.parameters(
        ("/no/such/file.txt", "No such file or directory"),
        ("./no_such.txt", "No such file or directory"),
        ("no_such.txt", "No such file or directory"),
        ("notez", "no such data set; did you mean notes"),
        ("pictures", "not a text data set; an example has id, stars"),
    )
    def test_names_of_nothing(self, name, sentence):
        request = _request(4, data_dir=os.fspath(self.folder))
        with self.assertRaisesRegex(ValueError, f"data_name={name}: .*{sentence}"):
            text.find(name, request, splits=("train",))

    @parameterized.parameters(
        ("gzip", gzip.compress), ("bzip2", bz2.compress), ("xz", lzma.compress)
    )
    def test_compressed_texts(self, kind, compress):
        path = self.write("train.txt", compress(LINES))
        for name in (path, os.fspath(self.folder)):
            with self.assertRaisesRegex(
                ValueError, f"^data_name={name}: {path} is compressed with {kind}; "
            ):
                text.find(name, _request(4), splits=("train",))
        with self.assertRaisesRegex(ValueError, "is compressed"):
            text.find(path, _request(1), splits=("validation",))

    @parameterized.parameters(
        ("utf-16", r"is in UTF-16, .*`iconv -f UTF-16 -t UTF-8`"),
        ("utf-32", "is in UTF-32, .*-f UTF-32"),
        ("utf-16-le", "has NULs, as UTF-16 and binary files have, .*-f UTF-16LE"),
        ("utf-16-be", "has NULs"),
    )
    def test_texts_with_several_bytes_for_a_letter(self, code, sentence):
        path = self.write("train.txt", LINES.decode().encode(code))
        for preprocessing in "bytes", "words":
            for split in "train", "validation":
                with self.assertRaisesRegex(
                    ValueError, f"^data_name={path}: {path} {sentence}.*, and name "
                ):
                    text.find(path, _request(1, preprocessing), splits=(split,))

    def test_letters_of_several_bytes_in_utf_8(self):
        path = self.write("train.txt", "\ufefféß漢字🙂\n".encode() * 9)
        self.assertEqual(
            text.find(path, _request(2), splits=("train",)).num_examples, 72
        )

    def test_splits_that_are_not_there(self):
        path = self.write("a.txt")
        with self.assertRaisesRegex(ValueError, "no split test, only train, validat"):
            text.find(path, _request(4), splits=("test",))
        with self.assertRaisesRegex(ValueError, "no split test, only a.txt"):
            text.find(os.fspath(self.folder), _request(4), splits=("test",))
        empty = self.folder / "empty"
        empty.mkdir()
        with self.assertRaisesRegex(ValueError, "no split train, only an empty folder"):
            text.find(os.fspath(empty), _request(4), splits=("train",))
        (self.folder / "train").mkdir()
        with self.assertRaisesRegex(ValueError, "no split train, only a.txt; name one"):
            text.find(os.fspath(self.folder), _request(4), splits=("train",))
        self.write("b.txt.train")
        self.write("a.txt.train")
        with self.assertRaisesRegex(ValueError, "which is the split train, a.* or b.*"):
            text.find(os.fspath(self.folder), _request(4), splits=("train",))

    def test_splits_that_are_not_taken_are_not_looked_up(self):
        for name in ("train", "valid_a", "valid-b"):
            self.write(name)
        records = text.find(
            os.fspath(self.folder), _request(4), splits=("train", "validation")
        )
        self.assertEqual(records.path, os.fspath(self.folder / "train"))

    def test_slices_count_windows_of_a_single_text(self):
        path = self.write("a.txt", bytes(range(200)))
        self.write("valid.txt", bytes(range(100, 200)))
        folder = os.fspath(self.folder)
        for name, split, numbers in (
            (path, "train", range(17)),
            (path, "train[:3]", range(3)),
            (path, "train[-2:]", range(15, 17)),
            (path, "train[50%:90%]", range(8, 15)),
            (path, "train[90%:]", range(15, 17)),
            (path, "train[4:17]", range(4, 17)),
            (folder, "validation[1:3]", range(11, 13)),
        ):
            with self.subTest(f"{name} {split}"):
                records = text.find(name, _request(10), splits=(split,))
                self.assertLen(numbers, records.num_examples)
                features, labels = _windows(records)
                expected = np.add.outer(10 * np.array(numbers), np.arange(10))
                self.assertAllEqual(features, expected)
                self.assertAllEqual(labels, expected + 1)
                source = inputs.DatasetSource(records, _request(10), memory=0)
                features, _, _, _ = batch_reader.read(source, 2)
                self.assertContainsSubset(features.ravel(), expected.ravel())

    def test_slices_count_windows_of_words_by_the_words_of_all(self):
        path = self.write("a.txt", LINES * 10)
        whole, part = (
            text.find(path, _request(3, "words", num_classes=9), splits=(split,))
            for split in ("train", "train[2:5]")
        )
        self.assertEqual((part.num_examples, part.vocabulary), (3, whole.vocabulary))
        for window, all_ in zip(_windows(part), _windows(whole)):
            self.assertAllEqual(window, all_[2:5])

    @parameterized.parameters(
        ("validation[:37]", "there are only 1 windows"),
        ("train[:99]", "there are only 9 windows"),
        ("train[-99:]", "there are only 9 windows"),
        ("train[5:2]", "it is empty; there are 9 windows"),
        ("train[:0]", "it is empty; there are 9 windows"),
        ("train[:3%]", "it is empty; there are 9 windows"),
        ("train[3]", "not a slice as TFDS has it, "),
        ("train[a:b]", "not a slice as TFDS has it, "),
        ("train[]", "not a slice as TFDS has it, "),
    )
    def test_slices_that_are_not_there(self, split, reason):
        path = self.write("a.txt", b"x" * 100)
        with self.assertRaises(ValueError) as caught:
            text.find(path, _request(9), splits=(split,))
        self.assertStartsWith(
            str(caught.exception), f"data_name={path}: split {split}: {reason}"
        )

    def test_slices_of_splits_that_are_not_there(self):
        path = self.write("a.txt")
        for split in ("test[:3]", "train+validation", "all"):
            with self.assertRaisesRegex(ValueError, "there is no split .*, only train"):
                text.find(path, _request(4), splits=(split,))

    def test_slices_of_tfds_data_sets(self):
        request = _request(4, data_dir=os.fspath(self.folder))
        for split, reason in (
            ("train[2:2]", "there is no text in split train.2:2."),
            ("train[:9]", "split train.:9.: Requested slice .* with 3 examples"),
            ("train[x]", "split train.x.: Unrecognized split format"),
            ("all[:2]", "split all.:2.: .all. does not support slice"),
        ):
            with self.subTest(split), self.assertRaisesRegex(ValueError, reason):
                text.find("notes", request, splits=(split,))
        records = text.find("shakespeare", request, splits=("validation[:37]",))
        self.assertEqual(records.num_examples, 37)

    def test_texts_that_cannot_be_read(self):
        path = self.write("train.txt")
        refused = PermissionError(13, "Permission denied", path)
        for name, reason in ((path, ""), (os.fspath(self.folder), f"{path}: ")):
            with (
                mock.patch.object(builtins, "open", side_effect=refused),
                self.assertRaises(ValueError) as caught,
            ):
                text.find(name, _request(4), splits=("train",))
            self.assertEqual(
                str(caught.exception), f"data_name={name}: {reason}Permission denied"
            )
        pipe = os.fspath(self.folder / "pipe")
        os.mkfifo(pipe)
        for name, reason in (
            (pipe, "is neither a plain file nor a folder"),
            (f"/{'x' * 999}", "File name too long"),
            ("~nobody-of-this-name/a", "No such file or directory"),
        ):
            with self.assertRaisesRegex(ValueError, f"^data_name={name}: {reason}$"):
                text.find(name, _request(4), splits=("train",))
