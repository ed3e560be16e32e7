"""A text as windows of tokens: of a file, of a folder of files, or of a TFDS data set.

    records = find("shakespeare", request, splits=("train",))

Window i of L tokens begins at token i x L, and its label is the L tokens that begin
one later: every token but the text's first is predicted once.  A last window that is
not full is left out.

Texts are read as plain files.  A TFDS data set becomes one when it is first used: its
texts, one to a line.
"""

import collections
import os
import pathlib
import re
import urllib.parse
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

from towers.data import catalog, records
from towers.data.feed import Request
from towers.data.records import Records

# To shuffle, a file is cut into pieces, which come in another order in every epoch and
# are interleaved.
_PIECES = 64
_PIECES_AT_ONCE = 16

# Texts up to this size are cut into words, which takes some ten times as much memory.
_MOST_BYTES_OF_WORDS = 2**29

# How compressed files begin, as patterns.
_COMPRESSED = {
    "gzip": rb"\x1f\x8b\x08",
    "bzip2": rb"BZh[1-9]1AY&SY",
    "xz": rb"\xfd7zXZ\x00",
    "zip": rb"PK\x03\x04",
    "zstd": rb"\x28\xb5\x2f\xfd",
}

_END_OF_LINE = b"<eos>"
_UNKNOWN = b"<unk>"


class Part(NamedTuple):
    """A stretch of a file, from byte `start` to before byte `stop`."""

    path: str
    start: int
    stop: int

    def read(self) -> bytes:
        """What stands there."""
        with open(self.path, "rb") as file:
            file.seek(self.start)
            return file.read(self.stop - self.start)


# Split -> where it is, or None where there is no such split.
Splits = Callable[[str], Part | None]


def find(name: str, request: Request, *, splits: Sequence[str]) -> Records:
    """The windows of a text.

    Args:
      name: the path of a plain text file, whose last tenth is `validation` and the
        rest `train`; or that of a folder, with a file for each split (see `_folder`);
        or a TFDS data set with a text in each example.
        A path begins with `/`, `.` or `~`, ends with `.txt`, or is that of a file.
      request: length of a window; `preprocessing` is a row of `TOKENS`.
      splits: the first of these that the text has is taken.

    Raises:
      ValueError: there is no such text or split, or it is too short or compressed.
    """
    path = pathlib.Path(name).expanduser()
    if path.is_dir() and name[0] in "/.~":
        inside = "no plain files" if any(path.iterdir()) else "an empty folder"
        known = sorted(file.name for file in _files(path)) or [inside]
        label, find_split = name, _folder(path, name)
    elif path.is_file() or name[0] in "/.~" or name.endswith(".txt"):
        label, find_split = name, _file(path, name)
        known = ["train", "validation"]
    else:
        label, find_split, known = _tfds(name, request.data_dir or "")
    found = ((split, part) for split in splits if (part := find_split(split)))
    split, part = next(found, (None, None))
    if part is None:
        raise ValueError(
            f"--data_name={name}: there is no split {' or '.join(splits)}, only "
            f"{', '.join(known)}"
        )
    _check_plain(name, part)
    windows = TOKENS[request.preprocessing](part, find_split, request)
    if not windows.num_examples:
        (length,) = request.shape
        raise ValueError(
            f"--data_name={name}: its split {split}, of {part.stop - part.start} "
            f"bytes, is too short for a window of {length} tokens and the one after "
            "it; name a longer text"
        )
    return windows._replace(name=label)


def _check_plain(name: str, part: Part) -> None:
    """Refuses what is compressed: its bytes and words are not those of the text.

    Raises:
      ValueError: it is.
    """
    begin = part._replace(start=0, stop=16).read()
    for kind, pattern in _COMPRESSED.items():
        if re.match(pattern, begin):
            raise ValueError(
                f"--data_name={name}: {part.path} is compressed with {kind}; unpack "
                "it, and name the text"
            )


