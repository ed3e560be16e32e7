"""The machine and the versions with which the numbers were measured."""

import datetime
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.lib import process
from towers.layout import processor

PACKAGES = ("tensorflow", "keras", "tf-keras", "torch", "numpy")

# Prefixes of the environment variables that libraries read.
_SETTINGS = ("TF_", "ONEDNN_", "DNNL_", "OMP_", "KMP_", "MKL_", "MALLOC_", "XLA_")

_VERSIONS = """
import importlib.metadata, json, platform, sys
found = {"python": platform.python_version()}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def facts() -> dict[str, Any]:
    """The machine, its current load, and the environment variables of libraries."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(),
        "platform": platform.platform(),
        "cpu": processor.name(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load": list(os.getloadavg()),
        "environment": {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith(_SETTINGS)
        },
    }


def versions(python: str, packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """The versions of an interpreter and of those packages that it has.

    Empty if there is no such interpreter.
    """
    command = process.Command([python, "-c", _VERSIONS, *packages])
    try:
        finished = process.run(command, timeout=60)
    except OSError:
        return {}
    return json.loads(finished.lines[-1][1]) if finished.status == 0 else {}


def revision(directory: str) -> str | None:
    """The git commit of a checkout, followed by `+` if files differ from it."""
    said = []
    for arguments in (["rev-parse", "HEAD"], ["status", "--porcelain"]):
        command = process.Command(["git", *arguments], cwd=directory)
        try:
            finished = process.run(command, timeout=60)
        except OSError:
            return None
        if finished.status:
            return None
        said.append([text for _, text in finished.lines])
    return said[0][0] + ("+" if said[1] else "")


def write_results(
    path: str | None,
    arguments: Mapping[str, Any],
    *,
    python: str = sys.executable,
    **numbers: Any,
) -> None:
    """Writes what was measured to a JSON file, if there is a path.

    Args:
      path: of the file.
      arguments: of the benchmark.
      python: the interpreter that ran what was measured; its versions are written.
      **numbers: what was measured.
    """
    if path:
        setting = {"arguments": dict(arguments), "versions": versions(python)}
        write_json(path, {**setting, **numbers})


def write_json(path: str, numbers: dict[str, Any]) -> None:
    """Writes the numbers, with `machine` from `facts` if they lack it.

    The file is replaced at once, so an interrupted program leaves no partial file.
    """
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump({"machine": facts(), **numbers}, file, indent=1)
    os.replace(path + ".part", path)
