"""CIFAR as downloaded: pickles and binary files."""

import os
import pathlib
import shutil
import tempfile

import tensorflow as tf
from absl.testing import parameterized

from tests import make_imagenet
from towers.data import image_layouts, inputs
from towers.data.source import Request

v1 = tf.compat.v1

_REQUEST = Request(
    shape=(16, 16, 3), preprocessing="tf_cnn_benchmarks", classes=True, seed=5
)


def _sentence(call):
    try:
        call()
    except ValueError as error:
        return str(error)
    raise AssertionError("nothing was raised")


def _decoded(records, count=None):
    """The images and labels of records, in their own order."""
    with tf.Graph().as_default(), v1.Session() as session:
        dataset = records.open(None).map(
            lambda *r: records.decode(r if r[1:] else r[0])
        )
        following = v1.data.make_one_shot_iterator(dataset).get_next()
        return [session.run(following) for _ in range(count or records.num_examples)]


class CifarFilesTest(parameterized.TestCase, tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name)
        make_imagenet.main([str(cls.root), "--images=24", "--height=30", "--width=40"])

    def folder(self, name):
        """A copy of a layout that the test may change."""
        copy = self.create_tempdir().full_path
        shutil.copytree(self.root / name, copy, dirs_exist_ok=True)
        return copy

    def source(self, folder, training=True, name="imagenet", **changes):
        request = _REQUEST.__class__(
            **{**vars(_REQUEST), "data_dir": folder, **changes}
        )
        return inputs.get(name, request, training=training)

    @parameterized.parameters(
        ("cifar10", 10, 100), ("cifar100", 100, 20), ("cifar10_binary", 10, 100)
    )
    def test_cifar(self, layout, num_classes, num_examples):
        folder = self.folder(layout)
        name = layout.removesuffix("_binary")
        for split, count, seed in (("train", num_examples, 0), ("test", 20, -1)):
            records = image_layouts.find(name, splits=(split,), data_dir=folder)
            self.assertEqual(
                (records.num_classes, records.num_examples), (num_classes, count)
            )
            last = {"cifar10": 5, "cifar100": 1}[name]
            images, labels = make_imagenet.cifar_rows(20, seed if seed >= 0 else last)
            for number, (image, label) in enumerate(_decoded(records, 20)):
                planes = images[number].reshape(3, 32, 32)
                self.assertAllEqual(image, planes.transpose(1, 2, 0))
                self.assertEqual(label, labels[number])

    def test_a_pickle_that_calls_something_is_refused(self):
        folder = self.folder("cifar10")
        path = f"{folder}/cifar-10-batches-py/data_batch_2"
        with open(path, "wb") as file:
            file.write(b"\x80\x02cos\nsystem\nU\x07touch xq\x00\x85R.")
        with self.assertRaisesRegex(ValueError, "data_batch_2 is not a .*calls os.sys"):
            image_layouts.find("cifar10", splits=("train",), data_dir=folder)
        os.remove(path)
        with self.assertRaisesRegex(ValueError, "data_batch_2 is missing"):
            image_layouts.find("cifar10", splits=("train",), data_dir=folder)
