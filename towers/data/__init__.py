"""Data sets: from files or arrays to one batch per tower and step.

The functions exported here make examples from the user's own data.
"""

import importlib
from typing import TYPE_CHECKING, Any

from towers.data.arrays import from_arrays
from towers.data.datasets import from_dataset
from towers.data.files import from_files
from towers.data.python_source import from_source

if TYPE_CHECKING:
    from towers.data.tables import from_csv, from_parquet

__all__ = [
    "from_arrays",
    "from_csv",
    "from_dataset",
    "from_files",
    "from_parquet",
    "from_source",
]


def __getattr__(name: str) -> Any:
    """The functions for tables; pyarrow, 0.1 s of a start, is imported when needed."""
    if name in ("from_csv", "from_parquet"):
        return getattr(importlib.import_module("towers.data.tables"), name)
    raise AttributeError(f"module 'towers.data' has no attribute {name!r}")
