"""The table of preprocessings, from decoded examples to the features of a network.

A row works on a batch of images of one size.  Every random choice for an example comes
from random numbers of that example:

    row = get("cifar", kind="images")
    shape = row.fit((32, 32, 3), (32, 32, 3))
    draws = example_uniform((batch_size, DRAWS), seed=seed, first=first)
    features = row.training(images, shape, draws)

so augmentation does not depend on the batch size, the number of towers or the order in
which threads finish.  Rows of `pictures` work on one image before it is decoded.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from flags.problem import wrong_setting
from towers.data import image_windows, pictures

# Shape of one example: (height, width, channels), where height and width are None if
# images differ in size; (length,) of tokens; (..., 3) of pairs from `ratings`, and
# (..., 2) of pairs for networks.
Shape = tuple[int | None, ...]
Size = tuple[int, ...]  # a static shape, as networks read it

# Uniform numbers per example, as many as `image_windows.imagenet_training` uses.
DRAWS = 11

# Mean and standard deviation of the three channels over CIFAR-10's training images.
_CIFAR_MEAN = (125.3, 123.0, 113.9)
_CIFAR_DEVIATION = (63.0, 62.1, 66.7)
_CIFAR_PADDING = 4

_TUTORIAL_BRIGHTNESS = (-63.0, 63.0)
_TUTORIAL_CONTRAST = (0.2, 1.8)


class Preprocessing(NamedTuple):
    """One row of the table.

    Attributes:
      kind: of data, a row of `inputs.KINDS`.
      fit: (shape of the data set's images, shape that the network was written for) ->
        shape of the features.  Raises ValueError if the images cannot be used.
      training: (images [batch, h, w, c], shape of the features, draws) -> float32
        [batch, *shape].  `draws` is float32 [batch, DRAWS], uniform in [0, 1).
      evaluation: (images, shape of the features) -> float32 [batch, *shape].
      of_pictures: whether the two functions take one `pictures.Picture` (and draws
        [DRAWS]) instead of a batch, and return the features of one image.
      options: names of the settings that the two functions take, as `options`.
    """

    kind: str
    fit: Callable[[Shape, Size], Size]
    training: Callable[..., tf.Tensor]
    evaluation: Callable[..., tf.Tensor]
    of_pictures: bool = False
    options: tuple[str, ...] = ()

    @property
    def distorts(self) -> bool:
        """Whether images for training are prepared in another way than others."""
        return self.training is not self.evaluation


def scale(images: tf.Tensor, shape: Size, draws: tf.Tensor | None = None) -> tf.Tensor:
    """Scales integers to [-1, 1]; does not change floating point images."""
    del shape, draws
    return image_windows.scaled(images, images.dtype)


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


def padded_training(images: tf.Tensor, shape: Size, draws: tf.Tensor) -> tf.Tensor:
    """As `cifar_training`, scaled to [-1, 1]."""
    margin = [_CIFAR_PADDING, _CIFAR_PADDING]
    padded = tf.pad(images, [[0, 0], margin, margin, [0, 0]])
    return scale(_crop_and_mirror(padded, shape, draws), shape)


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
        image_windows.between(bounds, draws[:, column, None, None, None])
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


def _three_colours(images: Shape, network: Size) -> Size:
    """The network's shape; images have three channels."""
    if images[2] != 3:
        raise _misfit(images, network)
    return _any_size(images, network)


def _misfit(images: Shape, network: Size) -> ValueError:
    have, want = ("x".join(str(n or "?") for n in size) for size in (images, network))
    return ValueError(f"images of {have} do not fit a model that reads {want}")


def _pictures_row(**keywords: Any) -> Preprocessing:
    """A row of `pictures.training`, with these of its keywords."""
    scale = {key: keywords[key] for key in keywords if key == "scale"}
    return Preprocessing(
        "images",
        _three_colours,
        functools.partial(pictures.training, **keywords),
        functools.partial(pictures.evaluation, **scale),
        of_pictures=True,
        options=pictures.PictureOptions._fields,
    )


PREPROCESSING: dict[str, Preprocessing] = {
    "scale": Preprocessing("images", _own_size, scale, scale),
    "cifar": Preprocessing("images", _same_size, cifar_training, cifar_evaluation),
    "cifar_tutorial": Preprocessing(
        "images", _crop, tutorial_training, tutorial_evaluation
    ),
    "imagenet": Preprocessing(
        "images",
        _any_size,
        image_windows.imagenet_training,
        image_windows.imagenet_evaluation,
    ),
    # Those of tf_cnn_benchmarks: for ImageNet, the same with --ml_perf, with
    # --input_preprocessor=official_models_imagenet, and for CIFAR-10.
    "tf_cnn_benchmarks": _pictures_row(),
    "tf_cnn_benchmarks_ml_perf": _pictures_row(
        scale=pictures.without_means, use_boxes=False
    ),
    "official_models_imagenet": Preprocessing(
        "images",
        _three_colours,
        pictures.official_training,
        pictures.official_evaluation,
        of_pictures=True,
    ),
    "tf_cnn_benchmarks_cifar": Preprocessing(
        "images", _same_size, padded_training, scale
    ),
    "bytes": Preprocessing("tokens", _windows, as_they_are, as_they_are),
    "words": Preprocessing("tokens", _windows, as_they_are, as_they_are),
    "pairs": Preprocessing("pairs", _pairs, draw_items, given_items),
}


def get(
    name: str, *, kind: str, options: Mapping[str, Any] | None = None
) -> Preprocessing:
    """The row of that name.

    Args:
      name: of the row.
      kind: of the data.
      options: settings of the row's functions; None stands for an unset one.

    Raises:
      ValueError: there is no such row for data of that kind, or no such kind, or the
        row does not have an option.
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
    row = PREPROCESSING[name]
    chosen = {key: value for key, value in (options or {}).items() if value is not None}
    for key, value in chosen.items():
        if key not in row.options:
            having = [n for n in names if key in PREPROCESSING[n].options]
            raise wrong_setting(
                key,
                value,
                f"the preprocessing {name} has no such option",
                f"leave it out, or choose input_preprocessor={having[0]}"
                if having
                else "leave it out",
            )
    if not chosen:
        return row
    return row._replace(
        training=functools.partial(
            row.training, options=pictures.PictureOptions(**chosen)
        ),
        evaluation=functools.partial(
            row.evaluation, options=pictures.PictureOptions(**chosen)
        ),
    )
