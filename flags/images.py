"""The flags of how images are read and prepared."""

import dataclasses
from typing import ClassVar

from flags.field import AT_LEAST_0, field


@dataclasses.dataclass(frozen=True)
class ImageFlags:
    """How images are prepared."""

    common: ClassVar[tuple[str, ...]] = ()

    input_preprocessor: str | None = field(
        None,
        "the preprocessing of images: scale, cifar, cifar_tutorial, imagenet, "
        "tf_cnn_benchmarks, tf_cnn_benchmarks_ml_perf, tf_cnn_benchmarks_cifar or "
        "official_models_imagenet",
        unset="the model's own",
    )
    resize_method: str | None = field(
        None,
        "how images are resized, if the preprocessing lets one choose; round_robin "
        "takes each of the four in turn",
        unset="bilinear",
        choices=("nearest", "bilinear", "bicubic", "area", "round_robin"),
    )
    color_distortions: bool | None = field(
        None,
        "change brightness, saturation, hue and contrast of training images at random, "
        "if the preprocessing lets one choose",
        unset="as the preprocessing does",
    )
    distort_color_in_yiq: bool | None = field(
        None,
        "change saturation and hue by a matrix in the YIQ space, instead of in HSV",
        unset="yes",
    )
    fuse_decode_and_crop: bool | None = field(
        None,
        "decode only the part of a JPEG that training uses, if the preprocessing lets "
        "one choose",
        unset="yes",
    )
    background_class: bool = field(
        False,
        "keep ImageNet's labels as its TFRecords have them, from 1: there are 1001 "
        "classes, and class 0 has no images",
    )
    max_damaged_examples: int = field(
        0,
        "examples in an epoch that may be damaged: each is named, and left out of the "
        "means; one more ends the run",
        must=AT_LEAST_0,
    )
