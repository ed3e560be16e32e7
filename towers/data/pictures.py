"""Preprocessings of one image at a time, of which only the part in use is decoded.

They are those of tf_cnn_benchmarks (preprocessing.py at commit 8fb7907) and of the
official ResNet (tensorflow/models, official/r1/resnet/imagenet_preprocessing.py).  The
same bytes and the same crop give the same pixels.  Random choices come from the random
numbers of the example.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

Size = tuple[int, ...]

# A random crop: share of the image's area, width / height, and the least share of an
# object's box in it.
_AREA = (0.05, 1.0)
_RATIO = (0.75, 1.33)
_COVERED = 0.1
_TRIES = 100

# Which of an example's draws is used for what.
MIRROR, BRIGHTNESS, SATURATION, HUE, CONTRAST, CROP = 0, 1, 2, 3, 4, (5, 6)
BITS_OF_DRAW = 23  # of the fraction of a float32

# Ranges of the changes of colours.
_MOST_BRIGHTNESS = 32 / 255
_FACTORS = (0.5, 1.5)  # of saturation and contrast
_MOST_HUE = 0.2  # of a turn; in YIQ, of half a turn

# Colours as red, green and blue -> luminance and two axes of chrominance (NTSC, 1953).
_YIQ = np.array(
    [[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]], np.float32
)

# Means of red, green and blue over ImageNet's training images.
_MEANS = (123.68, 116.78, 103.94)

# An image is resized to this many times the network's size, and its centre is cut out:
# 224 of 256 pixels.
_ENLARGED = 1.145
_OFFICIAL_SIDE = 256  # pixels of the shorter side, before the centre is cut out

RESIZE_METHODS = ("nearest", "bilinear", "bicubic", "area")
ROUND_ROBIN = "round_robin"


class Picture(NamedTuple):
    """An image before it is decoded.

    Attributes:
      image: scalar string, an image file; or its pixels uint8 [height, width, 3].
      boxes: float32 [boxes, 4], the place of objects as shares of height and width:
        top, left, bottom, right.
      index: int64 scalar, of the example in the stream.
    """

    image: tf.Tensor
    boxes: tf.Tensor
    index: tf.Tensor


class PictureOptions(NamedTuple):
    """How pictures are prepared, as the flags of these names choose it.

    Attributes:
      resize_method: one of `RESIZE_METHODS`, or `ROUND_ROBIN` for each in turn.
      color_distortions: whether brightness, saturation, hue and contrast of training
        images change.
      distort_color_in_yiq: whether saturation and hue change in YIQ, else in HSV.
      fuse_decode_and_crop: whether only the crop of a training JPEG is decoded.
    """

    resize_method: str = "bilinear"
    color_distortions: bool = False
    distort_color_in_yiq: bool = True
    fuse_decode_and_crop: bool = True


_DEFAULT = PictureOptions()


def centred(image: tf.Tensor) -> tf.Tensor:
    """Scales [0, 255] to [-1, 1]."""
    return image * (1 / 127.5) - 1.0


def without_means(image: tf.Tensor) -> tf.Tensor:
    """Subtracts the mean of each colour."""
    return image - _MEANS


def training(
    picture: Picture,
    shape: Size,
    draws: tf.Tensor,
    *,
    scale: Callable[[tf.Tensor], tf.Tensor] = centred,
    use_boxes: bool = True,
    options: PictureOptions = _DEFAULT,
) -> tf.Tensor:
    """A random crop that has a part of an object in it, mirrored at random, resized.

    Args:
      picture: the image.
      shape: (height, width, 3) of the result.
      draws: float32 [7 or more], uniform in [0, 1).
      scale: float32 pixels in [0, 255] -> the features.
      use_boxes: whether a crop must contain a part of a box.
      options: how.

    Returns:
      float32 of `shape`.
    """
    boxes = picture.boxes if use_boxes else tf.zeros([0, 4])
    fused = options.fuse_decode_and_crop
    crop = _random_crop(picture.image, boxes, draws, fused=fused)
    crop = tf.cond(draws[MIRROR] < 0.5, lambda: tf.reverse(crop, [1]), lambda: crop)
    image = _resized(crop, shape[:2], options.resize_method, picture.index)
    if options.color_distortions:
        image = 255 * distorted_colours(
            image / 255, draws, picture.index, in_yiq=options.distort_color_in_yiq
        )
    return scale(tf.ensure_shape(image, shape))


def evaluation(
    picture: Picture,
    shape: Size,
    *,
    scale: Callable[[tf.Tensor], tf.Tensor] = centred,
    options: PictureOptions = _DEFAULT,
) -> tf.Tensor:
    """The image resized to 1.145 times the network's size, and its centre.

    Args:
      picture, shape, scale, options: as for `training`.
    """
    pixels = _decoded(picture.image, "INTEGER_FAST")
    size = tf.cast(tf.shape(pixels)[:2], tf.float32)
    ratio = tf.reduce_max(np.array(shape[:2], np.float32) / size)
    resized_to = tf.cast(size * ratio * _ENLARGED, tf.int32)
    resized = _resized(pixels, resized_to, options.resize_method, picture.index)
    return scale(_centre(resized, resized_to, shape))


def official_training(picture: Picture, shape: Size, draws: tf.Tensor) -> tf.Tensor:
    """As `training`, with the mean of each colour subtracted."""
    return training(picture, shape, draws, scale=without_means)


def official_evaluation(picture: Picture, shape: Size) -> tf.Tensor:
    """The shorter side resized to 256, and the centre, without the mean colours."""
    pixels = _decoded(picture.image, "")
    size = tf.cast(tf.shape(pixels)[:2], tf.float32)
    resized_to = tf.cast(size * (_OFFICIAL_SIDE / tf.reduce_min(size)), tf.int32)
    resized = _resized(pixels, resized_to, "bilinear", picture.index)
    return without_means(_centre(resized, resized_to, shape))


def distorted_colours(
    image: tf.Tensor, draws: tf.Tensor, index: tf.Tensor, *, in_yiq: bool
) -> tf.Tensor:
    """Changes brightness, saturation, hue and contrast at random.

    The contrast is changed last if the index is even, else second.

    Args:
      image: float32 [height, width, 3] in [0, 1].
      draws: as for `training`.
      index: int64 scalar, of the example in the stream.
      in_yiq: whether saturation and hue change in YIQ, else in HSV.
    """
    saturation = _between(_FACTORS, draws[SATURATION])
    contrast = _between(_FACTORS, draws[CONTRAST])
    hue = _between((-_MOST_HUE, _MOST_HUE), draws[HUE])
    brightness = _between((-_MOST_BRIGHTNESS, _MOST_BRIGHTNESS), draws[BRIGHTNESS])

    def coloured(x: tf.Tensor) -> tf.Tensor:
        if in_yiq:
            return adjusted_in_yiq(x, math.pi * hue, saturation)
        return tf.image.adjust_hue(tf.image.adjust_saturation(x, saturation), hue)

    def contrasted(x: tf.Tensor) -> tf.Tensor:
        return tf.image.adjust_contrast(x, contrast)

    bright = tf.image.adjust_brightness(image, brightness)
    changed = tf.cond(
        tf.equal(index % 2, 0),
        lambda: contrasted(coloured(bright)),
        lambda: coloured(contrasted(bright)),
    )
    return tf.clip_by_value(changed, 0.0, 1.0)


def adjusted_in_yiq(
    image: tf.Tensor, hue: tf.Tensor | float, saturation: tf.Tensor | float
) -> tf.Tensor:
    """Turns the two axes of chrominance by the angle `hue`, and scales them.

    Args:
      image: float32 [..., 3], red, green and blue.
      hue: in radians.
      saturation: the factor of chrominance.
    """
    cosine, sine = saturation * tf.cos(hue), saturation * tf.sin(hue)
    turn = tf.stack([[1.0, 0.0, 0.0], [0.0, cosine, -sine], [0.0, sine, cosine]])
    return tf.linalg.matmul(image, np.linalg.inv(_YIQ) @ turn @ _YIQ, transpose_b=True)


def _between(bounds: tuple[float, float], draw: tf.Tensor) -> tf.Tensor:
    low, high = bounds
    return low + draw * (high - low)


def _opened(image: tf.Tensor) -> tf.Tensor:
    """The pixels of an image file that is no JPEG."""
    return tf.io.decode_image(image, 3, expand_animations=False)


def _decoded(image: tf.Tensor, method: str) -> tf.Tensor:
    """All pixels, uint8 [height, width, 3].

    Args:
      image: as in `Picture`.
      method: of the inverse cosine transform of a JPEG.
    """
    if image.dtype != tf.string:
        return image
    pixels = tf.cond(
        tf.io.is_jpeg(image),
        lambda: tf.io.decode_jpeg(image, 3, dct_method=method),
        lambda: _opened(image),
    )
    return tf.ensure_shape(pixels, [None, None, 3])


def _random_crop(
    image: tf.Tensor, boxes: tf.Tensor, draws: tf.Tensor, *, fused: bool
) -> tf.Tensor:
    """The pixels of a random window, uint8 [height, width, 3].

    Args:
      image, boxes: as in `Picture`.
      draws: as for `training`.
      fused: whether only the window of a JPEG is decoded.
    """
    seed = tf.cast(tf.gather(draws, CROP) * 2.0**BITS_OF_DRAW, tf.int32)

    def window(shape: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
            shape,
            boxes[None],
            seed,
            min_object_covered=_COVERED,
            aspect_ratio_range=_RATIO,
            area_range=_AREA,
            max_attempts=_TRIES,
            use_image_if_no_bounding_boxes=True,
        )
        return begin[:2], size[:2]

    def cut(pixels: tf.Tensor) -> tf.Tensor:
        begin, size = window(tf.shape(pixels))
        return tf.slice(pixels, [*tf.unstack(begin), 0], [*tf.unstack(size), 3])

    def of_jpeg() -> tf.Tensor:
        if not fused:
            return cut(tf.io.decode_jpeg(image, 3, dct_method="INTEGER_FAST"))
        part = tf.concat(window(tf.image.extract_jpeg_shape(image)), 0)
        return tf.image.decode_and_crop_jpeg(image, part, channels=3)

    if image.dtype != tf.string:
        return cut(image)
    crop = tf.cond(tf.io.is_jpeg(image), of_jpeg, lambda: cut(_opened(image)))
    return tf.ensure_shape(crop, [None, None, 3])


def _resized(
    image: tf.Tensor, size: tf.Tensor | Size, method: str, index: tf.Tensor
) -> tf.Tensor:
    """The image [height, width, 3] resized to `size`, float32.

    `tf.compat.v1` has the way of tf_cnn_benchmarks: pixel i of the result is at i times
    the ratio of the sizes.
    """
    # TensorFlow resizes floats in half of the time that it needs for bytes.
    pixels = tf.cast(image, tf.float32)

    def by(name: str) -> tf.Tensor:
        return tf.compat.v1.image.resize_images(pixels, size, name)

    if method != ROUND_ROBIN:
        return by(method)
    branches = [lambda name=name: by(name) for name in RESIZE_METHODS]
    return tf.switch_case(tf.cast(index % len(branches), tf.int32), branches)


def _centre(image: tf.Tensor, size: tf.Tensor, shape: Size) -> tf.Tensor:
    """The central part of `shape` of an image of `size`."""
    begin = (size - shape[:2]) // 2
    return tf.ensure_shape(tf.slice(image, tf.concat([begin, [0]], 0), shape), shape)
