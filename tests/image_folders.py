"""Fake data sets in files, for the tests of what reads them."""

import pathlib
import shutil
import tempfile

import tensorflow as tf
from absl.testing import parameterized

from tests import make_imagenet
from towers.data import inputs
from towers.data.source import Request

v1 = tf.compat.v1

REQUEST = Request(
    shape=(16, 16, 3), preprocessing="tf_cnn_benchmarks", classes=True, seed=5
)


def sentence_of(call):
    try:
        call()
    except ValueError as error:
        return str(error)
    raise AssertionError("nothing was raised")


def decoded(records, count=None):
    """The images and labels of records, in their own order."""
    with tf.Graph().as_default(), v1.Session() as session:
        dataset = records.open(None).map(
            lambda *r: records.decode(r if r[1:] else r[0])
        )
        following = v1.data.make_one_shot_iterator(dataset).get_next()
        return [session.run(following) for _ in range(count or records.num_examples)]


class ImageFoldersTestCase(parameterized.TestCase, tf.test.TestCase):
    """Has small fake sets in each layout, and sources of them."""

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
        request = REQUEST.__class__(**{**vars(REQUEST), "data_dir": folder, **changes})
        return inputs.get(name, request, training=training)
