"""The statistics that the benchmarks report."""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Spread(NamedTuple):
    """Median, least and most of the numbers of several rounds."""

    median: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{number(self.median)} [{number(self.least)}, {number(self.most)}]"


def number(value: float) -> str:
    """Three significant digits, or the whole integer part: `0.973`, `12.3`, `3413`."""
    if not value or not math.isfinite(value):
        return f"{value:g}"
    decimals = 2 - math.floor(math.log10(abs(value)))
    return f"{value:.{max(0, decimals)}f}"


def spread(values: Iterable[float]) -> Spread | None:
    """Median, least and most; None of nothing."""
    values = list(values)
    if not values:
        return None
    return Spread(statistics.median(values), min(values), max(values))


def paired(ours: Sequence[float | None], theirs: Sequence[float | None]) -> list[float]:
    """ours / theirs of each round in which both have a number."""
    return [a / b for a, b in zip(ours, theirs) if a is not None and b is not None]


def geometric_mean(values: Iterable[float]) -> float | None:
    """The mean of ratios: a gain of 2 and a loss of 2 cancel.  None of nothing."""
    values = list(values)
    return statistics.geometric_mean(values) if values else None