def _file(path: pathlib.Path, name: str) -> Splits:
    """A file with two splits."""
    try:
        size = path.stat().st_size
        path.open("rb").close()
    except OSError as error:
        raise ValueError(f"--data_name={name}: {error.strerror or error}") from error
    cut = size * 9 // 10
    parts = {
        "train": Part(os.fspath(path), 0, cut),
        "validation": Part(os.fspath(path), cut, size),
    }
    return parts.get


def _folder(path: pathlib.Path, name: str) -> Splits:
    """A folder with a file for each split.

    A split is the one file whose name has the split's in it as a word, which stands
    beside neither a letter nor a digit: `test` is `test.txt` or `ptb.test.txt`, and not
    `contest.txt`.  Upper case or lower case, and `valid` is `validation`.
    """

    def split(wanted: str) -> Part | None:
        found = [file for file in _files(path) if _has_word(file.name, wanted)]
        if len(found) > 1:
            names = " or ".join(sorted(file.name for file in found))
            raise ValueError(
                f"--data_name={name}: which is the split {wanted}, {names}? Leave one "
                "in the folder, or give the others other names"
            )
        for other in ("train", "validation", "test"):
            if (
                found
                and not _has_word(wanted, other)
                and _has_word(found[0].name, other)
            ):
                raise ValueError(
                    f"--data_name={name}: which split is {found[0].name}, {wanted} or "
                    f"{other}? Give it a name with one of them"
                )
        return _whole(found[0]) if found else None

    return split


def _has_word(file_name: str, split: str) -> bool:
    both = split in ("valid", "validation")
    words = "valid|validation" if both else re.escape(split)
    edge = r"[^\W_]"  # a letter or a digit
    pattern = rf"(?<!{edge})({words})(?!{edge})"
    return re.search(pattern, file_name, re.IGNORECASE) is not None


def _files(folder: pathlib.Path) -> list[pathlib.Path]:
    """The files that may be splits: not those that are hidden, as an editor's own."""
    return [
        path
        for path in folder.iterdir()
        if path.is_file() and not path.name.startswith(".")
    ]


def _whole(path: pathlib.Path) -> Part:
    return Part(os.fspath(path), 0, path.stat().st_size)


def _tfds(name: str, data_dir: str) -> tuple[str, Splits, list[str]]:
    """The data set's full name, its splits as plain files, and their names."""
    builder, key = catalog.prepared(name, data_dir, _text_key)

    def split(wanted: str) -> Part | None:
        try:
            files = builder.info.splits[wanted].file_instructions
        except (KeyError, ValueError):
            return None
        path = catalog.cache(builder) / f"{urllib.parse.quote(wanted, safe='')}.txt"
        if not path.exists():
            feature = {key: builder.info.features[key]}
            _write(path, files, tfds.features.FeaturesDict(feature))
        return _whole(path)

    return builder.info.full_name, split, list(builder.info.splits)


def _text_key(name: str, info: tfds.core.DatasetInfo) -> str:
    """The key of the text among the features of an example.

    It is `text`, or else the first of what a model is to be trained on.
    """
    for key in ("text", *(info.supervised_keys or ())[:1]):
        if key in info.features and isinstance(info.features[key], tfds.features.Text):
            return key
    raise ValueError(
        f"--data_name={name}: not a text data set; an example has "
        f"{', '.join(info.features)}"
    )


def _write(
    path: pathlib.Path, files: Any, features: tfds.features.FeaturesDict
) -> None:
    """Writes the texts of TFDS files into one plain file, one to a line."""
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    with open(partial, "wb") as file:
        between = b""
        for batch in records.read_batches(files, features):
            (texts,) = batch.values()
            file.write(between + b"\n".join(texts))
            between = b"\n"
    os.replace(partial, path)


