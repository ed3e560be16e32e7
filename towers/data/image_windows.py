"""Windows of images, resized: the preprocessing of ImageNet's models.

They work on a batch of images of one size, as the rows of `preprocessing` do.
"""

import math

import tensorflow as tf

Size = tuple[int, ...]

# Share of the image's area and width / height of a training crop (Szegedy et al. 2015),
# and the share of the shorter side that evaluation keeps (224 of 256).
_IMAGENET_AREA = (0.08, 1.0)
_IMAGENET_RATIO = (3 / 4, 4 / 3)
_IMAGENET_CENTRE = 0.875
_IMAGENET_TRIES = 4


def imagenet_training(images: tf.Tensor, shape: Size, draws: tf.Tensor) -> tf.Tensor:
    """A window of random area, proportions and place, resized and mirrored at random.

    Of four random windows the first that fits into the image is used (Szegedy et al.
    2015); if none fits, the first, cut to the image.  It is mirrored with probability
    1/2.
    """
    height, width = _size(images)
    areas, ratios, places = tf.split(draws, [_IMAGENET_TRIES, _IMAGENET_TRIES, 3], 1)
    area = between(_IMAGENET_AREA, areas) * height * width
    low, high = _IMAGENET_RATIO
    ratio = tf.exp(between((math.log(low), math.log(high)), ratios))
    heights, widths = tf.sqrt(area / ratio), tf.sqrt(area * ratio)
    fits = tf.cast((heights <= height) & (widths <= width), tf.int32)
    taken = tf.argmax(fits, axis=1)  # the first of them, and 0 where there is none
    window_height = tf.minimum(tf.gather(heights, taken, batch_dims=1), height)
    window_width = tf.minimum(tf.gather(widths, taken, batch_dims=1), width)
    top = places[:, 0] * (height - window_height)
    left = places[:, 1] * (width - window_width)
    bottom, right = top + window_height, left + window_width
    mirror = places[:, 2] < 0.5
    # A window whose left edge is right of its right edge is resized mirrored.
    left, right = tf.where(mirror, right, left), tf.where(mirror, left, right)
    return _resize_windows(images, shape, (top, left, bottom, right))


def imagenet_evaluation(images: tf.Tensor, shape: Size) -> tf.Tensor:
    """The central 87.5% of the shorter side, in the features' proportions, resized."""
    height, width = _size(images)
    pixel = _IMAGENET_CENTRE * tf.minimum(height / shape[0], width / shape[1])
    half_height, half_width = pixel * shape[0] / 2, pixel * shape[1] / 2
    edges = (
        height / 2 - half_height,
        width / 2 - half_width,
        height / 2 + half_height,
        width / 2 + half_width,
    )
    batch = tf.shape(images)[:1]
    return _resize_windows(images, shape, [tf.fill(batch, edge) for edge in edges])


def between(bounds: tuple[float, float], draw: tf.Tensor) -> tf.Tensor:
    """Maps a draw in [0, 1) to a number between the bounds."""
    low, high = bounds
    return low + draw * (high - low)


def scaled(x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Scales x from the range of an integer `dtype` to [-1, 1]; else returns it."""
    x = tf.cast(x, tf.float32)
    return x if dtype.is_floating else x * (2 / dtype.max) - 1.0


def _size(images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Height and width as float32 scalars."""
    size = tf.cast(tf.shape(images), tf.float32)
    return size[1], size[2]


def _resize_windows(images: tf.Tensor, shape: Size, edges: tf.Tensor) -> tf.Tensor:
    """Resizes a window of each image, bilinearly, and scales it to [-1, 1].

    Args:
      images: [batch, h, w, c]; h and w may be unknown.
      shape: of the result.
      edges: top, left, bottom and right in pixels, float32 [batch] each.

    Returns:
      float32 [batch, *shape].
    """
    height, width = _size(images)
    rows, columns = tf.maximum(height - 1, 1), tf.maximum(width - 1, 1)  # of one pixel
    top, left, bottom, right = edges
    mirrored = right < left
    # `crop_and_resize` counts from the centre of the first pixel to that of the last.
    boxes = tf.stack(
        [
            top / rows,
            tf.where(mirrored, left - 1, left) / columns,
            (bottom - 1) / rows,
            tf.where(mirrored, right, right - 1) / columns,
        ],
        axis=1,
    )
    # By rounding, the outermost samples may be outside the image, which is black there.
    # So windows are shrunk by eight float32 ulps, at most a thousandth of a pixel.
    boxes = 2.0**-20 + boxes * (1.0 - 2.0**-19)
    windows = tf.image.crop_and_resize(
        images, boxes, tf.range(tf.shape(images)[0]), shape[:2]
    )
    return scaled(windows, images.dtype)
