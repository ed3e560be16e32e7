"""Examples from the rows of tables: CSV and Parquet files, read by pyarrow.

    from_csv(["homes.csv"], {"size": ["area", "rooms"], "city": "city"}, "price")
    from_parquet(["what_spark_wrote"], "features", "label")

Words become numbers: the sorted words of a column are its categories.  The categories
of the training data are the vocabulary of the run.  It is saved in checkpoints, and the
evaluated split is numbered by it.
"""

import dataclasses
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset

from towers.data import examples
from towers.data.arrays import from_arrays
from towers.data.examples import Examples

Paths = Sequence[str | os.PathLike[str]]

# What is in a folder whose Parquet files alone are not the table -> why.
_NOT_WHOLE = {
    "_temporary": "its writer has not finished, or failed; write it anew",
    "_delta_log": "it is a Delta table, which also has files that do not count any "
    "more; write it as Parquet",
}
_FIELDS_OF_VECTORS = {"type", "size", "indices", "values"}  # of Spark ML
_READABLE = "numbers, words, and arrays of numbers can be read"


def from_csv(
    paths: Paths,
    features: Any,
    labels: Any = (),
    weights: str | None = None,
    *,
    fill: Mapping[str, Any] | None = None,
) -> Examples:
    """The rows of CSV files as examples; the first line of a file names its columns.

    Args:
      paths: of the files; their rows are concatenated.
      features: the name of a column, for its value; a list of names, for the vector of
        all their values, float32; or a nest (dicts, tuples) of these.
      labels: the same; () if there are none.
      weights: the column with the weight of each example; None if all are equal.
      fill: column -> value in place of a missing one, and of a word that the training
        data does not have.  Without it, such a row is an error.

    Returns:
      the examples.  Floats are float32, integers and categories int32.  Labels that
      are words say the number of classes.

    Raises:
      ValueError: there is no such file or column, or a value is missing; the sentence
        names the column and the row.
    """
    options = pyarrow.csv.ConvertOptions()

    def read(path: str, names: list[str]) -> pa.Table:
        options.include_columns = names
        return pyarrow.csv.read_csv(path, convert_options=options)

    return _examples("from_csv", read, paths, _Columns(features, labels, weights, fill))


def from_parquet(
    paths: Paths,
    features: Any,
    labels: Any = (),
    weights: str | None = None,
    *,
    fill: Mapping[str, Any] | None = None,
) -> Examples:
    """The rows of Parquet files as examples; see `from_csv`.

    A path may be a folder, as Spark writes it: its rows are those of its files, by
    name, and `key=value` in the names of folders is a column.  A column of arrays of
    one length is a feature with their shape.
    """

    def read(path: str, names: list[str]) -> pa.Table:
        for part, why in _NOT_WHOLE.items():
            if os.path.lexists(os.path.join(path, part)):
                raise ValueError(f"from_parquet: {path} has {part}: {why}")
        rows = pyarrow.dataset.dataset(path, format="parquet", partitioning="hive")
        if not rows.files:
            raise ValueError(f"from_parquet: {path} has no Parquet files")
        if missing := [name for name in names if name not in rows.schema.names]:
            raise KeyError(missing[0])
        return rows.to_table(columns=names)

    return _examples(
        "from_parquet", read, paths, _Columns(features, labels, weights, fill)
    )


class _Columns:
    """The columns of an example, and the values that replace missing ones."""

    def __init__(
        self,
        features: Any,
        labels: Any,
        weights: str | None,
        fill: Mapping[str, Any] | None,
    ):
        self.parts: examples.Parts = (features, labels)
        if weights is not None:
            self.parts = (*self.parts, weights)
        self.fill = dict(fill or {})

    @property
    def names(self) -> list[str]:
        """Names of all columns, each once."""
        columns: list[str] = []
        for _, value in examples.leaves(self.parts):
            columns += [value] if isinstance(value, str) else value
        return list(dict.fromkeys(columns))


def _examples(
    what: str,
    read: Callable[[str, list[str]], pa.Table],
    paths: Paths,
    columns: _Columns,
) -> Examples:
    """The examples of some files.

    Raises:
      ValueError: they cannot be read.
    """
    if isinstance(paths, str | os.PathLike) or not len(paths):
        raise ValueError(f"{what}: paths is {paths!r}; give a list of files")
    tables, names = [], columns.names
    if unknown := [name for name in columns.fill if name not in names]:
        raise ValueError(f"{what}: fill names {unknown[0]!r}, which is not read")
    files = [os.fspath(path) for path in paths]
    for path in files:
        try:
            tables.append(read(path, names))
        except KeyError as error:
            column = re.findall("'(.+?)'", str(error))[0]
            raise ValueError(f"{what}: {path} has no column {column!r}") from error
        except (OSError, pa.ArrowException) as error:
            words = " ".join(str(error).split())
            raise ValueError(f"{what}: {path} cannot be read: {words}") from error
    try:
        table = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise ValueError(
            f"{what}: columns of {', '.join(files)} differ in type: {error}"
        ) from error
    if not table.num_rows:
        raise ValueError(f"{what}: {files[0]} has no rows")
    return _Table(what, table, columns).examples(())


