"""The limits on the memory of this process, and how much of each is left.

There are limits of the process (`ulimit -v`, `ulimit -d`), of its cgroups, as in a
container or under a scheduler, and of the machine.
"""

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

try:
    import resource
except ImportError:  # on Windows
    resource = None  # type: ignore[assignment]

_PROC = "/proc"
_KIB = 1024
_NO_LIMIT = 2**60  # for cgroups of version 1 it is a number near 2**63


class Limit(NamedTuple):
    """A limit on the memory of this process.

    Attributes:
      name: in words, for sentences.
      most: further bytes that the process could take if others that share the limit
        freed theirs.
      left: further bytes that it can take now.
    """

    name: str
    most: int
    left: int


def of_process(proc: str = _PROC) -> list[Limit]:
    """The limits that are known, the tightest first.

    Args:
      proc: folder of Linux's /proc; without it, fewer are known.
    """
    process = _sizes(f"{proc}/self/status")
    machine = _sizes(f"{proc}/meminfo")
    swap = machine.get("SwapTotal", 0)
    limits = [*_of_ulimit(process), *_of_machine(process, machine)]
    for name, size, used in _of_cgroups(proc):
        most = size + swap - process.get("RssAnon", 0)
        # memory.high does not limit `most`: above it a process is only slowed down.
        limits.append(
            Limit(name, _NO_LIMIT if "memory.high" in name else most, size - used)
        )
    return sorted(limits, key=lambda limit: limit.left)


def of_machine() -> int:
    """Bytes of memory of this machine; 0 if unknown."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 0


def _of_ulimit(process: dict[str, int]) -> Iterator[Limit]:
    for option, name, used in (
        ("-v", "RLIMIT_AS", process.get("VmSize", 0)),
        ("-d", "RLIMIT_DATA", process.get("VmData", 0)),
    ):
        if resource is None or not hasattr(resource, name):
            continue
        size, _ = resource.getrlimit(getattr(resource, name))
        if size != resource.RLIM_INFINITY:
            left = max(0, size - used)
            yield Limit(f"ulimit {option}, {size / 1e9:.1f} GB,", left, left)


def _of_machine(process: dict[str, int], machine: dict[str, int]) -> Iterator[Limit]:
    if size := of_machine():
        most = size + machine.get("SwapTotal", 0) - process.get("RssAnon", 0)
        name = f"this machine, {size / 1e9:.1f} GB,"
        yield Limit(name, most, machine.get("MemAvailable", most))


def _of_cgroups(proc: str) -> Iterator[tuple[str, int, int]]:
    """(name, bytes, bytes used) of the limits of this process's cgroups."""
    for folder in _folders(proc):
        counts = _counts(f"{folder}/memory.stat")
        for limit, usage, prefix in (
            ("memory.max", "memory.current", ""),
            ("memory.high", "memory.current", ""),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
        ):
            size, used = _number(f"{folder}/{limit}"), _number(f"{folder}/{usage}")
            if size is None or size >= _NO_LIMIT or used is None:
                continue
            # The memory of cached files can be freed.
            cached = sum(
                counts.get(f"{prefix}{kind}_file", 0) for kind in ("active", "inactive")
            )
            name = f"{folder}/{limit}, {size / 1e9:.1f} GB,"
            yield name, size, max(0, used - cached)


def _folders(proc: str) -> Iterator[str]:
    """The folders of this process's memory cgroups, and of their parents."""
    paths = {}
    for line in _lines(f"{proc}/self/cgroup"):
        _, kinds, path = line.split(":", 2)
        if not kinds or "memory" in kinds.split(","):
            paths["cgroup" if kinds else "cgroup2"] = path
    for line in _lines(f"{proc}/self/mountinfo"):
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind not in paths or (
            kind == "cgroup" and "memory" not in options.split(",")
        ):
            continue
        root, mount = before.split(" ")[3:5]
        # In a container the path may lead from a root that is not mounted there.
        parts = os.path.relpath(paths[kind], root).split("/")
        if parts[0] in (os.curdir, os.pardir):
            parts = []
        for count in range(len(parts), -1, -1):
            yield os.path.normpath(os.path.join(mount, *parts[:count]))


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []


def _number(path: str) -> int | None:
    """The number in a file; None without a file, or if it is not a number, as `max`."""
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdecimal() else None


def _counts(path: str) -> dict[str, int]:
    """Name -> number, from lines `name 123`."""
    pairs = (line.split() for line in _lines(path))
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}


def _sizes(path: str) -> dict[str, int]:
    """Name -> bytes, from lines `Name:  123 kB`."""
    pattern = re.compile(r"(\w+):\s+(\d+) kB")
    matches = [match for line in _lines(path) if (match := pattern.fullmatch(line))]
    return {match[1]: int(match[2]) * _KIB for match in matches}
