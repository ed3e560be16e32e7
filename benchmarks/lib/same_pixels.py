"""The pixels that tf_cnn_benchmarks and this project make of the same JPEGs."""

import argparse
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.lib import machine, table, tf_cnn
from benchmarks.peers.systems import Places
from towers.data import pictures, preprocessing
from towers.data.pictures import Picture, PictureOptions

v1 = tf.compat.v1

IMAGES = 4  # of each case: as many as resize methods, which take turns
_BOXES = ([0.2, 0.3, 0.7, 0.8], [0.1, 0.1, 0.3, 0.4])  # of two objects
_CORNER = 32  # pixels; an image of CIFAR-10

_COMMON = {"device": "cpu", "data_format": "NHWC", "data_dir": "unused"}
_RESNET50 = {**_COMMON, "model": "resnet50", "data_name": "imagenet"}
_CIFAR = {**_COMMON, "model": "resnet20", "data_name": "cifar10"}
_EVALUATION = {"eval": True, "train_dir": "unused"}


def cases() -> dict[str, dict[str, Any]]:
    """Name -> flags of tf_cnn_benchmarks."""
    rows: dict[str, dict[str, Any]] = {}
    for method in (*pictures.RESIZE_METHODS, pictures.ROUND_ROBIN):
        for fused in (True, False):
            for colours in (False, True):
                words = ["training", method, *["colours"] * colours]
                rows[" ".join([*words, *["not fused"] * (not fused)])] = {
                    **_RESNET50,
                    "resize_method": method,
                    "fuse_decode_and_crop": fused,
                    "distortions": colours,
                    "distort_color_in_yiq": False,
                }
        flags = {**_RESNET50, "resize_method": method, "distortions": False}
        rows[f"evaluation {method}"] = flags | _EVALUATION
    for name, flags in (
        ("ml_perf", {"ml_perf": True}),
        ("official", {"input_preprocessor": "official_models_imagenet"}),
    ):
        flags = {**_RESNET50, "distortions": False, **flags}
        rows[f"training {name}"] = flags
        rows[f"evaluation {name}"] = flags | _EVALUATION
    for distorts in (True, False):
        words = ["training cifar10", *["distortions"] * distorts]
        rows[" ".join(words)] = {**_CIFAR, "distortions": distorts}
    rows["training YIQ colours"] = {**_RESNET50, "distortions": True}
    rows["evaluation cifar10"] = {**_CIFAR, **_EVALUATION}
    return rows


def show(options: argparse.Namespace, places: Places) -> int:
    """Compares and prints; returns the exit status, 1 if a difference is above 1."""
    packages = [os.path.abspath(path) for path in [options.official_models] if path]
    pixels, reasons = differences(
        options.preprocessing, places, timeout=options.timeout, packages=packages
    )
    title = ["preprocessing", "pixel of 255"]
    rows = [[name, f"{value:.1e}"] for name, value in pixels.items()]
    rows += [[name, "not run"] for name in reasons]
    print("\n".join(table.table_lines(title, rows)))
    above = sum(not value <= 1 for value in pixels.values())
    print(f"\n{above} of {len(pixels)} cases are above 1; {len(reasons)} were not run")
    for name, reason in reasons.items():
        print(f"{name}: {reason}")
    if options.json:
        machine.write_json(options.json, {"pixels": pixels, "not_run": reasons})
    return 1 if above or not pixels else 0


