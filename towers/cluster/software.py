"""The versions of the software that a task runs, which all tasks should have in common.

Everything depends on towers and TensorFlow, whose versions must be equal.  Another
Python or numpy changes nothing but what a user's own code does with it.
"""

import functools
import hashlib
import pathlib
import platform
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

import flags
import towers

_PACKAGES = (flags, towers)  # users add models of their own to the others
_MUST_AGREE = ("towers",)
_UNKNOWN = "an older version"  # of a task that does not say it


class VersionDifference(NamedTuple):
    """One name, with the version of another task and of this one."""

    name: str
    theirs: str
    ours: str


@functools.cache
def versions() -> Mapping[str, str]:
    """Name -> version; that of towers ends with a hash of its source."""
    digest = hashlib.sha256()
    for package in _PACKAGES:
        folder = pathlib.Path(package.__path__[0])
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.relative_to(folder).as_posix().encode())
            digest.update(path.read_bytes())
    return {
        "towers": f"{towers.__version__}+{digest.hexdigest()[:8]}",
        "Python": platform.python_version(),
        "numpy": np.__version__,
    }


def differences(
    theirs: Mapping[str, str], *, must_agree: bool
) -> Iterator[VersionDifference]:
    """The versions that differ.

    Args:
      theirs: the other task's `versions`.
      must_agree: whether of those that must be equal, or of the others.
    """
    for name, ours in versions().items():
        if theirs.get(name) != ours and (name in _MUST_AGREE) == must_agree:
            yield VersionDifference(name, theirs.get(name, _UNKNOWN), ours)
