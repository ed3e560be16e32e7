"""The grammar of `--all_reduce_spec`, that of tf_cnn_benchmarks.

    spec  := range (":" size ":" range)*     pscpu:32k:xring
    range := algorithm ["/" algorithm]       intra-host / inter-host
    algorithm := name ["#" shards]           xring#2
    size  := integer ["k" | "K" | "M" | "G" | "T"]   bytes, k = 1024

A tensor is reduced by the first range whose size, in bytes, it does not exceed; the
last range has no size.  Shards are at most 64, as each adds operations to the graph.
"""

import dataclasses
import difflib
import re
from collections.abc import Collection
from typing import NamedTuple

from flags.problem import SettingError, wrong_setting

MAX_SHARDS = 64

_UNITS = {"": 1, "k": 2**10, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclasses.dataclass(frozen=True)
class SpecAlgorithm:
    """A row of `reduction.REDUCTIONS` and the number of shards to run it with.

    Attributes:
      name: of the row.
      shards: pieces that each tensor is cut into, each reduced by itself.
      start: offset in the spec, in characters, for errors; two algorithms that differ
        only in this are equal.
    """

    name: str
    shards: int = 1
    start: int = dataclasses.field(default=0, compare=False)


class SpecRange(NamedTuple):
    """The algorithms for tensors up to a size.

    Attributes:
      limit: the largest size in bytes; None for the last range, which has no limit.
      intra_host: the algorithm inside each host, or between all towers if `inter_host`
        is None.
      inter_host: the algorithm across the hosts.
    """

    limit: int | None
    intra_host: SpecAlgorithm
    inter_host: SpecAlgorithm | None = None


def parse(
    text: str, names: Collection[str], *, intra_host_only: Collection[str] = ()
) -> list[SpecRange]:
    """Parses a spec.

    Args:
      text: the spec.
      names: of all algorithms.
      intra_host_only: names of those that cannot run across hosts.

    Raises:
      ValueError: the text is malformed; the message says at which character.
    """
    parts = text.split(":")
    starts = [sum(len(p) + 1 for p in parts[:i]) for i in range(len(parts))]
    ranges = []
    last_limit = 0
    if len(parts) % 2 == 0:
        raise error(text, starts[-1], "a size needs an algorithm after it")
    for index in range(0, len(parts), 2):
        limit = None
        if index + 1 < len(parts):
            limit = _size(text, parts[index + 1], starts[index + 1])
            if limit <= last_limit:
                raise error(text, starts[index + 1], "sizes must grow")
            last_limit = limit
        levels = _range(text, parts[index], starts[index], names)
        if len(levels) > 1 and levels[1].name in intra_host_only:
            reason = f"{levels[1].name} works inside a host only, so not after the /"
            raise error(text, levels[1].start, reason)
        ranges.append(SpecRange(limit, *levels))
    return ranges


def _size(text: str, part: str, start: int) -> int:
    match = re.fullmatch(r"([0-9]{1,18})([kKMGT]?)", part)
    if not match or not int(match.group(1)):
        raise error(text, start, f"{part!r} is no size; write bytes, as 32k or 4M")
    return int(match.group(1)) * _UNITS[match.group(2)]


def _range(
    text: str, part: str, start: int, names: Collection[str]
) -> list[SpecAlgorithm]:
    """The algorithm of each level: one, or intra-host and inter-host."""
    levels = part.split("/")
    if len(levels) > 2:
        raise error(text, start, f"{part!r} has more than two levels")
    algorithms = []
    for level in levels:
        algorithms.append(_algorithm(text, level, start, names))
        start += len(level) + 1
    return algorithms


def _algorithm(
    text: str, part: str, start: int, names: Collection[str]
) -> SpecAlgorithm:
    name, sharp, shards = part.partition("#")
    if name not in names:
        near = ", ".join(difflib.get_close_matches(name, names, n=2))
        hint = f"did you mean {near}?" if near else f"there are {', '.join(names)}"
        raise error(text, start, f"{name!r} is no algorithm; {hint}")
    if sharp and not (
        re.fullmatch("[1-9][0-9]?", shards) and int(shards) <= MAX_SHARDS
    ):
        reason = f"{shards!r} is no number of shards from 1 to {MAX_SHARDS}"
        raise error(text, start + len(name) + 1, reason)
    return SpecAlgorithm(name, int(shards) if sharp else 1, start)


def error(text: str, start: int, reason: str) -> SettingError:
    """The error that points at a character of a spec.

    Args:
      text: the spec.
      start: offset of the character at fault.
      reason: what is wrong there.
    """
    return wrong_setting("all_reduce_spec", text, f"at character {start + 1}, {reason}")
