"""The features of a TFDS data set that a model's `Inputs` name.

    Inputs(
        features={"image": tf.TensorSpec([64, 64, 3])},
        labels=tf.TensorSpec([64, 64, 1], tf.int32, "segmentation_mask"),
    )

reads the features `image` and `segmentation_mask` of each example of
`--data_name=oxford_iiit_pet`.  The name is that of the spec, or else its key.
"""

import os
import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tensorflow_datasets as tfds

from flags.problem import wrong_setting
from towers.data import catalog, files, tfds_records
from towers.data.examples import Examples, Parts, leaves, map_parts
from towers.data.record_index import KEPT
from towers.data.source import Request


def find(name: str, request: Request, *, splits: Sequence[str]) -> Examples:
    """The examples of a data set, with the request's features and labels.

    Args:
      name: as `tfds.load` takes it.
      request: the specs, and the folder of TFDS's data sets.
      splits: the first of these that the data set has is taken.

    Raises:
      ValueError: there is no such data set, split or feature, or a feature does not fit
        its spec.
    """
    wanted = {_key(*leaf) for leaf in leaves((request.features, request.labels))}

    def check(name: str, info: tfds.core.DatasetInfo) -> None:
        if missing := sorted(wanted - set(info.features)):
            raise wrong_setting(
                "data_name",
                name,
                f"an example has {', '.join(info.features)}, and not {missing[0]!r}",
                "name the model's features and labels as the data set does, by "
                "tf.TensorSpec(shape, dtype, name)",
            )

    builder, _ = catalog.prepared(name, request.data_dir or "", check)
    split = catalog.find_split(name, builder.info, splits)
    features = tfds.features.FeaturesDict(
        {key: builder.info.features[key] for key in wanted}
    )

    def parse(record: tf.Tensor) -> Parts:
        example = features.deserialize_example(record)

        def of(path: str, spec: tf.TensorSpec) -> tf.Tensor:
            key = _key(path, spec)
            is_image = isinstance(features[key], tfds.features.Image)
            return fitted(key, example[key], spec, is_image=is_image)

        return map_parts(of, (request.features, request.labels))

    try:
        with tf.Graph().as_default():
            parse(tf.compat.v1.placeholder(tf.string, []))
        kept = os.fspath(tfds_records.cache(builder) / KEPT)
        return files.from_records(split.file_instructions, parse, kept=kept)
    except ValueError as error:
        raise wrong_setting("data_name", name, str(error)) from error


def _key(path: str, spec: tf.TensorSpec) -> str:
    """The name of a feature: that of its spec, or its innermost key."""
    keys = [spec.name] if spec.name else re.findall(r"\['(.+?)'\]", path)
    return keys[-1] if keys else path


def fitted(
    name: str, value: Any, spec: tf.TensorSpec, *, is_image: bool = False
) -> tf.Tensor:
    """A feature as a model reads it.

    Images are resized, and scaled to [0, 1] if the model reads floats; with integers,
    as of masks, the nearest pixel is taken.  Sequences are cut, or filled with zeros.
    Texts are their bytes, or the number that they spell if the spec is a scalar.

    Args:
      name: of the feature.
      value: the tensor of one example.
      spec: of the model.
      is_image: whether it is one, [height, width, channels].

    Raises:
      ValueError: it has another number of dimensions.
    """
    if isinstance(value, tf.Tensor) and value.dtype == tf.string:
        if not spec.shape.rank:
            return tf.strings.to_number(value, spec.dtype)
        value = tf.io.decode_raw(value, tf.uint8)
    if not isinstance(value, tf.Tensor) or value.shape.rank != spec.shape.rank:
        has = f"{value.dtype.name} {value.shape}" if tf.is_tensor(value) else "a nest"
        raise ValueError(
            f"{name!r} is {has}, the model reads {spec.dtype.name} {list(spec.shape)}"
        )
    if is_image:
        if spec.dtype.is_floating:
            value = tf.image.convert_image_dtype(value, spec.dtype)
        method = "bilinear" if spec.dtype.is_floating else "nearest"
        value = tf.image.resize(value, spec.shape[:2], method)
    elif spec.shape.rank and value.shape[0] is None:
        length = spec.shape[0]
        value = value[:length]
        after = [[0, length - tf.shape(value)[0]], *[[0, 0]] * (spec.shape.rank - 1)]
        value = tf.pad(value, after)
    return tf.ensure_shape(tf.cast(value, spec.dtype), spec.shape)
