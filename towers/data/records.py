"""Examples before decoding, in a reproducible order.

    records = from_arrays(images, labels, num_classes=10)
    dataset = records.open(None)  # a tf.data.Dataset of arguments of `records.decode`

Those of TFDS are made by `tfds_records`, those of images in files by `image_layouts`.
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from flags.problem import Problem, SettingError
from towers.data import damage, damaged_examples, order
from towers.data.preprocessing import Shape
from towers.errors.explain import operation_error

v1 = tf.compat.v1

# Records of a split that are read by their numbers before the first step.
_CHECKED = 16

# TensorFlow's errors about files that do not agree with the data set's summary.
_DAMAGE = re.compile(
    r"(truncated|corrupted) record at \d+"
    r"|Read less bytes than requested"
    r"|input file .*? has body length \d+ bytes, which is not an exact multiple"
    r"|\S+; (No such file or directory|Is a directory|Permission denied)"
    r"|expected to contain \d+ elements? but contained\D* \d+ elements?"
    r"|Unknown image file format|Invalid (PNG|JPEG)|Could not parse example input"
    r"|label -?\d+ is not in \[\d, \d+\)"
)
_LABEL = re.compile(r"label -?\d+ is not in")
# The classes of these errors.
_OF_DATA = (
    tf.errors.DataLossError,
    tf.errors.FailedPreconditionError,
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
    tf.errors.PermissionDeniedError,
)
# The operations that read data.  Others have errors in the same words, as those that
# read checkpoints.
_READERS = re.compile(r"IteratorGetNext|DatasetToSingleElement")


class Records(NamedTuple):
    """The examples of one split, before decoding.

    "Image" also stands for the window of a text and for pairs of a user and an item.

    Attributes:
      name: of the data set.
      num_classes: labels are in [0, num_classes); of pairs, (users, items).
      num_examples: in the split.
      shape: of the images; height and width are None if images differ in size.
      dtype: of the images.
      open: (seed) -> a dataset of all records, made in the current graph.  With seed
        None the order is always the same, else it depends on `seed`, int64 [2].
      decode: record -> (image of `shape` and `dtype`, label int32: a scalar, or one for
        each token of a window or each candidate of a user).
      path: folder of the files, or "".
      locate: (records to read, or None for all) -> the first damaged record and its
        fault, or "".  None if records cannot be named.
      vocabulary: token i is its entry i; empty if tokens mean the same in all data.
      by_number: (number of a record, int64 scalar) -> a dataset of that record alone.
        Where it is not None, records are read by their numbers, and the order of an
        epoch is that of `order`.
      take: (numbers of records, int64 [count]) -> (images, labels), [count, ...] each;
        for records in memory or a mapped file, instead of `by_number`.
      place: (number of a record, int64 scalar) -> where it is, a scalar string; for
        records that are read by their numbers.
      numbered_since: version of `order` since which they are; in a run that continues
        from an older checkpoint they are read by `open`.
      encoded: record -> (image file, a scalar string; boxes of objects, float32
        [boxes, 4], see `pictures.Picture`; label int32), if images are in files.
      in_rows: (count of rows, `every`) -> the same text in `row_order.windows`.
    """

    name: str
    num_classes: int | tuple[int, int]
    num_examples: int
    shape: Shape
    dtype: tf.DType
    open: Callable[[tf.Tensor | None], tf.data.Dataset]
    decode: Callable[[Any], tuple[tf.Tensor, tf.Tensor]]
    path: str = ""
    locate: Callable[[int | None], str] | None = None
    vocabulary: tuple[bytes, ...] = ()
    by_number: Callable[[tf.Tensor], tf.data.Dataset] | None = None
    take: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]] | None = None
    place: Callable[[tf.Tensor], tf.Tensor] | None = None
    numbered_since: int = order.PERMUTED
    encoded: Callable[[Any], tuple[tf.Tensor, tf.Tensor, tf.Tensor]] | None = None
    in_rows: Callable[[int, bool], "Records"] | None = None

    @property
    def num_bytes(self) -> float:
        """Bytes of the decoded images; infinite if that is not known."""
        sizes = [size for size in self.shape if size is not None]
        if len(sizes) < len(self.shape):
            return math.inf
        return self.num_examples * math.prod(sizes) * self.dtype.size

    def repeated(self) -> "Records":
        """As many records, each of which is the first one, read once in an epoch."""

        def open_first(seed: tf.Tensor | None) -> tf.data.Dataset:
            del seed
            return self.open(None).take(1).cache().repeat(self.num_examples)

        return self._replace(open=open_first, by_number=None, take=None)

    def faults(self, numbers: Sequence[int]) -> list[str]:
        """Where those of these records are that cannot be decoded, and why.

        Args:
          numbers: of records that are read by their numbers.
        """
        assert self.by_number and self.place
        return damage.of_numbers(self.by_number, self.decode, self.place, numbers)


def from_dataset(
    make: Callable[[], tf.data.Dataset], *, num_examples: int, num_classes: int
) -> Records:
    """The records of a dataset of (image, label) pairs.

    Args:
      make: makes the dataset in the current graph; its order is always the same.
        Images are [height, width, channels], labels integer scalars.
      num_examples: number of pairs; reading fails if the dataset has another number.
      num_classes: labels are in [0, num_classes).

    Raises:
      ValueError: the dataset is not one of images and labels.
    """
    with tf.Graph().as_default():
        spec = make().element_spec
    if not (isinstance(spec, tuple) and len(spec) == 2):
        raise ValueError(f"a dataset of (image, label) pairs is needed, not of {spec}")
    image, label = spec
    if image.shape.rank != 3 or image.shape[2] is None:
        raise ValueError(f"images must be [height, width, channels], not {image.shape}")
    if label.shape.rank != 0 or not label.dtype.is_integer:
        raise ValueError(
            f"labels must be integer scalars, not {label.dtype.name} {label.shape}"
        )
    return Records(
        name="dataset",
        num_classes=num_classes,
        num_examples=num_examples,
        shape=tuple(image.shape),
        dtype=image.dtype,
        open=lambda seed: make(),
        decode=lambda record: (record[0], checked_label(record[1], num_classes)),
    )


def from_arrays(images: np.ndarray, labels: np.ndarray, *, num_classes: int) -> Records:
    """The records of images [examples, height, width, channels] and their labels.

    The arrays become constants of the graph, which cannot be larger than 2 GB.  For
    large arrays use `towers.data.from_arrays`.

    Raises:
      ValueError: shapes or labels do not fit together.
    """
    images, labels = np.asarray(images), np.asarray(labels)
    if images.ndim != 4 or labels.shape != images.shape[:1] or not images.size:
        raise ValueError(
            "images must be [examples, height, width, channels] and labels "
            f"[examples], not {list(images.shape)} and {list(labels.shape)}"
        )
    if images.dtype.kind == "f" and not np.all(finite := np.isfinite(images)):
        first = np.argmin(finite) // math.prod(images.shape[1:])
        raise ValueError(f"images must be finite, and images[{first}] is not")
    if labels.min() < 0 or labels.max() >= num_classes:
        raise ValueError(
            f"labels must be in [0, {num_classes}), not in "
            f"[{labels.min()}, {labels.max()}]"
        )
    records = from_dataset(
        lambda: tf.data.Dataset.from_tensor_slices((images, labels)),
        num_examples=len(images),
        num_classes=num_classes,
    )
    return records._replace(name="arrays")


def in_order(
    take: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]], count: int
) -> tf.data.Dataset:
    """All records that are taken by their numbers, in this order.

    Args:
      take: as in `Records`.
      count: of the records.
    """

    @tf.autograph.experimental.do_not_convert
    def one_record(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        images, labels = take(number[None])
        return images[0], labels[0]

    return tf.data.Dataset.range(count).map(one_record)


def checked_label(label: tf.Tensor, num_classes: int, *, first: int = 0) -> tf.Tensor:
    """The label as int32; fails if it is out of range, which losses on GPUs do not.

    Args:
      label: integer scalar.
      num_classes: number of classes.
      first: label of the first class, which becomes 0.
    """
    label = tf.cast(label, tf.int64)
    end = first + num_classes
    fits = (label >= first) & (label < end)
    complaint = tf.strings.format(f"label {{}} is not in [{first}, {end})", label)
    with tf.control_dependencies([tf.raw_ops.Assert(condition=fits, data=[complaint])]):
        return tf.cast(label - first, tf.int32)


def explain(error: BaseException, *, examples: Sequence[Records]) -> str | None:
    """One sentence about a session call that failed on damaged files, or None.

    It reads the files up to the damaged record.

    Args:
      error: from the call.
      examples: the records that it may have read.
    """
    if example := damaged_examples.named(error):
        return _of_example(*example, examples)
    match = _DAMAGE.search(str(error))
    if not _READERS.search(str(error)) or not (
        match or (isinstance(error, _OF_DATA) and not operation_error(error))
    ):
        return None
    for records in examples:
        if fault := records.locate and records.locate(None):
            return damaged(fault, [records.path])
    return damaged(match.group(), [r.path for r in examples]) if match else None


def _of_example(number: int, place: str, examples: Sequence[Records]) -> str:
    """The error about an example that is read by its number.

    Args:
      number: of the record.
      place: where it is, in words.
      examples: the records that it may be of.
    """
    records = next(
        (r for r in examples if r.by_number and r.path and r.path in place), examples[0]
    )
    unused = f"{place}: it is whole, but its boxes or its size cannot be used"
    faults = records.faults([number]) or [unused]
    return Problem("", None, *_without(faults[0], 1)).sentence()


def check_some(records: Records, most: int) -> None:
    """Reads a few records before the first step, which are spread over the split.

    Args:
      records: that are read by their numbers.
      most: how many may be damaged.

    Raises:
      ValueError: more of them are.
    """
    numbers = np.linspace(0, records.num_examples - 1, _CHECKED).astype(int)
    faults = records.faults(np.unique(numbers).tolist())
    if len(faults) > most:
        raise SettingError(Problem("", None, *_without(faults[0], len(faults))))


def _without(fault: str, count: int) -> tuple[str, str]:
    """The error about a damaged example, and what to do.

    Args:
      fault: where it is, and what is wrong.
      count: damaged examples that are known.
    """
    mend = "put that file back as it was"
    if _LABEL.search(fault):
        mend = "write the labels anew"
    return (
        f"the data set is damaged ({fault})",
        f"{mend}, or go on without it by `max_damaged_examples={count}`",
    )


def damaged(fault: str, paths: Sequence[str]) -> str:
    """The error about damaged files of data sets, with what to do."""
    places = " and ".join(sorted({path for path in paths if path}))
    cure = "prepare it again"
    if places:  # a user's text may be the only copy
        cure = f"put {places} back as it was, or remove and prepare it again"
    return f"the data set is damaged ({fault}): {cure}"


def permutation(n: int, seed: tf.Tensor) -> tf.Tensor:
    """The numbers 0..n-1 in an order that depends on `seed`, int64 [2]."""
    keys = tf.random.stateless_uniform([n], seed, minval=None, dtype=tf.int64)
    return tf.argsort(keys)
