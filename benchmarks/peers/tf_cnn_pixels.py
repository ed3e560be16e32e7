"""tf_cnn_benchmarks' preprocessing with given random numbers; saves the pixels.

    PYTHONPATH=. python .../tf_cnn_pixels.py cases.json pixels.npz

The preprocessor is the one that its own `BenchmarkCNN` makes from its flags.  Each of
TensorFlow's random functions that it calls is replaced by the function that does the
same for a given number in [0, 1), in the range that the call asks for.  Pixels that are
bytes are made floats before they are scaled, as that fails there.

As `tf_cnn_peer.py`, this file is run as a program and imports nothing of this project.

`cases.json` is a list of cases, each a dict of

    flags   of tf_cnn_benchmarks
    file    path of a JPEG; for CIFAR-10 its upper left corner is the image
    boxes   of objects, [top, left, bottom, right] each, as shares of height and width
    index   position of the image in the batch
    draws   name of a random choice -> its number, or the seed of the crop

`pixels.npz` gets an array [height, width, 3] for each, by its number, or the reason why
the preprocessor cannot be made or run.
"""

import contextlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest import mock

import benchmark_cnn
import numpy as np
import preprocessing
import tensorflow as tf2
import tensorflow.compat.v1 as tf


def given_functions(draws: Mapping[str, Any]) -> dict[str, Callable[..., tf.Tensor]]:
    """Name -> function in place of TensorFlow's random function on images."""

    def between(name: str, low: float, high: float) -> np.float32:
        return np.float32(low) + np.float32(draws[name]) * np.float32(high - low)

    def crop(size: tf.Tensor, bounding_boxes: tf.Tensor, **options: Any) -> Any:
        return tf2.image.stateless_sample_distorted_bounding_box(
            size, bounding_boxes, draws["crop"], **options
        )

    def brightness(x: tf.Tensor, max_delta: float) -> tf.Tensor:
        delta = between("brightness", -max_delta, max_delta)
        return tf.image.adjust_brightness(x, delta)

    def hue(x: tf.Tensor, max_delta: float) -> tf.Tensor:
        return tf.image.adjust_hue(x, between("hue", -max_delta, max_delta))

    def saturation(x: tf.Tensor, lower: float, upper: float) -> tf.Tensor:
        return tf.image.adjust_saturation(x, between("saturation", lower, upper))

    def contrast(x: tf.Tensor, lower: float, upper: float) -> tf.Tensor:
        return tf.image.adjust_contrast(x, between("contrast", lower, upper))

    return {
        "sample_distorted_bounding_box": crop,
        "random_flip_left_right": lambda x: (
            tf.reverse(x, [1]) if draws["mirror"] < 0.5 else x
        ),
        "random_brightness": brightness,
        "random_hue": hue,
        "random_saturation": saturation,
        "random_contrast": contrast,
    }


def random_crop(draws: Mapping[str, Any]) -> Callable[..., tf.Tensor]:
    """The function in place of `tf.random_crop`."""

    def crop(image: tf.Tensor, size: Sequence[int]) -> tf.Tensor:
        top, left = (
            int(np.float32(draw) * (have - want + 1))
            for draw, have, want in zip(draws["place"], image.shape.as_list(), size)
        )
        return image[top : top + size[0], left : left + size[1]]

    return crop


def record(file: str, boxes: Sequence[Sequence[float]]) -> bytes:
    """An example of ImageNet as build_imagenet_data writes it."""
    example = tf.train.Example()
    feature = example.features.feature
    with open(file, "rb") as image:
        feature["image/encoded"].bytes_list.value.append(image.read())
    feature["image/class/label"].int64_list.value.append(1)
    for place, side in enumerate(("ymin", "xmin", "ymax", "xmax")):
        values = feature[f"image/object/bbox/{side}"].float_list.value
        values.extend(box[place] for box in boxes)
    return example.SerializeToString()


def pixels(case: Mapping[str, Any]) -> np.ndarray:
    """What tf_cnn_benchmarks makes of a case's image."""
    params = benchmark_cnn.setup(benchmark_cnn.make_params(**case["flags"]))
    benchmark = benchmark_cnn.BenchmarkCNN(params)
    preprocessor = benchmark.input_preprocessor or benchmark.eval_input_preprocessor
    draws = case["draws"]
    with contextlib.ExitStack() as stack:
        for module in ("tensorflow", "tensorflow.compat.v1"):
            changes = given_functions(draws)
            stack.enter_context(mock.patch.multiple(f"{module}.image", **changes))
        stack.enter_context(mock.patch.object(tf, "random_crop", random_crop(draws)))
        scale = preprocessing.normalized_image
        # It multiplies bytes, which the method `nearest` returns, by a fraction.
        of_bytes = mock.Mock(side_effect=lambda x: scale(tf.cast(x, tf.float32)))
        stack.enter_context(
            mock.patch.object(preprocessing, "normalized_image", of_bytes)
        )
        with tf.Graph().as_default(), tf.Session() as session:
            if case["flags"].get("data_name") == "cifar10":
                with open(case["file"], "rb") as file:
                    image = tf.image.decode_jpeg(file.read(), channels=3)
                corner = session.run(image)[:32, :32]
                image = preprocessor.preprocess(tf.constant(corner, tf.float32))
            else:
                example = tf.constant(record(case["file"], case["boxes"]))
                image, _ = preprocessor.parse_and_preprocess(example, case["index"])
            return session.run(image)


def main() -> None:
    """All cases."""
    tf.disable_v2_behavior()
    with open(sys.argv[1], encoding="utf-8") as file:
        cases = json.load(file)
    results: dict[str, Any] = {}
    for number, case in enumerate(cases):
        try:
            results[str(number)] = pixels(case)
        except (ImportError, ValueError) as error:  # of its own
            results[str(number)] = str(error)
    np.savez(sys.argv[2], **results)


if __name__ == "__main__":
    main()
