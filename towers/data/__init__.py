"""Data sets by name: from files to one batch per tower and step.

Data of the user's own is made by the functions that are here.
"""

from towers.data.arrays import from_arrays
from towers.data.files import from_files
from towers.data.python_source import from_source

__all__ = ["from_arrays", "from_files", "from_source"]
