"""The bare loop decodes and crops the JPEGs that are there."""

import contextlib
import io

import tensorflow as tf
from absl.testing import parameterized

from benchmarks.peers import bare_input
from tests.image_folders import ImageFoldersTestCase

v1 = tf.compat.v1


class BareInputTest(ImageFoldersTestCase):
    @parameterized.parameters("training", "evaluation")
    def test_crops(self, kind):
        folder = str(self.root / "tfrecords")
        with tf.Graph().as_default(), v1.Session() as session:
            crops = bare_input.crops(folder, kind)
            following = v1.data.make_one_shot_iterator(crops).get_next()
            shapes = [session.run(following).shape for _ in range(30)]
        if kind == "evaluation":
            self.assertEqual(set(shapes), {(26, 26, 3)})  # of 30 x 40
        else:
            self.assertGreater(len(set(shapes)), 5)

    @parameterized.parameters(("training", ()), ("evaluation", ("--resize",)))
    def test_prints_its_speed(self, kind, flags):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            bare_input.main([str(self.root / "tfrecords"), kind, "4", "1", "2", *flags])
        self.assertRegex(out.getvalue(), r"^total images/sec: \d+\.\d\d\n$")

    def test_resized(self):
        folder = str(self.root / "tfrecords")
        with tf.Graph().as_default():
            crops = bare_input.crops(folder, "training", bare_input.resized)
            self.assertEqual(crops.element_spec, tf.TensorSpec([224, 224, 3]))
