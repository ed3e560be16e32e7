"""Data sets: from files or arrays to one batch per tower and step.

The functions exported here make examples from the user's own data.
"""

from towers.data.arrays import from_arrays
from towers.data.datasets import from_dataset
from towers.data.files import from_files
from towers.data.python_source import from_source
from towers.data.tables import from_csv, from_parquet

__all__ = [
    "from_arrays",
    "from_csv",
    "from_dataset",
    "from_files",
    "from_parquet",
    "from_source",
]
