"""Windows of tokens of a text: a file, a folder of files, or a TFDS data set.

    records = find("shakespeare", request, splits=("train",))

Window i of L tokens begins at token i x L, and its label is the L tokens that begin one
token later.  So every token but the first is predicted once.  A last window that is not
full is left out.

Texts are read as plain files.  A TFDS data set is written to one when it is first used,
with a text on each line.
"""

import collections
import functools
import os
import re
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from flags.problem import wrong_setting
from towers.data import (
    catalog,
    mapped,
    order,
    records,
    row_order,
    slices,
    text_splits,
)
from towers.data.record_index import outside
from towers.data.records import Records
from towers.data.source import Request
from towers.data.text_splits import FileRange, Splits

# For shuffling, a file is cut into pieces, which are interleaved, in another order in
# every epoch.
_PIECES = 64
_PIECES_AT_ONCE = 16

# Texts up to this size are cut into words, which takes about ten times as much memory,
# or into rows of bytes.
_MOST_BYTES_IN_MEMORY = 2**29

# The first bytes of compressed files, as patterns.
_COMPRESSED = {
    "gzip": rb"\x1f\x8b\x08",
    "bzip2": rb"BZh[1-9]1AY&SY",
    "xz": rb"\xfd7zXZ\x00",
    "zip": rb"PK\x03\x04",
    "zstd": rb"\x28\xb5\x2f\xfd",
}

# The first bytes of texts with several bytes per letter, as patterns.  The first that
# matches counts, as UTF-32 begins like UTF-16.
_WIDE = {"UTF-32": rb"\xff\xfe\0\0|\0\0\xfe\xff", "UTF-16": rb"\xff\xfe|\xfe\xff"}
# Without such a mark, more than this share of their first bytes are NULs.
_MOST_NULS = 1 / 50
_FIRST_BYTES = 2**16

_END_OF_LINE = b"<eos>"
_UNKNOWN = b"<unk>"


# Number of windows in a split -> the first window to use, and the one after the last.
Bounds = Callable[[int], tuple[int, int]]


def find(name: str, request: Request, *, splits: Sequence[str]) -> Records:
    """The windows of a text.

    Args:
      name: as for `text_splits.find`.
      request: length of a window; `preprocessing` is a row of `TOKENS`.
      splits: the first of these that the text has is used.  A slice in TFDS's grammar
        (`train[:90%]`, `validation[-37:]`) is of the texts of a TFDS data set, or of
        the windows of a single text.

    Raises:
      ValueError: there is no such text or split, or it is too short or compressed, or
        it cannot be read.
    """
    try:
        texts = text_splits.find(name, request.data_dir or "")
        parts = ((split, *_looked_up(split, texts.split)) for split in splits)
        split, part, bounds = next((row for row in parts if row[1]), ("", None, _all))
        if part is None:
            raise wrong_setting(
                "data_name",
                name,
                f"there is no split {' or '.join(splits)}, only "
                f"{', '.join(texts.known)}{catalog.INSTEAD.get(tuple(splits), '')}",
            )
        _check_plain(name, part)
        windows = TOKENS[request.preprocessing](part, texts.split, request, bounds)
    except OSError as error:
        where = f"{error.filename}: " if error.filename not in (None, name) else ""
        raise wrong_setting(
            "data_name", name, f"{where}{error.strerror or error}"
        ) from error
    except slices.SliceError as error:
        raise wrong_setting("data_name", name, f"split {split}: {error}") from error
    if not windows.num_examples:
        (length,) = request.shape
        raise wrong_setting(
            "data_name",
            name,
            f"its split {split}, of {part.stop - part.start} bytes, is too short for "
            f"a window of {length} tokens and the one after it",
            "name a longer text",
        )
    return windows._replace(name=texts.name)


def _looked_up(split: str, find_split: Splits) -> tuple[FileRange | None, Bounds]:
    """The file range of a split (or of the split that it is a slice of), and bounds."""
    sliced = re.fullmatch(r"(.+?)(\[.*\])", split)
    if (part := find_split(split)) or not sliced:
        return part, _all
    base, brackets = sliced.groups()
    return find_split(base), functools.partial(slices.bounds, brackets, what="windows")


def _all(count: int) -> tuple[int, int]:
    return 0, count


def _check_plain(name: str, part: FileRange) -> None:
    """Refuses files that are not text in UTF-8 or a similar encoding.

    Raises:
      ValueError: it is compressed, or has several bytes for each letter.
    """
    begin = part._replace(start=0, stop=16).read()
    for kind, pattern in _COMPRESSED.items():
        if re.match(pattern, begin):
            raise wrong_setting(
                "data_name",
                name,
                f"{part.path} is compressed with {kind}",
                "unpack it, and name the text",
            )
    wide = next((code for code, mark in _WIDE.items() if re.match(mark, begin)), "")
    first = part._replace(stop=min(part.stop, part.start + _FIRST_BYTES)).read()
    if wide or first.count(0) > _MOST_NULS * len(first):
        what = f"is in {wide}" if wide else "has NULs, as UTF-16 and binary files have"
        raise wrong_setting(
            "data_name",
            name,
            f"{part.path} {what}, and is read as UTF-8",
            f"convert it with `iconv -f {wide or 'UTF-16LE'} -t UTF-8`, and name the "
            "result",
        )


