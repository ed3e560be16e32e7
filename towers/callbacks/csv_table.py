"""A CSV file to which a run adds rows; a run that continues also continues it."""

import csv
import io
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from towers.callbacks.base import TrainingRun
from towers.errors.side_outputs import SideOutputs, append_line


class CsvTable:
    """Rows of numbers, one per global step; a failure to write does not end the run.

    Args:
      path: of the file; its folder is created if missing.
      columns: the columns after `step`.
      side: writes the file and reports failures.
    """

    def __init__(self, path: str, columns: Sequence[str], side: SideOutputs):
        self._path = path
        self._columns = ["step", *columns]
        self._side = side

    def open(self, step: int) -> list[dict[str, str]]:
        """Removes the rows of later steps; returns the others."""
        rows: list[dict[str, str]] = []
        with self._side.writing("rows", self._path):
            rows = [row for row in self._rows() if int(row["step"]) <= step]
            more = [name for row in rows[:1] for name in row]
            self._columns = list(dict.fromkeys([*self._columns, *more]))
            self._write(rows)
        return rows

    def add(self, step: int, values: Mapping[str, Any]) -> None:
        """Appends a row, and new columns if `values` has any.

        Args:
          step: the global step of the row.
          values: column -> value; left empty if the value is not a single number.
        """
        numbers = {k: f"{float(v):.9g}" for k, v in values.items() if np.ndim(v) == 0}
        with self._side.writing("rows", self._path):
            if more := [name for name in numbers if name not in self._columns]:
                rows = self._rows()
                self._columns += more
                self._write(rows)
            row = {"step": str(step), **numbers}
            append_line(self._path, self._line(row))

    def _rows(self) -> list[dict[str, str]]:
        if not os.path.exists(self._path):
            return []
        with open(self._path, encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file)
            return [row for row in rows if (row.get("step") or "").isdigit()]

    def _write(self, rows: Sequence[Mapping[str, str]]) -> None:
        lines = [self._line({name: name for name in self._columns})]
        lines += [self._line(row) for row in rows]
        os.makedirs(os.path.dirname(os.path.abspath(self._path)), exist_ok=True)
        with open(f"{self._path}.new", "w", encoding="utf-8", newline="") as file:
            file.write("".join(f"{line}\n" for line in lines))
        os.replace(f"{self._path}.new", self._path)

    def _line(self, row: Mapping[str, str]) -> str:
        text = io.StringIO()
        csv.writer(text, lineterminator="").writerow(
            [row.get(name, "") for name in self._columns]
        )
        return text.getvalue()


def file_path(owner: object, path: str | None, name: str, run: TrainingRun) -> str:
    """The `path` if given, otherwise file `name` in the run's `train_dir`.

    Raises:
      ValueError: neither `path` nor `train_dir` is given.
    """
    if path is None and run.train_dir is None:
        raise ValueError(f"{type(owner).__name__} needs train_dir, or a path of a file")
    return path or os.path.join(run.train_dir or "", name)
