"""Images in files as they are downloaded or written: TFRecords, folders and batches.

    records = find("imagenet", splits=("train",), data_dir="/data/imagenet")

* TFRecords `train-00000-of-01024`, as build_imagenet_data writes them.
* A folder of images for each class, in folders for each split or without.
* CIFAR-10 and CIFAR-100, as `cifar_files` reads them.

What is in the folder decides.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from flags.problem import SettingError, wrong_setting
from towers.data import catalog, cifar_files, folders, record_index, slices
from towers.data.record_index import RecordIndex, outside
from towers.data.records import Records, checked_label

_plain = tf.autograph.experimental.do_not_convert

_IMAGENET = "imagenet"
_TFDS_IMAGENET = "imagenet2012"  # the name of the same images there
_CLASSES = 1000  # in the TFRecords
_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})")
_IMAGE = re.compile(r"\.(jpe?g|png|bmp|gif|webp)$", re.IGNORECASE)
_SHOWN = 4  # names that an error lists, at most

# Names of the folder of a split.
_FOLDERS = {"validation": ("validation", "val", "valid"), "train": ("train",)}


class _Place(NamedTuple):
    """A folder that a setting names."""

    setting: str
    folder: str

    def wrong(self, message: str, remedy: str = "") -> SettingError:
        return wrong_setting(self.setting, self.folder, message, remedy)


def find(name: str, *, splits: Sequence[str], data_dir: str = "") -> Records | None:
    """The records of a split of images in files.

    Args:
      name: `imagenet`, `cifar10` or `cifar100`, whose files are in `data_dir`; or the
        path of a folder with any of the layouts.
      splits: the first of these that the data set has is used; it may be a part of a
        split (`train[:90%]`).
      data_dir: the folder of the files.

    Returns:
      None if it is for TFDS to find the data set.

    Raises:
      ValueError: the folder holds something else, or the files are not whole.
    """
    is_path = name[:1] in ("/", ".", "~") or "://" in name
    if not is_path and name not in (_IMAGENET, *cifar_files.SETS):
        return None
    if not is_path and not data_dir:
        if name != _IMAGENET:
            return None
        raise wrong_setting(
            "data_name",
            name,
            "its files cannot be downloaded without an account",
            f"name their folder with `data_dir`, or prepare TFDS's {_TFDS_IMAGENET}",
        )
    folder = os.path.expanduser(name if is_path else data_dir)
    place = _Place("data_name" if is_path else "data_dir", folder)
    listed = folders.listed(*place)
    layout = _layout(folder, listed)
    holds = {name} if not is_path else {_IMAGENET, *cifar_files.SETS}
    if layout is None or not (layout.sets & holds):
        if name in cifar_files.SETS and (layout is None):
            return None  # TFDS prepares it there
        remedy = "see docs/data.md for the layouts that are read"
        if _TFDS_IMAGENET in listed:
            remedy = f"write {_TFDS_IMAGENET} as `data_name`, this folder as `data_dir`"
        raise place.wrong(
            f"holds {layout.words if layout else _words(listed)}, and not "
            + ("images" if is_path else f"the files of {name}"),
            remedy,
        )
    try:
        records = _first_split(place, layout, splits)
    except slices.SliceError as error:
        raise wrong_setting("data_name", name, f"split {splits[0]}: {error}") from error
    return records._replace(name=os.path.basename(os.path.normpath(name)))


def with_background(records: Records) -> Records:
    """ImageNet with labels from 1, and class 0 for the background.

    Raises:
      ValueError: it is another data set.
    """
    if not records.name.startswith(_IMAGENET):
        raise wrong_setting(
            "background_class",
            True,
            f"is for ImageNet, and not for {records.name}",
            "leave it out",
        )
    decode, encoded = records.decode, records.encoded

    def shifted(parts: Callable[[Any], tuple[tf.Tensor, ...]]) -> Callable[..., Any]:
        def from_1(record: Any) -> tuple[tf.Tensor, ...]:
            *images, label = parts(record)
            return (*images, label + 1)

        return from_1

    assert isinstance(records.num_classes, int)
    return records._replace(
        num_classes=records.num_classes + 1,
        decode=shifted(decode),
        encoded=encoded and shifted(encoded),
    )


class _Layout(NamedTuple):
    """What a folder holds.

    Attributes:
      sets: the data sets that it may be.
      words: the same for a user.
      splits: names of the splits.
      read: (place, split, slice in brackets) -> records.
    """

    sets: set[str]
    words: str
    splits: list[str]
    read: Callable[[_Place, str, str], Records]


def _words(listed: Sequence[str]) -> str:
    """What is in a folder of another kind."""
    if not listed:
        return "nothing"
    return ", ".join(listed[:_SHOWN]) + (" and others" if listed[_SHOWN:] else "")


def _layout(folder: str, listed: Sequence[str]) -> _Layout | None:
    """What a folder holds, or None if that is not known."""
    shards: dict[str, None] = {}
    for name in listed:
        if match := _SHARD.fullmatch(name):
            shards[match[1]] = None
    if set(shards) & {"train", "validation"}:
        words = f"TFRecords of {' and '.join(shards)}"
        return _Layout({_IMAGENET}, words, list(shards), _of_tfrecords)
    if cifar := cifar_files.found(folder):
        return _Layout({cifar}, f"{cifar}'s batches", ["train", "test"], _of_cifar)
    by_split = {
        split: name
        for split, names in _FOLDERS.items()
        for name in names
        if name in listed and _classes(os.path.join(folder, name))
    }
    if by_split or _classes(folder):
        splits = list(by_split) or ["train"]
        return _Layout({_IMAGENET}, "folders of images", splits, _of_folders)
    return None


def _first_split(place: _Place, layout: _Layout, splits: Sequence[str]) -> Records:
    for split in splits:
        base, bracket, rest = split.partition("[")
        if base in layout.splits:
            return layout.read(place, base, bracket + rest)
    raise place.wrong(
        f"there is no split {' or '.join(splits)}, only {', '.join(layout.splits)}"
        f"{catalog.INSTEAD.get(tuple(splits), '')}"
    )


def _of_tfrecords(place: _Place, split: str, brackets: str) -> Records:
    """The records that build_imagenet_data writes.

    Raises:
      ValueError: a shard is missing or not whole.
    """
    names = [
        n
        for n in folders.listed(*place)
        if (m := _SHARD.fullmatch(n)) and m[1] == split
    ]
    counts = Counter(int(_SHARD.fullmatch(name)[3]) for name in names)  # type: ignore[index]
    if len(counts) > 1:
        told = " and ".join(f"{n} of {of}" for of, n in counts.items())
        raise place.wrong(f"holds shards of two sets of {split}: {told}")
    ((total, _),) = counts.items()
    wanted = [f"{split}-{number:05d}-of-{total:05d}" for number in range(total)]
    if lacking := sorted(set(wanted) - set(names)):
        raise place.wrong(
            f"{_words(lacking)} {'are' if lacking[1:] else 'is'} missing: "
            f"{len(lacking)} of {total} files of {split}",
            "copy them there",
        )
    paths = [os.path.join(place.folder, name) for name in wanted]
    try:
        kept = folders.derived(place.folder) / record_index.KEPT
        index = RecordIndex(paths, kept=os.fspath(kept))
    except (ValueError, tf.errors.OpError) as error:
        words = str(getattr(error, "message", error)).splitlines()[0]
        raise place.wrong(words) from error
    first, stop = slices.bounds(brackets, index.count)
    features = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    }
    sides = [f"image/object/bbox/{side}" for side in ("ymin", "xmin", "ymax", "xmax")]
    of_box = tf.io.FixedLenSequenceFeature([], tf.float32, allow_missing=True)

    def encoded(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        parts = tf.io.parse_single_example(
            record, features | dict.fromkeys(sides, of_box)
        )
        boxes = tf.stack([parts[side] for side in sides], axis=1)
        label = checked_label(parts["image/class/label"], _CLASSES, first=1)
        return parts["image/encoded"], boxes, label

    return _records(
        place.folder,
        _CLASSES,
        stop - first,
        by_number=lambda number: index.by_number(first + number),
        place=lambda number: index.place(first + number),
        encoded=encoded,
    )


def _classes(folder: str) -> list[str]:
    """The folders in a folder whose first file is an image."""
    if "://" in folder:
        return []
    with os.scandir(folder) as entries:
        classes = sorted(e.name for e in entries if e.is_dir() and e.name[0] != ".")
    images = (n for name in classes[:_SHOWN] for n in os.listdir(f"{folder}/{name}"))
    return classes if any(_IMAGE.search(name) for name in images) else []


def _of_folders(place: _Place, split: str, brackets: str) -> Records:
    """Images in a folder for each class; the classes are in the order of their names.

    Raises:
      ValueError: a class has no image, or a split has other classes than `train`.
    """

    def folder_of(split: str) -> str:
        known = [os.path.join(place.folder, n) for n in _FOLDERS.get(split, ())]
        return next(filter(os.path.isdir, known), place.folder)

    folder, classes = folder_of(split), _classes(folder_of("train"))
    if others := sorted(set(_classes(folder)) - set(classes)):
        raise place.wrong(f"{split} has a class that train has not: {others[0]}")
    files: list[bytes] = []
    numbers: list[int] = []
    for number, name in enumerate(classes):
        inside = os.path.join(folder, name)
        listed = sorted(os.listdir(inside)) if os.path.isdir(inside) else []
        images = [os.fsencode(f"{name}/{n}") for n in listed if _IMAGE.search(n)]
        if not images and split == "train":
            raise place.wrong(
                f"the class {inside} has no images", "remove its folder, or fill it"
            )
        files += images
        numbers += [number] * len(images)
    first, stop = slices.bounds(brackets, len(files))
    ends = np.cumsum([0, *map(len, files)])[first : stop + 1]
    # A graph holds one long string more easily than a million short ones.
    joined, labels = b"".join(files), np.array(numbers[first:stop], np.int32)

    def path(number: tf.Tensor) -> tf.Tensor:
        bounds = tf.gather(outside(ends), tf.stack([number, number + 1]))
        name = tf.strings.substr(outside(joined), bounds[0], bounds[1] - bounds[0])
        return tf.strings.join([folder, "/", name])

    @_plain
    def read(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.io.read_file(path(number)), tf.gather(outside(labels), number)

    def encoded(record: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        image, label = record
        return image, tf.zeros([0, 4]), label

    return _records(
        folder,
        len(classes),
        stop - first,
        by_number=lambda number: tf.data.Dataset.from_tensors(number).map(read),
        place=path,
        encoded=encoded,
    )


def _records(
    folder: str,
    num_classes: int,
    num_examples: int,
    *,
    by_number: Callable[[tf.Tensor], tf.data.Dataset],
    place: Callable[[tf.Tensor], tf.Tensor],
    encoded: Callable[[Any], tuple[tf.Tensor, tf.Tensor, tf.Tensor]],
) -> Records:
    """Records of image files of any size, in colours, that are read by number."""

    def decode(record: Any) -> tuple[tf.Tensor, tf.Tensor]:
        image, _, label = encoded(record)
        pixels = tf.io.decode_image(image, 3, expand_animations=False)
        return tf.ensure_shape(pixels, [None, None, 3]), label

    @_plain
    def in_order(number: tf.Tensor) -> tf.data.Dataset:
        return by_number(number)

    return Records(
        name="",
        num_classes=num_classes,
        num_examples=num_examples,
        shape=(None, None, 3),
        dtype=tf.uint8,
        open=lambda seed: tf.data.Dataset.range(num_examples).flat_map(in_order),
        decode=decode,
        path=folder,
        by_number=by_number,
        place=place,
        encoded=encoded,
    )


def _of_cifar(place: _Place, split: str, brackets: str) -> Records:
    try:
        return cifar_files.read(place.folder, split, brackets)
    except slices.SliceError:
        raise
    except (OSError, ValueError) as error:
        raise place.wrong(str(error)) from error
