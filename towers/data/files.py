"""Examples in files; TensorFlow reads and parses them on the host of each tower."""

import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from models import user_errors
from towers.data import examples, source_worker
from towers.data.examples import AUGMENT_DRAWS, Examples, Parts
from towers.data.record_index import RecordIndex

v1 = tf.compat.v1

_plain = tf.autograph.experimental.do_not_convert

_RECORDS = re.compile(r"\.tfrecords?(-\d+-of-\d+)?$")


def from_files(
    paths: Sequence[str | os.PathLike[str]],
    parse: Callable[[tf.Tensor], Any],
    *,
    augment: Callable[..., Any] | None = None,
    num_classes: int | None = None,
) -> Examples:
    """The examples in files: one per file, or the records of TFRecord files.

    Files are read on the host of the tower that trains on them.  So on a cluster they
    must have the same paths on each worker's disk.

    Args:
      paths: of the files, always in the same order (sort the result of `glob`).  If all
        of them end in `.tfrecord`, or as `.tfrecord-00000-of-00010`, each of their
        records is an example; they must not be compressed.
      parse: (scalar string, the file's path or the record's bytes) -> features,
        (features, labels) or (features, labels, weight): tensors, or nests (dicts,
        tuples) of them, made by TensorFlow's operations, of static shapes.
      augment: (result of parse, draws float32 [8]) -> the same structure, for training.
        `draws` are random numbers in [0, 1) that depend on the example and the epoch.
      num_classes: labels are in [0, num_classes); if None, the model's inputs have the
        number.

    Raises:
      ValueError: a file does not exist, or a function fails or returns something else.
    """
    if isinstance(paths, str | os.PathLike) or not len(paths):
        raise ValueError(f"from_files: paths is {paths!r}; give a list of files")
    names = [os.fspath(path) for path in paths]
    for name in names:
        if not os.path.isfile(name):
            raise ValueError(f"from_files: there is no file {name}")
    is_record = [bool(_RECORDS.search(name)) for name in names]
    if any(is_record) != all(is_record):
        raise ValueError(
            f"from_files: {names[is_record.index(True)]} holds records, and "
            f"{names[is_record.index(False)]} is no .tfrecord; read them apart"
        )
    files = _records(names) if all(is_record) else _Whole(names)
    return _examples(files, parse, augment, num_classes)


def from_records(
    spans: Sequence[Any], parse: Callable[[tf.Tensor], Any], *, kept: str = ""
) -> Examples:
    """The records of TFRecord files, or of parts of them.

    Args:
      spans: each with the `filename`, how many records to `skip` and how many to
        `take` after them, -1 for all; as TFDS's `FileInstruction`.
      parse: as `from_files` takes it, of a record.
      kept: as `RecordIndex` takes it.

    Raises:
      ValueError: as of `from_files`.
    """
    names = [os.fspath(span.filename) for span in spans]
    for name in names:
        if not os.path.isfile(name):
            raise ValueError(f"there is no file {name}")
    cuts = [(span.skip, span.take) for span in spans]
    return _examples(RecordIndex(names, cuts, kept=kept), parse, None, None)


def _examples(
    files: Any,
    parse: Callable[[tf.Tensor], Any],
    augment: Callable[..., Any] | None,
    num_classes: int | None,
) -> Examples:
    """What `from_files` returns, of `_Whole` or `RecordIndex`."""

    def read(number: tf.Tensor) -> Parts:
        return _parsed("parse", parse, files.read(number))

    def augmented(parts: Parts, draws: tf.Tensor) -> Parts:
        assert augment is not None
        arguments = parts[:1] if len(parts) == 2 and parts[1] == () else parts
        return _parsed("augment", augment, *arguments, draws)

    with tf.Graph().as_default() as graph:
        specs = _specs(read, augment and augmented)
    return Examples(
        name="files",
        num_examples=files.count,
        num_classes=num_classes,
        specs=specs,
        read=read,
        single=True,
        calls=tf.data.AUTOTUNE,
        augment=augment and augmented,
        in_python=examples.calls_python(graph),
        explain=lambda: examples.first_unreadable(
            lambda: tf.data.Dataset.range(files.count).map(
                _plain(read), num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
            ),
            lambda number: f"from_files: {files.where(number)}",
        ),
    )


class _Whole:
    """Files with one example each."""

    def __init__(self, names: list[str]):
        self._names = names
        self.count = len(names)

    def read(self, number: tf.Tensor) -> tf.Tensor:
        """The path of the example of this number."""
        return tf.gather(tf.constant(self._names), number)

    def where(self, number: int) -> str:
        """Where an example is, in words."""
        return self._names[number]


def _records(names: list[str]) -> RecordIndex:
    """The records of TFRecord files.

    Raises:
      ValueError: a file ends within a record, or there is none.
    """
    try:
        return RecordIndex(names)
    except ValueError as error:
        raise ValueError(f"from_files: {error}") from error


def _parsed(what: str, function: Callable[..., Any], *arguments: Any) -> Parts:
    """The parts that a function of the user returns.

    Raises:
      ValueError: it fails, or does not return an example.
    """
    with user_errors.blamed(lambda: f"from_files: {what} failed", function):
        parts = source_worker.parts_of(function(*arguments))
        tensors = examples.map_parts(lambda _, x: tf.convert_to_tensor(x), parts)
        if len(parts) == 3:
            weight = tf.ensure_shape(tf.cast(tensors[2], tf.float32), [])
            tensors = (*tensors[:2], weight)
    return tensors


def _specs(read: Callable[..., Parts], augment: Callable[..., Parts] | None) -> Parts:
    """The specs of an example; adds the operations that read it to the current graph.

    Raises:
      ValueError: `parse` or `augment` fails, a shape is not static, or the two return
        different structures.
    """
    parts = read(v1.placeholder(tf.int64, []))
    specs = tf.nest.map_structure(_spec, parts)
    for name, spec in examples.leaves(specs):
        if not spec.shape.is_fully_defined() or spec.dtype == tf.string:
            raise ValueError(
                f"from_files: parse returns {name} as {spec.dtype.name} "
                f"{spec.shape}; it must be numbers of a known shape, which "
                "tf.image.resize or tf.ensure_shape give it"
            )
    if not examples.leaves(specs[:1]):
        raise ValueError("from_files: parse returns no features")
    if augment:
        changed = augment(parts, v1.placeholder(tf.float32, [AUGMENT_DRAWS]))
        changed = tf.nest.map_structure(_spec, changed)
        if changed != specs:
            raise ValueError(
                f"from_files: augment returns {_words(changed)}, and parse "
                f"{_words(specs)}; they must be the same"
            )
    return specs


def _spec(tensor: tf.Tensor) -> tf.TensorSpec:
    return tf.TensorSpec(tensor.shape, tensor.dtype)


def _words(specs: Parts) -> str:
    leaves = examples.leaves(specs)
    return ", ".join(f"{name} {spec.dtype.name} {spec.shape}" for name, spec in leaves)
