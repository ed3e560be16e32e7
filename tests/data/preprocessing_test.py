"""Preprocessing: windows of the images, by numbers that belong to examples."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests.preprocessing_cases import coordinates, draws_of, random_images, run
from towers.data import preprocessing
from towers.data.preprocessing import PREPROCESSING

# Row -> (shape of images, shape of features).
_SHAPES = {
    "scale": ((8, 8, 1), (8, 8, 1)),
    "cifar": ((32, 32, 3), (32, 32, 3)),
    "cifar_tutorial": ((32, 32, 3), (24, 24, 3)),
    "bytes": ((9,), (9,)),
    "words": ((9,), (9,)),
    "pairs": ((3,), (2,)),
    "imagenet": ((40, 60, 3), (20, 20, 3)),
    "tf_cnn_benchmarks_cifar": ((32, 32, 3), (32, 32, 3)),
    "tf_cnn_benchmarks": ((40, 60, 3), (20, 20, 3)),
    "tf_cnn_benchmarks_ml_perf": ((40, 60, 3), (20, 20, 3)),
    "official_models_imagenet": ((280, 300, 3), (20, 20, 3)),
}
_BATCHES = [name for name, row in PREPROCESSING.items() if not row.of_pictures]


class PreprocessingTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(*_BATCHES)
    def test_an_example_is_treated_the_same_in_any_batch(self, name):
        have, want = _SHAPES[name]
        row = PREPROCESSING[name]
        shape = row.fit(have, want)
        images = random_images(6, have)
        if name == "pairs":
            images = images.astype(np.int32)

        def features(start, stop):
            batch = tf.constant(images[start:stop])
            draws = draws_of(stop - start, first=100 + start)
            return row.training(batch, shape, draws), row.evaluation(batch, shape)

        whole = run(lambda: features(0, 6))
        parts = run(lambda: [features(0, 1), features(1, 3), features(3, 6)])
        for value, *pieces in zip(whole, *parts):
            self.assertEqual(value.shape, (6, *shape))
            integers = len(shape) == 1
            self.assertEqual(value.dtype, images.dtype if integers else np.float32)
            self.assertAllEqual(value, np.concatenate(pieces))

    def test_options_are_those_of_the_row(self):
        row = preprocessing.get(
            "tf_cnn_benchmarks", kind="images", options={"resize_method": None}
        )
        self.assertIs(row, PREPROCESSING["tf_cnn_benchmarks"])
        with self.assertRaisesRegex(
            ValueError, "resize_method=area: the preprocessing cifar has no .*choose in"
        ):
            preprocessing.get("cifar", kind="images", options={"resize_method": "area"})

    def test_cifar_of_tf_cnn_benchmarks_is_a_padded_crop_from_minus_1_to_1(self):
        images = np.full((200, 32, 32, 3), 255, np.uint8)
        y = run(
            lambda: preprocessing.padded_training(
                tf.constant(images), (32, 32, 3), draws_of(200)
            )
        )
        self.assertAllInSet(y, [-1.0, 1.0])  # the padding is black
        black = np.mean(y[..., 0] == -1, axis=(1, 2))
        self.assertAllClose(np.max(black), 1 - (28 / 32) ** 2)
        self.assertAllEqual(np.min(black), 0)

    def test_items_are_drawn_where_there_is_none(self):
        pairs = np.array([[5, 7, 0], [5, 0, 3]] * 300, np.int32)
        drawn = run(
            lambda: preprocessing.draw_items(tf.constant(pairs), (2,), draws_of(600))
        )
        self.assertAllEqual(drawn[:, 0], np.full(600, 5))
        self.assertAllEqual(drawn[::2, 1], np.full(300, 7))
        self.assertAllClose(np.bincount(drawn[1::2, 1]), [100] * 3, atol=30)
        given = run(lambda: preprocessing.given_items(tf.constant(pairs[None]), (2,)))
        self.assertAllEqual(given, pairs[None, :, :2])

    def test_every_row_is_tested(self):
        self.assertCountEqual(_SHAPES, PREPROCESSING)

    def test_scale(self):
        for dtype, half in ((np.uint8, 127.5), (np.uint16, 32767.5)):
            x = np.array([[[[0], [1], [np.iinfo(dtype).max]]]], dtype)
            y = run(lambda x=x: preprocessing.scale(tf.constant(x), (1, 3, 1)))
            self.assertAllClose(y, x / half - 1, atol=1e-6)
            self.assertAllInRange(y, -1, 1)
        x = np.array([[[[-3.5], [7.0]]]], np.float32)
        y = run(lambda: preprocessing.scale(tf.constant(x), (1, 2, 1)))
        self.assertAllEqual(y, x)

    def test_cifar_evaluation(self):
        x = random_images(3, (32, 32, 3))
        y = run(lambda: preprocessing.cifar_evaluation(tf.constant(x), x.shape[1:]))
        mean, deviation = (125.3, 123.0, 113.9), (63.0, 62.1, 66.7)
        self.assertAllClose(y, (x - mean) / deviation, rtol=1e-5)

    def test_cifar_training_crops_and_mirrors(self):
        count = 2000
        x = (coordinates(count, 32, 32) + 1).astype(np.uint8)
        y = run(
            lambda: preprocessing.cifar_training(
                tf.constant(x), (32, 32, 3), draws_of(count)
            )
        )
        mean, deviation = (125.3, 123.0, 113.9), (63.0, 62.1, 66.7)
        pixels = np.rint(y * deviation + mean).astype(int)
        padded = np.pad(x, [(0, 0), (4, 4), (4, 4), (0, 0)])
        seen = set()
        for image in pixels:
            # The middle is never padding, and shows where the window is.
            row, left, right = image[16, 16, 0], image[16, 16, 1], image[16, 17, 1]
            mirrored = right < left
            top = row + 3 - 16
            start = left + 3 - (15 if mirrored else 16)
            window = padded[0, top : top + 32, start : start + 32]
            self.assertAllEqual(image, window[:, ::-1] if mirrored else window)
            seen.add((top, start, mirrored))
        self.assertLen(seen, 9 * 9 * 2)

    def test_tutorial_training(self):
        x = random_images(5, (32, 32, 3))
        draws = run(lambda: draws_of(5))
        training = preprocessing.tutorial_training
        y = run(lambda: training(tf.constant(x), (24, 24, 3), draws))
        for image, draw, actual in zip(x.astype(np.float64), draws, y):
            top, left = (int(number * 9) for number in draw[:2])
            crop = image[top : top + 24, left : left + 24]
            crop = crop[:, ::-1] if draw[2] < 0.5 else crop
            crop = crop + (draw[3] * 126 - 63)
            mean = crop.mean((0, 1))
            crop = (crop - mean) * (0.2 + 1.6 * draw[4]) + mean
            self.assertAllClose(actual, (crop - crop.mean()) / crop.std(), atol=1e-4)

    def test_tutorial_evaluation(self):
        x = random_images(2, (32, 32, 3))
        x[1] = 9  # a plain image has no deviation to divide by
        y = run(lambda: preprocessing.tutorial_evaluation(tf.constant(x), (24, 24, 3)))
        crop = x[0, 4:28, 4:28].astype(np.float64)
        self.assertAllClose(y[0], (crop - crop.mean()) / crop.std(), atol=1e-5)
        self.assertAllClose(y[1], np.zeros((24, 24, 3)))

    @parameterized.parameters(
        ("scale", (None, None, 3), (8, 8, 3), "differ in size"),
        ("cifar", (28, 28, 1), (32, 32, 3), "28x28x1 do not fit .* 32x32x3"),
        ("cifar", (32, 32, 1), (32, 32, 1), "of 1 channels, .*'cifar' .* have 3$"),
        ("cifar_tutorial", (20, 32, 3), (24, 24, 3), "do not fit"),
        ("cifar_tutorial", (None, None, 3), (24, 24, 3), r"\?x\?x3 do not fit"),
        ("imagenet", (28, 28, 1), (224, 224, 3), "do not fit"),
        ("bytes", (28,), (32,), "28 do not fit .* 32"),
        ("pairs", (2,), (2,), "do not fit"),
    )
    def test_images_that_do_not_fit(self, name, have, want, sentence):
        with self.assertRaisesRegex(ValueError, sentence):
            PREPROCESSING[name].fit(have, want)

    def test_scale_keeps_the_images_size(self):
        self.assertEqual(PREPROCESSING["scale"].fit((8, 8, 1), (28, 28, 1)), (8, 8, 1))
