"""The driver of tf_cnn_benchmarks' preprocessing, with its modules played."""

import importlib
import json
import sys
import types
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from benchmarks.lib import same_pixels
from tests import make_imagenet

v1 = tf.compat.v1


class _Preprocessor:
    """A random crop with random colours, as tf_cnn_benchmarks makes it."""

    def parse_and_preprocess(self, record, position):
        """Features and label of a record of ImageNet."""
        feature = {
            "image/encoded": tf.io.FixedLenFeature([], tf.string),
            "image/class/label": tf.io.FixedLenFeature([1], tf.int64),
        }
        sides = [
            f"image/object/bbox/{side}" for side in ("ymin", "xmin", "ymax", "xmax")
        ]
        feature |= {side: tf.io.VarLenFeature(tf.float32) for side in sides}
        parsed = tf.io.parse_single_example(record, feature)
        image = parsed["image/encoded"]
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.image.extract_jpeg_shape(image),
            bounding_boxes=tf.stack([parsed[side].values for side in sides], 1)[None],
            min_object_covered=0.1,
            aspect_ratio_range=[0.75, 1.33],
            area_range=[0.05, 1.0],
            max_attempts=100,
            use_image_if_no_bounding_boxes=True,
        )
        window = tf.concat([begin[:2], size[:2]], 0)
        crop = tf.image.decode_and_crop_jpeg(image, window, channels=3)
        crop = tf.image.random_flip_left_right(crop)
        x = v1.image.resize_images(crop, [224, 224], tf.image.ResizeMethod.BILINEAR)
        x = v1.image.random_brightness(x / 255, max_delta=32 / 255)
        if position % 2:
            x = v1.image.random_contrast(x, lower=0.5, upper=1.5)
        x = v1.image.random_saturation(x, lower=0.5, upper=1.5)
        x = v1.image.random_hue(x, max_delta=0.2)
        if not position % 2:
            x = v1.image.random_contrast(x, lower=0.5, upper=1.5)
        x = tf.clip_by_value(x, 0, 1) * 255
        return x / 127.5 - 1, parsed["image/class/label"]

    def preprocess(self, image):
        """A random crop of an image of CIFAR-10."""
        image = tf.pad(image, [[4, 4], [4, 4], [0, 0]])
        crop = v1.image.random_flip_left_right(v1.random_crop(image, [32, 32, 3]))
        return crop / 127.5 - 1


def _benchmark(params):
    if params["model"] == "none":
        raise ValueError("there is no such model")
    return types.SimpleNamespace(input_preprocessor=_Preprocessor())


class TfCnnPixelsTest(absltest.TestCase):
    def setUp(self):
        """Makes a JPEG, and imports the driver."""
        super().setUp()
        self.folder = self.create_tempdir().full_path
        self.jpeg = f"{self.folder}/a.jpg"
        with open(self.jpeg, "wb") as file:
            (image,) = make_imagenet.jpegs(1, 200, 300)
            file.write(image)
        modules = {
            "benchmark_cnn": types.SimpleNamespace(
                BenchmarkCNN=_benchmark, make_params=dict, setup=lambda params: params
            ),
            "preprocessing": types.SimpleNamespace(normalized_image=lambda x: x),
            "tensorflow.compat.v1": v1,
        }
        self.enter_context(mock.patch.dict(sys.modules, modules))
        self.addCleanup(sys.modules.pop, "benchmarks.peers.tf_cnn_pixels", None)
        self.driver = importlib.import_module("benchmarks.peers.tf_cnn_pixels")

    def _run(self, cases):
        """What the driver writes."""
        path = f"{self.folder}/cases.json"
        with open(path, "w", encoding="utf-8") as file:
            json.dump(cases, file)
        arguments = ["tf_cnn_pixels.py", path, f"{self.folder}/pixels.npz"]
        with (
            mock.patch.object(sys, "argv", arguments),
            mock.patch.object(v1, "disable_v2_behavior"),
        ):
            self.driver.main()
        with np.load(arguments[-1]) as arrays:
            return dict(arrays)

    def test_gives_the_random_numbers_and_the_pixels_are_ours(self):
        flags = same_pixels.cases()
        names = ["training bilinear colours", "training cifar10 distortions"]
        cases, ours = [], []
        rng = np.random.default_rng(2)
        for name in names:
            for index in range(3):
                draws = rng.random(11, np.float32)
                cases.append(same_pixels.case(flags[name], self.jpeg, index, draws))
                ours.append(same_pixels.ours(flags[name], self.jpeg, index, draws))
        theirs = self._run(cases)
        for number, (pixels, unit) in enumerate(ours):
            self.assertEqual(pixels.shape, theirs[str(number)].shape)
            apart = np.max(np.abs(pixels - theirs[str(number)])) / unit
            self.assertLess(apart, 1e-3)
            self.assertGreater(np.std(pixels), 0.1)

    def test_says_why_a_preprocessor_cannot_be_made(self):
        draws = np.zeros(11, np.float32)
        flags = same_pixels.cases()["training nearest"] | {"model": "none"}
        results = self._run([same_pixels.case(flags, self.jpeg, 0, draws)])
        self.assertEqual(str(results["0"]), "there is no such model")
