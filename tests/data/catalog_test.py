"""Data sets by name: prepared, or refused with a remedy."""

import contextlib
import io
import os
import pathlib
import shutil
import socket
import tempfile
import types
import urllib.request
from unittest import mock

import tensorflow as tf
import tensorflow_datasets as tfds
from absl.testing import parameterized

from towers.data import catalog


def _no_network():
    return mock.patch.object(socket, "create_connection", side_effect=OSError)


def _failing_download(error):
    return mock.patch.object(
        tfds.core.DatasetBuilder, "download_and_prepare", side_effect=error
    )


class CatalogTest(parameterized.TestCase, tf.test.TestCase):
    def setUp(self):
        super().setUp()
        root = tempfile.TemporaryDirectory()
        self.addCleanup(root.cleanup)
        self.root = root.name
        self._use_proxies({})

    def _use_proxies(self, proxies):
        patch = mock.patch.object(urllib.request, "getproxies", return_value=proxies)
        self.enter_context(patch)

    def _find(self, name, *splits):
        return catalog.find(name, splits=splits or ("train",), data_dir=self.root)

    def test_the_digits_are_prepared_in_silence_and_once(self):
        with (
            contextlib.redirect_stdout(io.StringIO()) as said,
            self.assertNoLogs("absl", "WARNING"),
        ):
            examples = self._find("digits")
        self.assertEqual(said.getvalue(), "")
        self.assertEqual(examples.path, os.path.join(self.root, "digits/1.0.0"))
        self.assertEqual(examples.shape, (8, 8, 1))
        self.assertEqual((examples.num_classes, examples.num_examples), (10, 1442))
        with _failing_download(AssertionError("prepared again")):
            self.assertEqual(self._find("digits", "test").num_examples, 355)
            self.assertEqual(
                self._find("digits:1.0.0", "train[:10%]").num_examples, 144
            )
            self.assertEqual(self._find("digits", "validation", "test")[2], 355)
            with self.assertRaisesRegex(
                ValueError, "no split validation, only train, test"
            ):
                self._find("digits", "validation")
            with self.assertRaisesRegex(ValueError, "did you mean digits"):
                self._find("digist")

    @parameterized.parameters(
        ("test", ("train",), "; name one with train_split$"),
        (
            "train",
            ("validation", "test"),
            r"; .* train_split=train\[:90%\] eval_split=train\[90%:\]$",
        ),
        ("train", ("valid",), "$"),
    )
    def test_a_split_that_is_not_there(self, only, splits, remedy):
        builder = types.SimpleNamespace(info=types.SimpleNamespace(splits={only: None}))
        prepared = mock.patch.object(catalog, "prepared", return_value=(builder, ()))
        with prepared, self.assertRaisesRegex(ValueError, f"only {only}{remedy}"):
            self._find("mine", *splits)

    @parameterized.parameters(
        (
            "train[:99999]",
            r"split train has 1442 examples, too few for train\[:99999\]",
        ),
        ("train[-1443:]", r"has 1442 examples, too few for train\[-1443:\]"),
        ("train+test[:356]", r"split test has 355 examples, too few for test\[:356\]"),
        ("train[:x]", r"train\[:x\] is not how .* is train\[:90%\] or .*:2000\]"),
        ("train[:101%]", r"train\[:101%\] is not how a part of a split .*"),
        ("tran[:10]", r"there is no split tran\[:10\], only train, test"),
        ("all[:10]", r"there is no split all\[:10\], only train, test"),
    )
    def test_a_part_that_is_not_there(self, part, sentence):
        with self.assertRaisesRegex(ValueError, f"^data_name=digits: .*{sentence}$"):
            self._find("digits", part)

    def test_a_process_that_was_faster_does_no_harm(self):
        def prepare(builder):
            original(builder)
            raise OSError("Directory not empty")

        original = tfds.core.DatasetBuilder.download_and_prepare
        with mock.patch.object(
            tfds.core.DatasetBuilder, "download_and_prepare", prepare
        ):
            self.assertEqual(self._find("digits").num_examples, 1442)

    def test_where_the_default_cannot_be_written_the_digits_go_elsewhere(self):
        file = pathlib.Path(self.root, "file")
        file.touch()
        unwritable = file / "tensorflow_datasets"
        builder = tfds.builder

        def builder_with_default(name, *, data_dir):
            return builder(name, data_dir=data_dir or unwritable)

        with (
            mock.patch.object(tfds, "builder", builder_with_default),
            mock.patch.object(tempfile, "tempdir", self.root),
        ):
            with self.assertLogs("towers.data.catalog", "WARNING") as log:
                examples = catalog.find("digits", splits=("train",))
            self.assertStartsWith(examples.path, f"{self.root}/towers-")
            self.assertLen(log.output, 1)
            self.assertIn(f"{unwritable} cannot be written", log.output[0])
            with self.assertNoLogs("towers.data.catalog", "WARNING"):
                catalog.find("digits", splits=("test",))
            with self.assertRaisesRegex(ValueError, "cannot be written; name another"):
                with mock.patch.object(socket, "create_connection"):
                    catalog.find("mnist", splits=("train",))
        with mock.patch.object(os, "access", return_value=False):
            os.rename(examples.path, os.path.join(self.root, "away"))
            with self.assertRaisesRegex(ValueError, "name another data_dir"):
                self._find("digits")

    @parameterized.parameters("mine", "mine/1.0.0")
    def test_the_folder_of_the_data_set_itself(self, inside):
        folder = os.path.join(self.root, inside)
        os.makedirs(folder)
        with self.assertRaisesRegex(
            ValueError, f"the folder that .*: write {self.root}$"
        ):
            catalog.find("mine", splits=("train",), data_dir=folder)

    @parameterized.parameters(
        ("cifr10", "no such data set; did you mean cifar10"),
        ("/tmp/book.txt", "is a path, which only language models read"),
        ("syntetic", "did you mean synthetic"),
        ("no_such_set_at_all", "no such data set; nor has TFDS one"),
        ("cifar10:9.9.9", "cannot be loaded at version 9.9.9, only: 3.0.2.$"),
        ("mnist/big", "BuilderConfig big not found with version 3.0.1.$"),
        ("mnist/3.0.1", "a version is written mnist:3.0.1$"),
        ("a b", "a name is written mnist, cifar10:3.0.2 or imagenette/160px$"),
        ("", "a name is written mnist"),
        ("coco", "not an image classification data set; an example has image, "),
        ("ucf101", "has video, label, not an image and its class"),
        ("wikipedia", "not an image classification"),
        ("cifar10", "put cifar-10-binary.tar.gz into .*/downloads/manual, or run"),
        ("mnist", "storage.googleapis.com cannot be reached"),
        ("imagenet2012", "files are not in .*/manual: manual_dir should contain two"),
    )
    def test_refused_in_a_sentence_and_at_once(self, name, sentence):
        tries = _failing_download(AssertionError("which TFDS does for minutes"))
        with (
            _no_network(),
            tries as tried,
            self.assertRaisesRegex(ValueError, sentence) as caught,
        ):
            self._find(name)
        tried.assert_not_called()
        self.assertStartsWith(str(caught.exception), f"data_name={name}: ")
        self.assertNotIn("\n", str(caught.exception))
        self.assertEmpty(os.listdir(self.root))

    @parameterized.parameters("train[:0]", "train[70%:70%]", "train[5:2]")
    def test_a_split_without_examples(self, split):
        with self.assertRaisesRegex(ValueError, "there is no example in split train"):
            catalog.find("digits", splits=(split,), data_dir=self.root)

    @parameterized.parameters(
        ("digits", "dataset_info.json", None, "no dataset_info.json"),
        ("digits:1.0.0", "dataset_info.json", None, "Could not read dataset info"),
        ("digits", "dataset_info.json", b"", "Failed to load JSON"),
        ("digits", "dataset_info.json", b"\xff{", "'utf-8' codec can't decode byte"),
        ("digits:1.0.0", "features.json", b"\xff{", "'utf-8' codec can't decode byte"),
    )
    def test_a_summary_that_is_damaged(self, name, file, content, reason):
        path = pathlib.Path(self._find("digits").path, file)
        path.unlink() if content is None else path.write_bytes(content)
        sentence = rf"^data_name={name}: .*{self.root}.* is damaged \({reason}.*\): rem"
        with self.assertRaisesRegex(ValueError, sentence):
            self._find(name)

    @parameterized.parameters("mine:9.9.9", "mine/x", "mine/x:9.*.*", "mine/1.0.0")
    def test_versions_that_there_are_of_somebodys_own(self, name):
        self._own()
        self.assertEqual(self._find("mine").num_examples, 1442)
        sentence = f"^data_name={name}: there is only mine:1.0.0 in {self.root}$"
        with self.assertRaisesRegex(ValueError, sentence):
            self._find(name)

    def _own(self):
        """A data set of the user's own, prepared and without code; its folder."""
        folder = pathlib.Path(self.root, "mine")
        prepared = pathlib.Path(self._find("digits").path)
        shutil.move(prepared.parent, folder)
        for path in folder.glob("1.0.0/*"):
            if path.suffix == ".json":
                path.write_text(path.read_text().replace('"digits"', '"mine"'))
            else:
                path.rename(path.with_name(path.name.replace("digits", "mine")))
        return folder / "1.0.0"

    @parameterized.parameters(
        ("features.json", "mine/1.0.0 has no features.json; put it back, or"),
        ("dataset_info.json", r"mine in .* is damaged \(Could not read .*_info.json"),
        ("*.json", "holds no prepared data set, .* in mine/1.0.0; prepare one with"),
        ("*train*", r"damaged \(without mine-train.tfrecord-00000-of-00001\): put "),
        ("*test*", r"damaged \(without mine-test.tfrecord-00000-of-00001\): put "),
    )
    def test_files_that_are_missing(self, pattern, sentence):
        folder = self._own()
        for name in "mine", "mine:1.0.0":
            self.assertEqual(self._find(name).num_examples, 1442)
            self.assertEqual(self._find(name, "test").num_examples, 355)
        for path in folder.glob(pattern):
            path.unlink()
        split = "test" if "test" in pattern else "train"
        with self.assertRaisesRegex(ValueError, f"^data_name=mine: .*{sentence}"):
            self._find("mine", split)

    def test_a_folder_of_images(self):
        os.makedirs(f"{self.root}/pets/train/cat")
        pathlib.Path(self.root, "pets/train/cat/1.jpg").touch()
        with self.assertRaisesRegex(ValueError, "^data_name=pets: .*/pets holds no"):
            self._find("pets")

    @parameterized.parameters("train", "test")
    def test_a_file_that_is_empty(self, split):
        (file,) = self._own().glob(f"*{split}*")
        os.truncate(file, 0)
        with self.assertRaisesRegex(
            ValueError, r"^data_name=mine: .* \(mine-.* has 0 of \d+ records\): put "
        ):
            self._find("mine", split)

    def test_a_directory_that_is_not_there(self):
        with self.assertRaisesRegex(ValueError, "data_dir=/no/such: there is no"):
            catalog.find("cifar10", splits=("train",), data_dir="/no/such")
        with self.assertRaisesRegex(
            ValueError, "data_dir=s3://bucket: .*tensorflow-io"
        ):
            catalog.find("cifar10", splits=("train",), data_dir="s3://bucket")

    def test_files_put_by_hand_need_no_network(self):
        manual = pathlib.Path(self.root, "downloads/manual")
        manual.mkdir(parents=True)
        (manual / "cifar-10-binary.tar.gz").touch()
        with _no_network(), _failing_download(KeyError("wrong checksum\nsum: 1")):
            with self.assertRaisesRegex(ValueError, "prepared in .*: .wrong check"):
                self._find("cifar10")

    def test_a_proxy_is_asked_in_the_place_of_the_hosts(self):
        self._use_proxies({"https": "http://proxy.test:3128"})
        with _no_network() as connect:
            with self.assertRaisesRegex(ValueError, "proxy.test cannot be reached"):
                self._find("cifar10")
        connect.assert_called_once_with(("proxy.test", 3128), timeout=mock.ANY)

    def test_files_that_are_no_tfrecords(self):
        self._find("digits")
        other = tfds.core.FileFormat.ARRAY_RECORD
        with mock.patch.object(tfds.core.DatasetInfo, "file_format", other):
            with self.assertRaisesRegex(ValueError, "holds array_record files"):
                self._find("digits")