def differences(
    files: Sequence[str],
    places: Places,
    *,
    timeout: float,
    packages: Sequence[str] = (),
) -> tuple[dict[str, float], dict[str, str]]:
    """The largest difference of a pixel in each case.

    Args:
      files: JPEGs, which take turns.
      places: where tf_cnn_benchmarks is.
      timeout: seconds for all cases there.
      packages: folders of packages that its preprocessors import.

    Returns:
      Name of the case -> the difference, where a pixel is from 0 to 255; and the
      reasons of those that cannot be run there.
    """
    flags = cases()
    images = [
        (name, index, rng.random(preprocessing.DRAWS, np.float32))
        for rng in [np.random.default_rng(1)]
        for name in flags
        for index in range(IMAGES)
    ]
    arguments = [
        case(flags[name], files[index % len(files)], index, draws)
        for name, index, draws in images
    ]
    with tempfile.TemporaryDirectory(prefix="same_pixels") as folder:
        pixels_path = os.path.join(folder, "pixels.npz")
        said = tf_cnn.run_driver(
            "tf_cnn_pixels",
            arguments,
            os.path.join(folder, "cases.json"),
            pixels_path,
            places=places,
            timeout=timeout,
            packages=packages,
        )
        if not os.path.exists(pixels_path):
            return {}, dict.fromkeys(flags, said)
        with np.load(pixels_path) as arrays:
            theirs = [arrays[str(number)] for number in range(len(images))]
    worst, reasons = {}, {}
    for (name, index, draws), there in zip(images, theirs):
        if there.dtype.kind == "U":  # a text
            reasons[name] = str(there)
            continue
        here, unit = ours(flags[name], files[index % len(files)], index, draws)
        apart = float(np.max(np.abs(here - there))) / unit
        worst[name] = max(worst.get(name, 0.0), apart)
    return worst, reasons


def case(
    flags: Mapping[str, Any], file: str, index: int, draws: np.ndarray
) -> dict[str, Any]:
    """An image as the driver takes it; the arguments are those of `ours`."""
    return {
        "flags": flags,
        "file": os.path.abspath(file),
        "boxes": _BOXES,
        "index": index,
        "draws": _named(draws, cifar=flags["data_name"] == "cifar10"),
    }


def ours(
    flags: Mapping[str, Any], file: str, index: int, draws: np.ndarray
) -> tuple[np.ndarray, float]:
    """The features of an image, and the size of one of 255 steps of a pixel in them.

    Args:
      flags: of tf_cnn_benchmarks.
      file: path of a JPEG.
      index: of the example in the stream.
      draws: float32 [DRAWS] in [0, 1).
    """
    settings = tf_cnn.translation_of(flags).settings
    options = {name: settings.get(name) for name in PictureOptions._fields}
    row = preprocessing.get(
        settings["input_preprocessor"], kind="images", options=options
    )
    trains = settings.get("augment", True) and not flags.get("eval")
    with open(file, "rb") as opened:
        image = opened.read()
    with tf.Graph().as_default(), v1.Session() as session:
        if not row.of_pictures:
            shape = (_CORNER, _CORNER, 3)
            corner = tf.io.decode_jpeg(image, 3)[None, :_CORNER, :_CORNER]
            images = tf.ensure_shape(corner, (1, *shape))
            batch = tf.constant(draws)[None]
            if trains:
                features = row.training(images, shape, batch)
            else:
                features = row.evaluation(images, shape)
            return session.run(features)[0], 1 / 127.5
        picture = Picture(
            tf.constant(image), tf.constant(_BOXES), tf.constant(index, tf.int64)
        )
        shape = (224, 224, 3)
        if trains:
            features = row.training(picture, shape, tf.constant(draws))
        else:
            features = row.evaluation(picture, shape)
        values = session.run(features)
    scaled = settings["input_preprocessor"] == "tf_cnn_benchmarks"
    return values, 1 / 127.5 if scaled else 1.0


def _named(draws: np.ndarray, *, cifar: bool) -> dict[str, Any]:
    """The random numbers as the driver takes them."""
    if cifar:
        return {"place": draws[:2].tolist(), "mirror": float(draws[2])}
    names = {
        "mirror": pictures.MIRROR,
        "brightness": pictures.BRIGHTNESS,
        "saturation": pictures.SATURATION,
        "hue": pictures.HUE,
        "contrast": pictures.CONTRAST,
    }
    seed = draws[list(pictures.CROP)] * 2.0**pictures.BITS_OF_DRAW
    return {
        **{name: float(draws[place]) for name, place in names.items()},
        "crop": seed.astype(np.int32).tolist(),
    }
