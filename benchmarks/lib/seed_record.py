"""Seeds of a benchmark that loses tasks; a second call does those that are left."""

import argparse
import json
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.lib import machine
from benchmarks.lib.options import above_0, positive, writable


def add_flags(parser: argparse.ArgumentParser, *, seeds: int) -> None:
    """Adds `--seeds`, `--minutes` and `--out`.

    Args:
      parser: of the benchmark.
      seeds: the default.
    """
    parser.add_argument("--seeds", type=positive, default=seeds)
    parser.add_argument(
        "--minutes", type=above_0, help="begin no seed after so many minutes"
    )
    parser.add_argument(
        "--out",
        type=writable,
        metavar="FILE",
        help="JSON file; a second call continues it",
    )


def share(parser: argparse.ArgumentParser, flag: str, total: int, seeds: int) -> int:
    """How many of `total` each seed has; ends the program if they are not as many.

    Args:
      parser: of the benchmark.
      flag: that says `total`.
      total: over all seeds.
      seeds: their number.
    """
    if seeds > total:
        parser.error(f"--{flag} must be as many as --seeds, or more")
    if over := total % seeds:
        fewer = total - over
        parser.error(
            f"--{flag}={total} are not as many for each of {seeds} seeds; write "
            f"{fewer} or {fewer + seeds}"
        )
    return total // seeds


class SeedRecord:
    """Results so far, kept in a file if there is a path.

    Args:
      path: of the file, which may hold earlier results; None for no file.
      settings: must equal those in the file.

    Attributes:
      wanted: of the undisturbed run, if all seeds have the same; at first empty.
      seeds: what was measured with each seed, in order.

    Raises:
      ValueError: the file was written with other settings.
    """

    def __init__(self, path: str | None, settings: Mapping[str, Any]):
        self._path, self._settings = path, dict(settings)
        self.wanted: dict[str, str] = {}
        self.seeds: list[dict[str, Any]] = []
        if path and os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                before = json.load(file)
            if before["settings"] != settings:
                raise ValueError(f"{path} is of other settings; name another file")
            self.wanted, self.seeds = before["undisturbed"], before["seeds"]

    def save(self) -> None:
        """Writes the file."""
        if self._path:
            contents = {"undisturbed": self.wanted, "seeds": self.seeds}
            machine.write_json(self._path, {"settings": self._settings, **contents})

    def left(self, seeds: int, minutes: float | None) -> Iterator[int]:
        """The seeds that are left.

        Args:
          seeds: number of all.
          minutes: after which there are no more; None for no limit.
        """
        until = time.monotonic() + 60.0 * (minutes or float("inf"))
        for seed in range(len(self.seeds), seeds):
            if time.monotonic() > until:
                print("the time is up; the same command goes on")
                return
            yield seed
