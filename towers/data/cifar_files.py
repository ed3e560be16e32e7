"""CIFAR-10 and CIFAR-100 as downloaded: the archives "python" and "binary"."""

import os
import pickle
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from towers.data import folders, slices
from towers.data.records import Records, checked_label

_SIDE, _CHANNELS = 32, 3
_PIXELS = _SIDE * _SIDE * _CHANNELS

# What a pickle of a batch may call: numpy's arrays, and texts of Python 2.
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


class _Form(NamedTuple):
    """A data set as an archive has it.

    Attributes:
      folder: of the archive.
      train, test: names of the files.
      labels: before each image of a binary file; the last counts.
      key: of the labels in a pickle; "" of a binary file.
    """

    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    labels: int
    key: str = ""


_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))

# name -> number of classes, and the archives.
SETS: dict[str, tuple[int, tuple[_Form, ...]]] = {
    "cifar10": (
        10,
        (
            _Form("cifar-10-batches-py", _BATCHES, ("test_batch",), 1, "labels"),
            _Form(
                "cifar-10-batches-bin",
                tuple(f"{name}.bin" for name in _BATCHES),
                ("test_batch.bin",),
                1,
            ),
        ),
    ),
    "cifar100": (
        100,
        (
            _Form("cifar-100-python", ("train",), ("test",), 2, "fine_labels"),
            _Form("cifar-100-binary", ("train.bin",), ("test.bin",), 2),
        ),
    ),
}


def found(folder: str) -> str:
    """The data set of which a folder holds an archive or its files; "" if none."""
    return next((name for name in SETS if _form(name, folder)), "")


def _form(name: str, folder: str) -> tuple[str, _Form] | None:
    """The folder of the files, and their form; None if there are none."""
    for form in SETS[name][1]:
        for place in (os.path.join(folder, form.folder), folder):
            first = os.path.join(place, form.train[0])
            if os.path.isfile(first) and _begins_so(first, form):
                return place, form
    return None


def _begins_so(path: str, form: _Form) -> bool:
    """Whether a file is a pickle, if the form has pickles."""
    with open(path, "rb") as file:
        return not form.key or file.read(1) in (b"\x80", b"(")


def read(folder: str, split: str, brackets: str) -> Records:
    """The records of a split.

    The batches of pickles are written to one binary file when they are first used.

    Args:
      folder: of the archive, or the one that it is in.
      split: `train` or `test`.
      brackets: a slice of it; "" for all.

    Raises:
      OSError, ValueError: a file is missing or damaged.
    """
    name = found(folder)
    place = _form(name, folder)
    assert place
    num_classes, (inside, form) = SETS[name][0], place
    files = [os.path.join(inside, file) for file in getattr(form, split)]
    for file in files:
        if not os.path.isfile(file):
            raise ValueError(f"{file} is missing; unpack the archive again")
    if form.key:
        files = [_converted(name, split, files, form.key)]
    labels = 1 if form.key else form.labels
    width = labels + _PIXELS
    for file in files:
        _check(file, width, labels - 1, num_classes)
    first, stop = slices.bounds(brackets, sum(map(os.path.getsize, files)) // width)

    def decode(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        numbers = tf.ensure_shape(tf.io.decode_raw(record, tf.uint8), [width])
        planes = tf.reshape(numbers[labels:], [_CHANNELS, _SIDE, _SIDE])
        label = checked_label(numbers[labels - 1], num_classes)
        return tf.transpose(planes, [1, 2, 0]), label

    def rows() -> tf.data.Dataset:
        every = tf.data.FixedLengthRecordDataset(files, width)
        return every.skip(first).take(stop - first)

    return Records(
        name=name,
        num_classes=num_classes,
        num_examples=stop - first,
        shape=(_SIDE, _SIDE, _CHANNELS),
        dtype=tf.uint8,
        open=lambda seed: rows(),
        decode=decode,
        path=inside,
    )


def _check(file: str, width: int, column: int, num_classes: int) -> None:
    """Checks the size of a binary file, and its labels.

    Args:
      file: of images.
      width: bytes of a label and its image.
      column: byte of the label.
      num_classes: labels are in [0, num_classes).

    Raises:
      ValueError: they are wrong.
    """
    size = os.path.getsize(file)
    if not size or size % width:
        raise ValueError(
            f"{file} is not whole: it has {size} bytes, and an image {width}; unpack "
            "the archive again"
        )
    labels = np.memmap(file, np.uint8, "r").reshape(-1, width)[:, column]
    wrong = np.flatnonzero(labels >= num_classes)
    if wrong.size:
        raise ValueError(
            f"image {wrong[0]}, counted from 0, of {file} has label "
            f"{labels[wrong[0]]}, and there are {num_classes} classes"
        )


def _converted(name: str, split: str, files: Sequence[str], key: str) -> str:
    """The path of the binary file with the images of pickles.

    Raises:
      ValueError: a file is not such a pickle.
    """
    path = folders.derived(os.path.dirname(files[0])) / f"{name}-{split}.rows"
    newest = max(map(os.path.getmtime, files))
    if os.path.exists(path) and os.path.getmtime(path) >= newest:
        return os.fspath(path)
    partial = f"{path}.{os.getpid()}"
    with open(partial, "wb") as file:
        for batch in files:
            images, labels = _unpickled(batch, key)
            np.concatenate([labels[:, None], images], axis=1).tofile(file)
    os.replace(partial, path)
    return os.fspath(path)


def _unpickled(path: str, key: str) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [images, 3072] and labels uint8 [images] of a batch.

    Raises:
      ValueError: it is not such a pickle.
    """
    with open(path, "rb") as file:
        try:
            batch = _Unpickler(file, encoding="bytes").load()
            keys = {k if isinstance(k, bytes) else k.encode(): k for k in batch}
            images = np.asarray(batch[keys[b"data"]], np.uint8)
            labels = np.asarray(batch[keys[key.encode()]], np.uint8)
            if images.shape != (len(labels), _PIXELS):
                raise ValueError(f"images of shape {list(images.shape)}")
        except Exception as error:  # a damaged pickle may raise anything
            raise ValueError(
                f"{path} is not a batch of CIFAR ({type(error).__name__}: {error}); "
                "unpack the archive again"
            ) from error
    return images, labels


class _Unpickler(pickle.Unpickler):
    """Reads arrays and lists; a pickle that calls anything else is refused."""

    def find_class(self, module: str, name: str) -> Any:
        """As of `pickle.Unpickler`."""
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it calls {module}.{name}")
        return super().find_class(module, name)
