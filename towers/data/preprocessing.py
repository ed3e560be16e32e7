"""The table of preprocessings, from decoded examples to the features of a network.

A row works on a batch of images of one size.  Every random choice for an example comes
from random numbers of that example:

    row = get("cifar", kind="images")
    shape = row.fit((32, 32, 3), (32, 32, 3))
    draws = example_uniform((batch_size, DRAWS), seed=seed, first=first)
    features = row.training(images, shape, draws)

so augmentation does not depend on the batch size, the number of towers or the order in
which threads finish.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

# Shape of one example: (height, width, channels), where height and width are None if
# images differ in size; (length,) of tokens; (..., 3) of pairs from `ratings`, and
# (..., 2) of pairs for networks.
Shape = tuple[int | None, ...]
Size = tuple[int, ...]  # a static shape, as networks read it

# Uniform numbers per example, as many as `imagenet_training` uses.
DRAWS = 11

# Mean and standard deviation of the three channels over CIFAR-10's training images.
_CIFAR_MEAN = (125.3, 123.0, 113.9)
_CIFAR_DEVIATION = (63.0, 62.1, 66.7)
_CIFAR_PADDING = 4

_TUTORIAL_BRIGHTNESS = (-63.0, 63.0)
_TUTORIAL_CONTRAST = (0.2, 1.8)

# Share of the image's area and width / height of a training crop (Szegedy et al. 2015),
# and the share of the shorter side that evaluation keeps (224 of 256).
_IMAGENET_AREA = (0.08, 1.0)
_IMAGENET_RATIO = (3 / 4, 4 / 3)
_IMAGENET_CENTRE = 0.875
_IMAGENET_TRIES = 4


class Preprocessing(NamedTuple):
    """One row of the table.

    Attributes:
      kind: of data, a row of `inputs.KINDS`.
      fit: (shape of the data set's images, shape that the network was written for) ->
        shape of the features.  Raises ValueError if the images cannot be used.
      training: (images [batch, h, w, c], shape of the features, draws) -> float32
        [batch, *shape].  `draws` is float32 [batch, DRAWS], uniform in [0, 1).
      evaluation: (images, shape of the features) -> float32 [batch, *shape].
    """

    kind: str
    fit: Callable[[Shape, Size], Size]
    training: Callable[[tf.Tensor, Size, tf.Tensor], tf.Tensor]
    evaluation: Callable[[tf.Tensor, Size], tf.Tensor]

    @property
    def distorts(self) -> bool:
        """Whether images for training are prepared in another way than others."""
        return self.training is not self.evaluation


def scale(images: tf.Tensor, shape: Size, draws: tf.Tensor | None = None) -> tf.Tensor:
    """Scales integers to [-1, 1]; does not change floating point images."""
    del shape, draws
    return _scaled(images, images.dtype)


def as_they_are(
    tokens: tf.Tensor, shape: Size, draws: tf.Tensor | None = None
) -> tf.Tensor:
    """Returns windows of tokens unchanged."""
    del shape, draws
    return tokens


def draw_items(pairs: tf.Tensor, shape: Size, draws: tf.Tensor) -> tf.Tensor:
    """Draws the random items of negative pairs.

    Args:
      pairs: int32 [batch, 3] of `towers.data.ratings`: user, item, and the number of
        items to draw one from, or 0.
      shape: (2,).
      draws: as in `Preprocessing`.

    Returns:
      int32 [batch, 2]: user, item.
    """
    del shape
    user, item, items = tf.unstack(pairs, axis=1)
    drawn = tf.cast(draws[:, 0] * tf.cast(items, tf.float32), tf.int32)
    drawn = tf.minimum(drawn, items - 1)  # the product may be rounded up
    return tf.stack([user, tf.where(items > 0, drawn, item)], axis=1)


def given_items(pairs: tf.Tensor, shape: Size) -> tf.Tensor:
    """Pairs int32 [..., 3] without items to draw, as int32 [..., 2]."""
    del shape
    return pairs[..., :2]


def cifar_training(images: tf.Tensor, shape: Size, draws: tf.Tensor) -> tf.Tensor:
    """Pads each side with 4 black pixels, then crops and mirrors (He et al. 2016)."""
    margin = [_CIFAR_PADDING, _CIFAR_PADDING]
    padded = tf.pad(images, [[0, 0], margin, margin, [0, 0]])
    return cifar_evaluation(_crop_and_mirror(padded, shape, draws), shape)


def cifar_evaluation(images: tf.Tensor, shape: Size) -> tf.Tensor:
    """Scales each channel to mean 0 and deviation 1 over CIFAR-10's training images."""
    del shape
    # Not a division: TensorFlow rewrites one by constants into a product in some graphs
    # and not in others, and the last bit differs.
    factors = [1 / deviation for deviation in _CIFAR_DEVIATION]
    return (tf.cast(images, tf.float32) - _CIFAR_MEAN) * factors


def tutorial_training(images: tf.Tensor, shape: Size, draws: tf.Tensor) -> tf.Tensor:
    """The augmentation of TensorFlow's CIFAR-10 tutorial.

    A random crop, mirrored with probability 1/2, a random brightness, a random contrast
    about each channel's mean; then each image is scaled to mean 0 and deviation 1.
    """
    x = tf.cast(_crop_and_mirror(images, shape, draws), tf.float32)
    brightness, contrast = (
        _between(bounds, draws[:, column, None, None, None])
        for bounds, column in ((_TUTORIAL_BRIGHTNESS, 3), (_TUTORIAL_CONTRAST, 4))
    )
    x += brightness
    mean = tf.reduce_mean(x, axis=[1, 2], keepdims=True)
    return tf.image.per_image_standardization((x - mean) * contrast + mean)


def tutorial_evaluation(images: tf.Tensor, shape: Size) -> tf.Tensor:
    """The central crop, with each image scaled to mean 0 and deviation 1."""
    top, left = ((have - want) // 2 for have, want in zip(images.shape[1:3], shape[:2]))
    crop = images[:, top : top + shape[0], left : left + shape[1]]
    return tf.image.per_image_standardization(crop)


def imagenet_training(images: tf.Tensor, shape: Size, draws: tf.Tensor) -> tf.Tensor:
    """A window of random area, proportions and place, resized and mirrored at random.

    Of four random windows the first that fits into the image is used (Szegedy et al.
    2015); if none fits, the first, cut to the image.  It is mirrored with probability
    1/2.
    """
    height, width = _size(images)
    areas, ratios, places = tf.split(draws, [_IMAGENET_TRIES, _IMAGENET_TRIES, 3], 1)
    area = _between(_IMAGENET_AREA, areas) * height * width
    low, high = _IMAGENET_RATIO
    ratio = tf.exp(_between((math.log(low), math.log(high)), ratios))
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


def _between(bounds: tuple[float, float], draw: tf.Tensor) -> tf.Tensor:
    """Maps a draw in [0, 1) to a number between the bounds."""
    low, high = bounds
    return low + draw * (high - low)


def _scaled(x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Scales x from the range of an integer `dtype` to [-1, 1]; else returns it."""
    x = tf.cast(x, tf.float32)
    return x if dtype.is_floating else x * (2 / dtype.max) - 1.0


def _size(images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Height and width as float32 scalars."""
    size = tf.cast(tf.shape(images), tf.float32)
    return size[1], size[2]


def _crop_and_mirror(images: tf.Tensor, shape: Size, draws: tf.Tensor) -> tf.Tensor:
    """A random window of each image, mirrored with probability 1/2; draws 0, 1 and 2.

    Gathers rows and then columns by their indices, for the whole batch; a mirrored
    window has its column indices reversed.
    """
    numbers = []
    for axis, (have, want) in enumerate(zip(images.shape[1:3], shape[:2])):
        offsets = tf.cast(draws[:, axis] * (have - want + 1), tf.int32)
        numbers.append(offsets[:, None] + tf.range(want))
    rows, columns = numbers
    mirror = draws[:, 2, None] < 0.5
    columns = tf.where(mirror, tf.reverse(columns, [1]), columns)
    crop = tf.gather(images, rows, axis=1, batch_dims=1)
    return tf.gather(crop, columns, axis=2, batch_dims=1)


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
    return _scaled(windows, images.dtype)


def _own_size(images: Shape, network: Size) -> Size:
    """The size of the data set's images; networks can read any."""
    del network
    known = tuple(length for length in images if length is not None)
    if len(known) < len(images):
        raise ValueError(
            "images that differ in size need a model that resizes them "
            '(preprocessing="imagenet")'
        )
    return known


def _windows(text: Shape, network: Size) -> Size:
    """Windows are cut to the network's length."""
    if text != network:
        raise _misfit(text, network)
    return network


def _pairs(pairs: Shape, network: Size) -> Size:
    """The shape of pairs without the column for the items to draw."""
    if pairs[-1] != 3 or network != (2,):
        raise _misfit(pairs, network)
    return _own_size((*pairs[:-1], 2), network)


def _same_size(images: Shape, network: Size) -> Size:
    """The network's shape; images must have it, and three channels."""
    if images != network:
        raise _misfit(images, network)
    if images[2] != len(_CIFAR_MEAN):
        raise ValueError(
            f"images of {images[2]} channels, and those that preprocessing='cifar' "
            f"prepares have {len(_CIFAR_MEAN)}"
        )
    return network


def _crop(images: Shape, network: Size) -> Size:
    """The network's shape; images must all have one size, which contains it."""
    fits = all(have and have >= want for have, want in zip(images, network))
    if not fits or images[2] != network[2]:
        raise _misfit(images, network)
    return network


def _any_size(images: Shape, network: Size) -> Size:
    """The network's shape; only the number of channels must be the same."""
    if images[2] != network[2]:
        raise _misfit(images, network)
    return network


def _misfit(images: Shape, network: Size) -> ValueError:
    have, want = ("x".join(str(n or "?") for n in size) for size in (images, network))
    return ValueError(f"images of {have} do not fit a model that reads {want}")


PREPROCESSING: dict[str, Preprocessing] = {
    "scale": Preprocessing("images", _own_size, scale, scale),
    "cifar": Preprocessing("images", _same_size, cifar_training, cifar_evaluation),
    "cifar_tutorial": Preprocessing(
        "images", _crop, tutorial_training, tutorial_evaluation
    ),
    "imagenet": Preprocessing(
        "images", _any_size, imagenet_training, imagenet_evaluation
    ),
    "bytes": Preprocessing("tokens", _windows, as_they_are, as_they_are),
    "words": Preprocessing("tokens", _windows, as_they_are, as_they_are),
    "pairs": Preprocessing("pairs", _pairs, draw_items, given_items),
}


def get(name: str, *, kind: str) -> Preprocessing:
    """The row of that name.

    Args:
      name: of the row.
      kind: of the data.

    Raises:
      ValueError: there is no such row for data of that kind, or no such kind.
    """
    names = [key for key, row in PREPROCESSING.items() if row.kind == kind]
    if not names:
        kinds = dict.fromkeys(row.kind for row in PREPROCESSING.values())
        raise ValueError(f"there is no data of kind {kind!r}, only {', '.join(kinds)}")
    if name not in names:
        raise ValueError(
            f"the model's inputs have preprocessing={name!r}, and for {kind} there is "
            f"{', '.join(names)}"
        )
    return PREPROCESSING[name]