def _bytes(part: Part, splits: Splits, request: Request) -> Records:
    """Each byte is a token; windows are read from the file as they are needed."""
    del splits
    (length,) = request.shape
    count = max(0, part.stop - part.start - 1) // length

    def piece(first: tf.Tensor | int, number: tf.Tensor | int) -> tf.data.Dataset:
        """The (window, label) pairs of `number` windows, from window `first` on."""
        begin = part.start + first * length
        end = os.path.getsize(part.path) - begin - number * length
        return tf.data.Dataset.zip(
            tuple(
                tf.data.FixedLengthRecordDataset(
                    part.path, length, begin + later, end - later
                )
                for later in (0, 1)
            )
        )

    @tf.autograph.experimental.do_not_convert
    def read_piece(bounds: tf.Tensor) -> tf.data.Dataset:
        return piece(bounds[0], bounds[1] - bounds[0])

    def windows(seed: tf.Tensor | None) -> tf.data.Dataset:
        if seed is None:
            return piece(0, count)
        ends = np.linspace(0, count, min(count, _PIECES) + 1).astype(np.int64)
        bounds = np.stack([ends[:-1], ends[1:]], axis=1)
        order = records.permutation(len(bounds), seed)
        return tf.data.Dataset.from_tensor_slices(tf.gather(bounds, order)).interleave(
            read_piece, cycle_length=_PIECES_AT_ONCE
        )

    def tokens(text: tf.Tensor) -> tf.Tensor:
        codes = tf.cast(tf.io.decode_raw(text, tf.uint8), tf.int32)
        return tf.ensure_shape(codes, [length])

    return Records(
        name=part.path,
        num_classes=256,
        num_examples=count,
        shape=(length,),
        dtype=tf.int32,
        open=windows,
        decode=lambda record: (tokens(record[0]), tokens(record[1])),
        path=part.path,
    )


def _words(part: Part, splits: Splits, request: Request) -> Records:
    """Each word is a token, and each end of a line; the rarest are all `<unk>`.

    The words are those of the split `train`, or, where there is none, of what is
    trained on.
    """
    (length,) = request.shape
    if part.stop - part.start > _MOST_BYTES_OF_WORDS:
        raise ValueError(
            f"{part.path} is too large to be cut into words in memory; use a part of "
            "it, or a model that reads bytes"
        )
    words = request.vocabulary
    if not words:
        words = vocabulary(_cut(splits("train") or part), request.num_classes)
    ids = {word: number for number, word in enumerate(words)}
    unknown = ids[_UNKNOWN]
    tokens = np.array([ids.get(word, unknown) for word in _cut(part)], np.int32)
    count = max(0, len(tokens) - 1) // length
    windows = tuple(
        tokens[later : later + count * length].reshape(count, length)
        for later in (0, 1)
    )
    return Records(
        name=part.path,
        num_classes=len(ids),
        num_examples=count,
        shape=(length,),
        dtype=tf.int32,
        open=lambda seed: tf.data.Dataset.from_tensor_slices(windows),
        decode=lambda record: record,
        path=part.path,
        vocabulary=words,
    )


def _cut(part: Part) -> list[bytes]:
    """The words of a text and the ends of its lines, in order."""
    return part.read().replace(b"\n", b" " + _END_OF_LINE + b" ").split()


def vocabulary(words: Sequence[bytes], most: int) -> tuple[bytes, ...]:
    """The most frequent words, the most frequent first; a word's number is its place.

    Args:
      words: of the text to train on.
      most: number of words, including `<unk>`, which stands for all others.
    """
    counts = collections.Counter(words)
    counts.setdefault(_UNKNOWN, 0)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    if _UNKNOWN not in ranked[:most]:
        ranked[most - 1] = _UNKNOWN
    return tuple(ranked[:most])


# What a token is: preprocessing -> (part, the text's splits, request) -> its windows.
TOKENS: dict[str, Callable[[Part, Splits, Request], Records]] = {
    "bytes": _bytes,
    "words": _words,
}