class _Table:
    """The rows of a table, as numbers.

    Args:
      what: name of the function that the user called, for errors.
      table: with all columns.
      columns: that are read.
    """

    def __init__(self, what: str, table: pa.Table, columns: _Columns):
        self._what = what
        self._columns = columns
        self._values = {name: self._whole(table, name) for name in columns.names}

    def examples(self, vocabulary: tuple[bytes, ...]) -> Examples:
        """The examples, numbered by these categories (see `_entries`).

        Args:
          vocabulary: the categories; () for those of this table.

        Raises:
          ValueError: a word is not among the categories, or a value is not a number.
        """
        vocabulary = vocabulary or tuple(self._entries())
        arrays = {
            name: self._numbers(name, values, vocabulary)
            for name, values in self._values.items()
        }

        def array(_: str, column: Any) -> np.ndarray:
            if isinstance(column, str):
                return arrays[column]
            if words := next((name for name in column if self._is_text(name)), None):
                raise ValueError(
                    f"{words!r} holds words, and a list of columns is a vector of "
                    "numbers; name it apart"
                )
            rows = [arrays[name].astype(np.float32) for name in column]
            return np.concatenate([each.reshape(len(each), -1) for each in rows], 1)

        labels, num_classes = self._columns.parts[1], None
        if isinstance(labels, str) and self._is_text(labels):
            num_classes = len(_words(labels, vocabulary))
        try:
            parts = examples.map_parts(array, self._columns.parts)
            data = from_arrays(*parts, num_classes=num_classes)
        except ValueError as error:
            raise ValueError(f"{self._what}: {error}") from error
        return dataclasses.replace(
            data, name="table", vocabulary=vocabulary, by_vocabulary=self.examples
        )

    def _whole(self, table: pa.Table, name: str) -> pa.Array:
        """A column with missing values filled.

        Raises:
          ValueError: a value is missing, and `fill` has none for it.
        """
        values = table.column(name).combine_chunks()
        if isinstance(values, pa.ChunkedArray):  # in old versions of pyarrow
            values = values.chunk(0)
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        absent = pc.is_null(values, nan_is_null=True)
        if _is_text(values):
            absent = pc.or_kleene(absent, pc.equal(values, ""))
        row = pc.index(absent, True).as_py()
        if row < 0:
            return values
        if name not in self._columns.fill:
            raise ValueError(
                f"{self._what}: {name!r} has no value in row {row}; say what stands "
                f"for it by fill={{{name!r}: ...}}, or leave the row out"
            )
        fill = self._columns.fill[name]
        try:
            return pc.if_else(absent, pa.scalar(fill, values.type), values)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise ValueError(
                f"{self._what}: fill={{{name!r}: {fill!r}}}, and the column is of "
                f"{values.type}"
            ) from error

    def _is_text(self, name: str) -> bool:
        return _is_text(self._values[name])

    def _entries(self) -> Iterator[bytes]:
        """`column=word` of each category of each column, sorted."""
        for name in sorted(self._values):
            if self._is_text(name):
                for word in sorted(pc.unique(self._values[name]).to_pylist()):
                    yield f"{name}={word}".encode()

    def _numbers(
        self, name: str, values: pa.Array, vocabulary: Sequence[bytes]
    ) -> np.ndarray:
        """A column as numbers.

        Raises:
          ValueError: it has neither numbers nor words, or a word is not a category.
        """
        kind = values.type
        if _is_list(kind):
            return self._vectors(name, values)
        if pa.types.is_boolean(kind):
            return values.to_numpy(zero_copy_only=False)
        if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            return values.cast(pa.float64()).to_numpy(zero_copy_only=False).astype("f4")
        if pa.types.is_integer(kind):
            wide = values.to_numpy(zero_copy_only=False)
            narrow = wide.astype(np.int32)
            return narrow if np.array_equal(wide, narrow) else wide
        if not self._is_text(name):
            raise ValueError(
                f"{self._what}: {name!r} is of {self._values[name].type}; "
                + (_remedy(kind) or _READABLE)
            )
        words = _words(name, vocabulary)
        numbers = pc.index_in(values, value_set=pa.array(words, kind))
        row = pc.index(pc.is_null(numbers), True).as_py()
        if row >= 0:
            other = self._columns.fill.get(name)
            if other not in words:
                raise ValueError(
                    f"{self._what}: {name!r} is {values[row].as_py()!r} in row {row}, "
                    "which the training has not; fill it by a word that it has"
                )
            numbers = pc.fill_null(numbers, words.index(other))
        return numbers.to_numpy(zero_copy_only=False).astype(np.int32)

    def _vectors(self, name: str, values: pa.Array) -> np.ndarray:
        """A column of arrays, as one array.

        Raises:
          ValueError: their lengths differ, a value is missing, or is no number.
        """
        lengths = pc.list_value_length(values)
        width = lengths[0].as_py()
        row = pc.index(pc.equal(lengths, width), False).as_py()
        if row >= 0:
            raise ValueError(
                f"{self._what}: {name!r} has {lengths[row]} values in row {row}, and "
                f"{width} in row 0; all rows must have as many"
            )
        entries = values.flatten()
        place = pc.index(pc.is_null(entries, nan_is_null=True), True).as_py()
        if place >= 0:
            raise ValueError(
                f"{self._what}: {name!r} lacks a value in row {place // width}; leave "
                "the row out"
            )
        numbers = self._numbers(name, entries, ())
        return numbers.reshape(len(values), width, *numbers.shape[1:])


def _is_list(kind: pa.DataType) -> bool:
    lists = pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list
    return any(is_one(kind) for is_one in lists)


def _remedy(kind: pa.DataType) -> str:
    """What to do about a column of a type that cannot be read, or ""."""
    if not pa.types.is_struct(kind):
        return ""
    if {kind.field(i).name for i in range(kind.num_fields)} == _FIELDS_OF_VECTORS:
        return "for vectors of Spark ML, write vector_to_array(column) of Spark"
    return "write its fields as columns"


def _words(name: str, vocabulary: Sequence[bytes]) -> list[str]:
    """The categories of a column, in order."""
    entries = [entry.decode() for entry in vocabulary]
    return [e.removeprefix(f"{name}=") for e in entries if e.startswith(f"{name}=")]


def _is_text(values: pa.Array) -> bool:
    return pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
