"""The records of TFDS data sets that are prepared as TFRecord files.

    records = from_tfds(builder, builder.info.splits["train"], keys=("image", "label"))

TFDS's files are read here instead of by `tfds.load`, so that examples are found by
their numbers, or are shuffled and skipped before they are decoded.
"""

import functools
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

from towers.data import damage, folders, order
from towers.data.reading_session import reading_session
from towers.data.record_index import KEPT, RecordIndex
from towers.data.records import Records, checked_label, damaged, permutation
from towers.errors.explain import cause

v1 = tf.compat.v1

# Files that are interleaved, and consecutive records from each, as in TFDS.
_FILES_AT_ONCE = 16
_RECORDS_IN_A_ROW = 16


def from_tfds(
    builder: tfds.core.DatasetBuilder, split: Any, *, keys: tuple[str, str]
) -> Records:
    """The records of a split of a prepared image classification data set.

    Images may have any format that `tf.io.decode_image` reads; of several frames the
    first is used.

    Args:
      builder: its files are TFRecords.
      split: an entry of `builder.info.splits`, or a part of one.
      keys: of the image and of the label among the features.
    """
    features = tfds.features.FeaturesDict(
        {key: builder.info.features[key] for key in keys}
    )
    image, label = (features[key] for key in keys)
    encoded = {keys[0]: tfds.decode.SkipDecoding()}

    def parts(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        example = features.deserialize_example(record, decoders=encoded)
        return example[keys[0]], checked_label(example[keys[1]], label.num_classes)

    @tf.autograph.experimental.do_not_convert
    def decode(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        file, number = parts(record)
        return _decoded(file, image), number

    def of_picture(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        file, number = parts(record)
        return file, tf.zeros([0, 4]), number

    @functools.cache
    def locate(most: int | None) -> str:
        return damage.first(split.file_instructions, decode, most=most)

    @functools.cache
    def index() -> RecordIndex:  # when it is needed, as it takes time
        return _index(builder, split)

    of_any_size = image.np_dtype == np.uint8 and tuple(image.shape) == (None, None, 3)
    return Records(
        name=builder.info.full_name,
        num_classes=label.num_classes,
        num_examples=split.num_examples,
        shape=tuple(image.shape),
        dtype=tf.as_dtype(image.np_dtype),
        open=lambda seed: read_tfds(split.file_instructions, seed),
        decode=decode,
        path=os.fspath(builder.data_path),
        locate=locate,
        by_number=lambda number: index().by_number(number),
        place=lambda number: index().place(number),
        numbered_since=order.NUMBERED,
        encoded=of_picture if of_any_size else None,
    )


def cache(builder: tfds.core.DatasetBuilder) -> pathlib.Path:
    """A folder for files derived from a prepared data set: its own, if writable."""
    folder = pathlib.Path(os.fspath(builder.data_path))
    return folders.derived(folder, builder.info.full_name)


def _index(builder: tfds.core.DatasetBuilder, split: Any) -> RecordIndex:
    """The places of the records of a split, kept beside its files.

    Raises:
      ValueError: a file is not whole.
    """
    files = split.file_instructions
    names = [os.fspath(file.filename) for file in files]
    cuts = [(file.skip, file.take) for file in files]
    try:
        return RecordIndex(names, cuts, kept=os.fspath(cache(builder) / KEPT))
    except (OSError, ValueError) as error:
        raise ValueError(damaged(str(error), [os.fspath(builder.data_path)])) from error


def _decoded(encoded: tf.Tensor, image: tfds.features.Image) -> tf.Tensor:
    """The image of a record, of the shape and dtype that its data set declares.

    TFDS reads an animation, as in GIF and WebP files, as several images, and does not
    check the declared size.

    Args:
      encoded: scalar string.
      image: the declaration.
    """
    if image.np_dtype == np.float32:  # in the bytes of a PNG
        return tf.ensure_shape(image.decode_example(encoded), image.shape)
    pixels = tf.io.decode_image(
        encoded, image.shape[-1], tf.as_dtype(image.np_dtype), expand_animations=False
    )
    return tf.ensure_shape(pixels, image.shape)


def read_tfds(files: Sequence[Any], seed: tf.Tensor | None) -> tf.data.Dataset:
    """Serialized examples of TFDS `FileInstruction`s, several files interleaved.

    Args:
      files: of a split.
      seed: int64 [2], of the order of the files; None for their own.
    """
    columns = (
        tf.constant([os.fspath(file.filename) for file in files]),
        tf.constant([file.skip for file in files], tf.int64),
        tf.constant([file.take for file in files], tf.int64),
    )
    if seed is not None:
        order = permutation(len(files), seed)
        columns = tuple(tf.gather(column, order) for column in columns)

    @tf.autograph.experimental.do_not_convert
    def read_one(
        filename: tf.Tensor, skip: tf.Tensor, take: tf.Tensor
    ) -> tf.data.Dataset:
        return tf.data.TFRecordDataset(filename).skip(skip).take(take)

    return tf.data.Dataset.from_tensor_slices(columns).interleave(
        read_one,
        cycle_length=min(len(files), _FILES_AT_ONCE),
        block_length=_RECORDS_IN_A_ROW,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )


def read_batches(
    files: Sequence[Any], features: tfds.features.FeaturesDict
) -> Iterator[dict[str, np.ndarray]]:
    """Reads a split of a TFDS data set at once, in a session of its own.

    Args:
      files: of the split, as for `read_tfds`.
      features: the features of an example to read.

    Yields:
      name of the feature -> its values in the next examples, in order.

    Raises:
      ValueError: a file is missing, or a record is damaged.
    """

    @tf.autograph.experimental.do_not_convert
    def decode(record: tf.Tensor) -> dict[str, tf.Tensor]:
        return features.deserialize_example(record)

    with reading_session() as session:
        examples = read_tfds(files, None).map(decode).batch(1024)
        following = v1.data.make_one_shot_iterator(examples).get_next()
        while True:
            try:
                yield session.run(following)
            except tf.errors.OutOfRangeError:
                return
            except tf.errors.OpError as error:
                fault = damage.first(files, decode) or cause(error)
                folder = os.path.dirname(files[0].filename)
                raise ValueError(damaged(fault, [folder])) from error
