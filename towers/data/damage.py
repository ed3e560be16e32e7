"""Which record of a data set's files is damaged, and how.

An error of an input pipeline does not name the file or the record, as records are
shuffled and decoded ahead.  So after an error the files are read once more.
"""

import logging
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from towers.data.reading_session import reading_session
from towers.errors import explain

v1 = tf.compat.v1

# Reading more records than this takes so long that a line announces it.
_MANY_RECORDS = 50_000

_plain = tf.autograph.experimental.do_not_convert

# The words of tf.data before the reason.
_IN_FUNCTION = re.compile(r"Error in user-defined function .* iterator: [^ ]*: ")
# Those around the sentence of a check of this project.
_CHECKED = re.compile(r"assertion failed: \[(.*)\]")


def missing(files: Sequence[Any]) -> list[str]:
    """Paths of the TFDS `FileInstruction`s whose file is not in its folder."""
    paths = [os.fspath(file.filename) for file in files]
    folders = {os.path.dirname(path) for path in paths}
    names = {folder: set(tf.io.gfile.listdir(folder)) for folder in folders}
    return [
        path
        for path in paths
        if os.path.basename(path) not in names[os.path.dirname(path)]
    ]


def first(
    files: Sequence[Any], decode: Callable[[tf.Tensor], Any], *, most: int | None = None
) -> str:
    """The number, file and fault of the first damaged record; "" if none is.

    Args:
      files: TFDS `FileInstruction`s of a split.
      decode: record, a scalar string -> nest of tensors.
      most: records to read; None for all.
    """
    if most is None and sum(file.take for file in files) > _MANY_RECORDS:
        logging.getLogger(__name__).warning("Looking for the record that is damaged")
    with reading_session() as session:
        path = v1.placeholder(tf.string, [])
        skip, take = (v1.placeholder(tf.int64, []) for _ in range(2))
        records = tf.data.TFRecordDataset(path).skip(skip).take(take)
        decoded = records.map(decode, num_parallel_calls=tf.data.AUTOTUNE)
        iterator = v1.data.make_initializable_iterator(decoded)
        following = tf.group(tf.nest.flatten(iterator.get_next()))
        for file in files:
            wanted = file.take if most is None else min(file.take, most)
            where = {path: file.filename, skip: file.skip, take: wanted}
            session.run(iterator.initializer, where)
            if fault := _fault_of_file(file, wanted, lambda: session.run(following)):
                return fault
            if most is not None:
                return ""
    return ""


def of_numbers(
    by_number: Callable[[tf.Tensor], tf.data.Dataset],
    decode: Callable[[Any], Any],
    place: Callable[[tf.Tensor], tf.Tensor],
    numbers: Iterable[int],
) -> list[str]:
    """Where those of some records are that cannot be read or decoded, and why.

    Args:
      by_number: number, int64 scalar -> dataset of that record alone.
      decode: record -> nest of tensors.
      place: number -> where the record is, a scalar string.
      numbers: of the records.
    """
    faults = []
    with reading_session() as session:
        number = v1.placeholder(tf.int64, [])
        parts = by_number(number).map(_plain(lambda *r: decode(r if r[1:] else r[0])))
        decoded = tf.group(tf.nest.flatten(parts.get_single_element()))
        where = place(number)
        for value in numbers:
            try:
                session.run(decoded, {number: value})
            except tf.errors.OpError as error:
                words = session.run(where, {number: value}).decode()
                faults.append(f"{words}: {_in_words(error)}")
    return faults


def _in_words(error: tf.errors.OpError) -> str:
    words = explain.reason(_IN_FUNCTION.sub("", error.message)).rstrip(".")
    checked = _CHECKED.fullmatch(words)
    return checked[1] if checked else words


def _fault_of_file(file: Any, wanted: int, read: Callable[[], Any]) -> str:
    """The first damaged record among the next ones of a file; "" if none is."""
    name = os.path.basename(file.filename)
    for number in range(file.skip, file.skip + wanted):
        try:
            read()
        except tf.errors.OutOfRangeError:
            return f"{name} has {number} of {file.examples_in_shard} records"
        except tf.errors.OpError as error:
            return f"record {number}, counted from 0, of {name}: {_in_words(error)}"
    return ""
