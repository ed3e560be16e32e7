"""Random access to the records of TFRecord files, by the place of each in its file.

    index = RecordIndex(["train-00000-of-00002", "train-00001-of-00002"])
    record = index.read(number)  # in a graph

A TFRecord file does not say where its records are, so the length of each is read once.
The places can be kept in a file, for the next run.
"""

import concurrent.futures
import logging
import os
import time
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

# Bytes of a TFRecord file before a record (its length, and a checksum of that) and
# around it (also its own checksum).
_BEFORE, _AROUND = 8, 16

KEPT = "record_index.npz"  # name of the file that keeps the places

_THREADS = 16  # that wait for disks
_SECONDS_BETWEEN_LINES = 10.0


class RecordIndex:
    """The records of TFRecord files, by number.

    Attributes:
      names: of the files.
      count: number of records.

    Args:
      names: of the files; they must not be compressed.
      cuts: for each file, records to skip, and to take after them, -1 for all.
      kept: file to keep the places of the records in, of this and other files of the
        same folder; "" for none.

    Raises:
      ValueError: a file ends within a record or has too few, or there is no record.
    """

    def __init__(
        self,
        names: Sequence[str],
        cuts: Sequence[tuple[int, int]] = (),
        *,
        kept: str = "",
    ):
        self.names = list(names)
        self._skipped = [skip for skip, _ in cuts] or [0] * len(names)
        offsets = _kept_offsets(self.names, kept) if kept else _all_offsets(self.names)
        for number, (skip, take) in enumerate(cuts):
            if take >= 0 and skip + take > len(offsets[number]):
                raise ValueError(
                    f"{os.path.basename(names[number])} has {len(offsets[number])} of "
                    f"{skip + take} records"
                )
            offsets[number] = offsets[number][skip:][: take if take >= 0 else None]
        self._first = np.cumsum([0, *map(len, offsets)])
        self._offsets = np.concatenate(offsets)
        self.count = len(self._offsets)
        if not self.count:
            raise ValueError(f"{names[0]} holds no records")

    def by_number(self, number: tf.Tensor) -> tf.data.Dataset:
        """A dataset of the record of this number alone, a scalar string.

        Args:
          number: int64 scalar.
        """
        records = tf.raw_ops.TFRecordDatasetV2(
            filenames=tf.gather(outside(self.names), self._file(number))[None],
            compression_type="",
            buffer_size=tf.constant(0, tf.int64),
            byte_offsets=tf.gather(outside(self._offsets), number)[None],
        )
        spec = tf.TensorSpec([], tf.string)
        return tf.data.experimental.from_variant(records, spec).take(1)

    def read(self, number: tf.Tensor) -> tf.Tensor:
        """The record of this number, a scalar string."""
        return self.by_number(number).get_single_element()

    def where(self, number: int) -> str:
        """Where a record is, in words."""
        file = int(np.searchsorted(self._first, number, side="right")) - 1
        record = number - self._first[file] + self._skipped[file]
        return f"record {record} of {self.names[file]}"

    def place(self, number: tf.Tensor) -> tf.Tensor:
        """Where a record is, in words, a scalar string; in a graph.

        Args:
          number: int64 scalar.
        """
        file = self._file(number)
        before = outside(self._first[:-1] - self._skipped)
        record = tf.strings.as_string(number - tf.gather(before, file))
        name = tf.gather(outside(self.names), file)
        return tf.strings.join(["record ", record, ", counted from 0, of ", name])

    def _file(self, number: tf.Tensor) -> tf.Tensor:
        """The number of the file that has a record."""
        after = outside(self._first[1:])
        return tf.searchsorted(after, number[None], side="right")[0]


def outside(values: np.ndarray | Sequence[str] | bytes) -> tf.Tensor:
    """A constant outside of tf.data's functions, which are copied several times."""
    with tf.init_scope():
        return tf.constant(values)


def _kept_offsets(names: Sequence[str], kept: str) -> list[np.ndarray]:
    """The offsets of all files: those kept of files that have not changed, and others.

    Several splits of a data set, and parts of them, are kept in the same file.
    """
    states = [_state(name) for name in names]
    known: dict[str, np.ndarray] = {}
    try:
        with np.load(kept, allow_pickle=False) as stored:
            pieces = np.split(stored["offsets"], stored["ends"][:-1])
            known = dict(zip(stored["state"].tolist(), pieces))
    except (OSError, ValueError, KeyError, EOFError):  # none, or of another program
        pass
    others = {state: name for name, state in zip(names, states) if state not in known}
    if others:
        known |= zip(others, _all_offsets(list(others.values())))
        newest = {state.rsplit(" ", 2)[0]: state for state in known}  # of each file
        pieces = [known[state] for state in newest.values()]
        partial = f"{kept}.{os.getpid()}.npz"
        np.savez(
            partial,
            state=np.array(list(newest.values())),
            ends=np.cumsum(list(map(len, pieces))),
            offsets=np.concatenate(pieces),
        )
        os.replace(partial, kept)
    return [known[state] for state in states]


def _state(name: str) -> str:
    """What is different when a file has changed."""
    status = tf.io.gfile.stat(name)
    return f"{os.path.basename(name)} {status.length} {status.mtime_nsec}"


def _all_offsets(names: Sequence[str]) -> list[np.ndarray]:
    """The offsets of the records of each file; lines show the progress if it is slow.

    Raises:
      ValueError: a file ends within a record.
    """
    offsets: list[np.ndarray] = []
    logger, shown = logging.getLogger(__name__), time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        for of_file in pool.map(_offsets, names):
            offsets.append(of_file)
            if time.monotonic() > shown + _SECONDS_BETWEEN_LINES:
                shown = time.monotonic()
                logger.warning(
                    "Reading where the records are, once: %d of %d files",
                    len(offsets),
                    len(names),
                )
    return offsets


def _offsets(name: str) -> np.ndarray:
    """The byte offsets of the records of a TFRecord file.

    Raises:
      ValueError: it ends within a record.
    """
    if "://" in name:
        return _streamed_offsets(name)
    begins, offset, size = [], 0, os.path.getsize(name)
    with open(name, "rb", buffering=0) as file:  # 8 bytes at a time
        while offset < size:
            begins.append(offset)
            file.seek(offset)
            length = int.from_bytes(file.read(_BEFORE), "little")
            offset += length + _AROUND
    if offset != size:
        raise ValueError(
            f"record {len(begins) - 1} of {name} is not whole; make the file again "
            "(compressed ones are not read)"
        )
    return np.array(begins, np.int64)


def _streamed_offsets(name: str) -> np.ndarray:
    """As `_offsets`, of a file on a network, which is read from beginning to end."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        lengths = tf.data.TFRecordDataset(name).map(tf.strings.length).batch(1024)
        following = tf.compat.v1.data.make_one_shot_iterator(lengths).get_next()
        sizes: list[np.ndarray] = []
        while True:
            try:
                sizes.append(session.run(following))
            except tf.errors.OutOfRangeError:
                break
    ends = np.cumsum(np.concatenate([*sizes, []]).astype(np.int64) + _AROUND)
    return np.concatenate([[0], ends])[:-1].astype(np.int64)
