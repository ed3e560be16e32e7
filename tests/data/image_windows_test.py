"""Windows of images: the crops of ImageNet's models, resized."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests.preprocessing_cases import coordinates, draws_of, random_images, run
from towers.data import image_windows
from towers.data.preprocessing import DRAWS, PREPROCESSING


class ImageWindowsTest(parameterized.TestCase, tf.test.TestCase):
    def test_imagenet_evaluation_of_the_usual_size_is_a_crop(self):
        x = random_images(2, (256, 256, 3))
        y = run(
            lambda: image_windows.imagenet_evaluation(tf.constant(x), (224, 224, 3))
        )
        self.assertAllClose(y, x[:, 16:240, 16:240] / 127.5 - 1, atol=1e-3)

    @parameterized.parameters((1, 9), (9, 1), (1, 1))
    def test_imagenet_of_a_row_or_a_column_of_pixels(self, height, width):
        row = PREPROCESSING["imagenet"]
        images = random_images(6, (height, width, 3))
        draws = np.random.default_rng(0).uniform(size=(6, DRAWS)).astype(np.float32)
        for features in run(
            lambda: (
                row.training(tf.constant(images), (4, 4, 3), tf.constant(draws)),
                row.evaluation(tf.constant(images), (4, 4, 3)),
            )
        ):
            low, high = (
                reduce(images, axis=(1, 2), keepdims=True) / 127.5 - 1
                for reduce in (np.min, np.max)
            )
            self.assertTrue(np.all(features >= low - 1e-4))  # fails for NaN, too
            self.assertTrue(np.all(features <= high + 1e-4))
            for axis, size in ((1, height), (2, width)):
                if size == 1:
                    middle = np.mean(features, axis, keepdims=True)
                    self.assertAllClose(features - middle, np.zeros_like(features))

    def test_imagenet_evaluation_keeps_proportions(self):
        x = coordinates(1, 40, 100).astype(np.float32)
        y = run(lambda: image_windows.imagenet_evaluation(tf.constant(x), (20, 20, 3)))
        # 35 of 40 rows, from 2.5 on, and as many columns around the middle, 50.
        self.assertAllClose(y[0, :, 0, 0], np.linspace(2.5, 36.5, 20), atol=1e-3)
        self.assertAllClose(y[0, 0, :, 1], np.linspace(32.5, 66.5, 20), atol=1e-3)

    def test_imagenet_training_takes_windows(self):
        count, height, width = 500, 60, 90
        x = coordinates(count, height, width).astype(np.float32)
        y = run(
            lambda: image_windows.imagenet_training(
                tf.constant(x), (16, 16, 3), draws_of(count)
            )
        )
        rows, columns = y[:, :, 0, 0], y[:, 0, :, 1]
        self.assertAllClose(y[..., 2], np.ones((count, 16, 16)))  # no pixel is outside
        for lines in (rows, columns):
            self.assertAllClose(np.diff(lines, 2), np.zeros((count, 14)), atol=1e-3)
        tall = rows[:, -1] - rows[:, 0] + 1
        wide = columns[:, -1] - columns[:, 0]
        mirrored = wide < 0
        wide = abs(wide) + 1
        self.assertAllInRange(rows, -1e-3, height - 1 + 1e-3)
        self.assertAllInRange(columns, -1e-3, width - 1 + 1e-3)
        self.assertAllInRange(tall * wide / (height * width), 0.08 - 1e-3, 1 + 1e-3)
        free = (tall < height - 0.01) & (wide < width - 0.01)
        self.assertAllInRange((wide / tall)[free], 3 / 4 - 1e-3, 4 / 3 + 1e-3)
        self.assertGreater(free.mean(), 0.95)
        self.assertBetween(mirrored.mean(), 0.4, 0.6)
        self.assertLess((tall * wide).min() / (height * width), 0.1)

    @parameterized.parameters(
        (500, 1000, 224),
        (1000, 500, 224),
        (333, 1000, 299),
        (1024, 300, 227),
        (244, 488, 224),
    )
    def test_imagenet_training_shows_nothing_beyond_the_image(
        self, height, width, size
    ):
        """The last sample of a window at an edge may be rounded to beyond the image."""
        x = np.full((64, height, width, 1), 200, np.uint8)
        y = run(
            lambda: image_windows.imagenet_training(
                tf.constant(x), (size, size, 1), draws_of(64)
            )
        )
        self.assertAllClose(y, np.full_like(y, 200 * 2 / 255 - 1), atol=1e-5)