def _bytes(
    part: FileRange, splits: Splits, request: Request, bounds: Bounds
) -> Records:
    """Each byte is a token; windows are read from the file as needed."""
    del splits
    (length,) = request.shape
    start, stop = bounds(max(0, part.stop - part.start - 1) // length)
    count = stop - start

    def piece(first: tf.Tensor | int, number: tf.Tensor | int) -> tf.data.Dataset:
        """The (window, label) pairs of `number` windows, from window `first` on."""
        begin = part.start + (start + first) * length
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

    def take(numbers: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        text = mapped.numbers(part.path, tf.uint8)
        begins = part.start + (start + numbers) * length
        codes = tf.cast(mapped.pieces(text, begins, length + 1), tf.int32)
        return codes[:, :-1], codes[:, 1:]

    plain = Records(
        name=part.path,
        num_classes=256,
        num_examples=count,
        shape=(length,),
        dtype=tf.int32,
        open=windows,
        decode=lambda record: (tokens(record[0]), tokens(record[1])),
        path=part.path,
        take=take,
        numbered_since=order.MAPPED,
    )
    return _with_rows(plain, lambda: np.frombuffer(_read(part), np.uint8), bounds)


def _words(
    part: FileRange, splits: Splits, request: Request, bounds: Bounds
) -> Records:
    """Each word and each end of a line is a token; rare words are `<unk>`.

    The vocabulary is that of the split `train`, or, if there is none, of the split that
    is trained on.
    """
    (length,) = request.shape
    words = request.vocabulary
    if not words:
        assert isinstance(request.num_classes, int)
        words = vocabulary(_cut(splits("train") or part), request.num_classes)
    ids = {word: number for number, word in enumerate(words)}
    unknown = ids[_UNKNOWN]
    tokens = np.array([ids.get(word, unknown) for word in _cut(part)], np.int32)
    start, stop = bounds(max(0, len(tokens) - 1) // length)

    def take(numbers: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        begins = (start + numbers) * length
        words = mapped.pieces(outside(tokens), begins, length + 1)
        return words[:, :-1], words[:, 1:]

    plain = Records(
        name=part.path,
        num_classes=len(ids),
        num_examples=stop - start,
        shape=(length,),
        dtype=tf.int32,
        open=lambda seed: records.in_order(take, stop - start),
        decode=lambda record: record,
        path=part.path,
        vocabulary=words,
        take=take,
        numbered_since=order.MAPPED,
    )
    return _with_rows(plain, lambda: tokens, bounds)


def _with_rows(
    plain: Records, read: Callable[[], np.ndarray], bounds: Bounds
) -> Records:
    """The windows of a text, which can also be in rows.

    Args:
      plain: the windows.
      read: reads the tokens of the whole text, integers [tokens].
      bounds: as in `find`; of a part of the windows, rows are of that part.
    """
    (length,) = plain.shape
    assert length

    def in_rows(count: int, every: bool) -> Records:
        tokens = read()
        if bounds is not _all:
            first, last = bounds(max(0, len(tokens) - 1) // length)
            tokens = tokens[first * length : last * length + 1]
        windows = row_order.windows(tokens, length, count, every=every)

        def take(numbers: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            window, label = (tf.gather(outside(part), numbers) for part in windows)
            return tf.cast(window, tf.int32), tf.cast(label, tf.int32)

        return plain._replace(
            num_examples=len(windows[0]),
            open=lambda seed: records.in_order(take, len(windows[0])),
            decode=lambda record: record,
            in_rows=in_rows,
            take=take,
            numbered_since=order.PERMUTED,  # as their order does not change
        )

    return plain._replace(in_rows=in_rows)


def _read(part: FileRange) -> bytes:
    """The bytes of a text.

    Raises:
      ValueError: it is too large.
    """
    if part.stop - part.start > _MOST_BYTES_IN_MEMORY:
        raise ValueError(
            f"{part.path} is too large to be cut into words, or rows, in memory; use a "
            "part of it, or a model that reads bytes and is not stateful"
        )
    return part.read()


def _cut(part: FileRange) -> list[bytes]:
    """The words of a text and the ends of its lines, in order."""
    return _read(part).replace(b"\n", b" " + _END_OF_LINE + b" ").split()


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


# The kinds of tokens.  preprocessing -> function: (file range, the text's splits,
# request, bounds) -> the windows.
TOKENS: dict[str, Callable[[FileRange, Splits, Request, Bounds], Records]] = {
    "bytes": _bytes,
    "words": _words,
}
