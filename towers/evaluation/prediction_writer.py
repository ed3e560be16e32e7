"""Files of predictions: arrays (`.npz`), or tables (`.csv`, `.parquet`)."""

import contextlib
import csv
import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from flags.problem import wrong_setting


def prediction_writer(path: str) -> Callable[[Any], None]:
    """A function that writes a nest of predictions to a file.

    It is made before the predictions, so that a wrong path is refused at once.  The
    file is written whole or not at all.

    Args:
      path: of the file; its ending determines the format.

    Raises:
      ValueError: there is no such format, or the file cannot be written.
    """
    ending = os.path.splitext(path)[1]
    if ending not in _WRITERS:
        endings = ", ".join(_WRITERS)
        raise wrong_setting("out", path, f"must end with one of {endings}")
    if ending == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise wrong_setting(
            "out",
            path,
            "needs pyarrow, which is not installed",
            "install it, or write a file that ends with .csv or .npz",
        )
    folder = os.path.dirname(os.path.abspath(path))
    if not os.access(folder, os.W_OK) or os.path.isdir(path):
        raise wrong_setting("out", path, "cannot be written", "name another file")

    def write(nest: Any) -> None:
        with _whole(path) as part:
            _WRITERS[ending](part, _named(nest))

    return write


def _named(nest: Any, name: str = "") -> dict[str, np.ndarray]:
    """The arrays by name: `predictions`, or their keys and indices joined by dots."""
    if isinstance(nest, Mapping):
        children = sorted(nest.items())
    elif isinstance(nest, tuple | list):
        children = [(str(index), child) for index, child in enumerate(nest)]
    else:
        return {name or "predictions": np.asarray(nest)}
    prefix = f"{name}." if name else ""
    return {
        path: array
        for key, child in children
        for path, array in _named(child, f"{prefix}{key}").items()
    }


@contextlib.contextmanager
def _whole(path: str) -> Iterator[str]:
    """A path to write to, which becomes `path` at the end."""
    part = f"{path}.part"
    try:
        yield part
        os.replace(part, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(part)


def _write_npz(path: str, arrays: dict[str, Any]) -> None:
    with open(path, "wb") as file:
        np.savez(file, **arrays)


def _columns(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A column for each number of an example: `name`, or `name.0`, `name.1`, ..."""
    columns = {}
    for name, array in arrays.items():
        rows = array.reshape(len(array), -1)
        if array.ndim == 1:
            columns[name] = array
        else:
            columns |= {f"{name}.{i}": rows[:, i] for i in range(rows.shape[1])}
    return columns


def _write_csv(path: str, arrays: dict[str, np.ndarray]) -> None:
    columns = _columns(arrays)
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(columns)
        table.writerows(zip(*(column.tolist() for column in columns.values())))


def _write_parquet(path: str, arrays: dict[str, np.ndarray]) -> None:
    pyarrow = importlib.import_module("pyarrow")
    parquet = importlib.import_module("pyarrow.parquet")
    parquet.write_table(pyarrow.table(_columns(arrays)), path)


_WRITERS: dict[str, Callable[[str, dict[str, np.ndarray]], None]] = {
    ".npz": _write_npz,
    ".csv": _write_csv,
    ".parquet": _write_parquet,
}
