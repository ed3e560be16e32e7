"""Pictures: crops of JPEGs before they are decoded, colours, centres."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from models.uniform import example_uniform
from tests import make_imagenet
from tests.preprocessing_cases import run
from towers.data import pictures
from towers.data.pictures import Picture, PictureOptions
from towers.data.preprocessing import DRAWS, PREPROCESSING

v1 = tf.compat.v1

_SIZE = (48, 40, 3)


def _draws(index, seed=3):
    return example_uniform((1, DRAWS), seed=seed, first=index)[0]


def _of_indices(count, function):
    """The values of `function(index)`, made by one graph for all indices."""
    with tf.Graph().as_default(), v1.Session() as session:
        indices = tf.data.Dataset.range(count)
        values = indices.map(tf.autograph.experimental.do_not_convert(function))
        return session.run(values.batch(count).get_single_element())


def _picture(image, index=0, boxes=()):
    boxes = np.reshape(np.array(boxes, np.float32), [-1, 4])
    return Picture(tf.constant(image), tf.constant(boxes), tf.cast(index, tf.int64))


class PicturesTest(parameterized.TestCase, tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.pixels,) = make_imagenet.photographs(1, 90, 120)
        cls.jpeg = tf.io.encode_jpeg(
            cls.pixels, quality=100, chroma_downsampling=False
        ).numpy()
        cls.png = tf.io.encode_png(cls.pixels).numpy()

    @parameterized.parameters(
        name for name, row in PREPROCESSING.items() if row.of_pictures
    )
    def test_files_of_any_format_and_pixels_give_nearly_the_same(self, name):
        row = PREPROCESSING[name]
        shape = (40, 36, 3)

        def features(image, index):
            picture = _picture(image, index)
            return (
                row.training(picture, shape, _draws(index)),
                row.evaluation(picture, shape),
            )

        for index in (0, 1):
            from_pixels, from_png, from_jpeg = run(
                lambda index=index: [
                    features(image, index)
                    for image in (self.pixels, self.png, self.jpeg)
                ]
            )
            self.assertAllEqual(from_pixels, from_png)
            for exact, lossy in zip(from_pixels, from_jpeg):
                step = 1 / 127.5 if np.max(np.abs(exact)) <= 1 else 1.0
                self.assertLess(np.mean(np.abs(exact - lossy)), 3 * step)

    def test_a_crop_is_that_of_the_box_mirrored_and_resized(self):
        def crop(index):
            draws = _draws(index)
            begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
                tf.shape(self.pixels),
                tf.zeros([1, 0, 4]),
                tf.cast(draws[5:7] * 2**23, tf.int32),
                min_object_covered=0.1,
                aspect_ratio_range=(0.75, 1.33),
                area_range=(0.05, 1.0),
                max_attempts=100,
                use_image_if_no_bounding_boxes=True,
            )
            ours = pictures.training(_picture(self.pixels), _SIZE, draws)
            return ours, begin, size, draws[0]

        mirrored, rows = 0, zip(*_of_indices(6, crop))
        for ours, (top, left, _), (tall, wide, _), draw in rows:
            part = self.pixels[top : top + tall, left : left + wide]
            if draw < 0.5:
                part, mirrored = part[:, ::-1], mirrored + 1
            down = np.arange(_SIZE[0]) * (tall / _SIZE[0])
            right = np.arange(_SIZE[1]) * (wide / _SIZE[1])
            wanted = _bilinear(part.astype(np.float64), down, right) / 127.5 - 1
            self.assertAllClose(ours, wanted, atol=1e-3)
        self.assertBetween(mirrored, 1, 5)

    def test_an_area_of_the_image_from_a_20th_to_all(self):
        image = np.zeros((60, 80, 3), np.uint8)
        image[..., 0], image[..., 1] = np.mgrid[:60, :80]

        def crop(index):
            return pictures.training(
                _picture(image), (60, 80, 3), _draws(index), scale=lambda x: x
            )

        crops = _of_indices(200, crop)
        tall, wide = (
            np.ptp(crops[..., channel], axis=(1, 2)) + 1 for channel in (0, 1)
        )
        area = tall * wide / (60 * 80)
        self.assertBetween(np.min(area), 0.04, 0.15)
        self.assertBetween(np.max(area), 0.8, 1.0)
        self.assertBetween(np.mean(area), 0.35, 0.6)

    def test_a_crop_has_a_part_of_a_box_in_it(self):
        image = np.zeros((60, 80, 3), np.uint8)
        image[:6, :8] = 255

        def white(index, use_boxes):
            picture = _picture(image, boxes=[(0, 0, 0.1, 0.1)])
            shape, draws = (30, 40, 3), _draws(index)
            crop = pictures.training(picture, shape, draws, use_boxes=use_boxes)
            return tf.reduce_max(crop)

        with_box = _of_indices(60, lambda index: white(index, True))
        without = _of_indices(60, lambda index: white(index, False))
        self.assertGreater(np.min(with_box), -1)
        self.assertLess(np.mean(without > -1), 0.8)

    def test_only_a_part_is_decoded_or_all(self):
        def features(fused):
            return pictures.training(
                _picture(self.jpeg),
                _SIZE,
                _draws(5),
                options=PictureOptions(fuse_decode_and_crop=fused),
            )

        fused, whole = run(lambda: (features(True), features(False)))
        self.assertAllClose(fused, whole, atol=6 / 127.5)

    def test_resize_methods_take_turns(self):
        def features(method, index):
            return pictures.training(
                _picture(self.pixels, index),
                _SIZE,
                _draws(0),
                options=PictureOptions(resize_method=method),
            )

        for index, method in enumerate(pictures.RESIZE_METHODS):
            both = run(
                lambda m=method, i=index: (features(m, i), features("round_robin", i))
            )
            self.assertAllEqual(*both)
            other = run(lambda m=method, i=index: features("round_robin", i + 1))
            self.assertNotAllClose(other, both[0])

    def test_evaluation_is_the_centre_of_the_resized_image(self):
        image = np.zeros((32, 48, 3), np.uint8)
        image[..., 0], image[..., 1] = np.mgrid[:32, :48]
        y = run(
            lambda: pictures.evaluation(_picture(image), (24, 24, 3), scale=lambda x: x)
        )
        # Resized by 24 / 32 x 1.145 to 27x41, of which the centre begins at 1 and 8.
        self.assertAllClose(y[:, 0, 0], (1 + np.arange(24)) * 32 / 27, atol=1e-4)
        self.assertAllClose(y[0, :, 1], (8 + np.arange(24)) * 48 / 41, atol=1e-4)

    def test_official_evaluation_has_256_pixels_on_the_shorter_side(self):
        image = np.zeros((512, 1024, 3), np.uint8)
        image[..., 1] = np.arange(1024) // 4
        y = run(lambda: pictures.official_evaluation(_picture(image), (224, 224, 3)))
        columns = 144 + np.arange(224)
        self.assertAllClose(y[0, :, 1], columns * 2 // 4 - 116.78, atol=0.51)
        self.assertAllClose(y[0, 0, 0], -123.68, atol=1e-4)

    @parameterized.parameters(True, False)
    def test_colours_change_but_not_those_of_grey(self, in_yiq):
        def colours(image, index=0):
            return pictures.distorted_colours(
                tf.constant(image), _draws(4), tf.constant(index), in_yiq=in_yiq
            )

        image = self.pixels.astype(np.float32) / 255
        grey = np.repeat(image[..., :1], 3, -1)
        last, second, of_grey = run(
            lambda: (colours(image), colours(image, 1), colours(grey))
        )
        self.assertNotAllClose(last, image, atol=0.02)
        if not in_yiq:  # between the bounds the change of contrast is linear
            self.assertNotAllClose(last, second, atol=1e-3)
        self.assertAllInRange(last, 0, 1)
        self.assertAllClose(of_grey, np.repeat(of_grey[..., :1], 3, -1), atol=2e-3)

    def test_half_a_turn_in_yiq_negates_chrominance(self):
        image = np.random.default_rng(0).random((5, 3)).astype(np.float32)
        y = run(lambda: pictures.adjusted_in_yiq(tf.constant(image), np.pi, 0.5))
        yiq = np.array(
            [[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]]
        )
        wanted = image @ yiq.T * [1, -0.5, -0.5]
        self.assertAllClose(y @ yiq.T, wanted, atol=1e-5)


def _bilinear(image, rows, columns):
    """The image at these rows and columns; its last ones go on beyond it."""
    low = [np.floor(places).astype(int) for places in (rows, columns)]
    high = [np.minimum(at + 1, n - 1) for at, n in zip(low, image.shape)]
    down, right = rows - low[0], columns - low[1]
    down, right = down[:, None, None], right[None, :, None]
    upper = image[low[0]] * (1 - down) + image[high[0]] * down
    return upper[:, low[1]] * (1 - right) + upper[:, high[1]] * right
