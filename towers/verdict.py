"""What became of the ways to train that were compared, in numbers and in a table."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from towers.exchange import Exchange

_COLUMNS = "{:17}  {:37} {:>6}  {:>8}  {:>8}  {:34}  {}"
HEADING = _COLUMNS.format(
    "variable_update",
    "all_reduce_spec, packing, rounds",
    "towers",
    "ulps",
    "relative",
    "first beyond the bound",
    "verdict",
)

PER_TOWER = "by design: batch norm per tower"


@dataclasses.dataclass(frozen=True)
class Case:
    """One way to train.

    Attributes:
      variable_update: a mode.
      num_towers: that share the batch.
      exchange: of the mode; None where there is nothing to choose.
      rounds: that each tower takes its batch in.
    """

    variable_update: str
    num_towers: int
    exchange: Exchange | None = None
    rounds: int = 1

    @property
    def reduction(self) -> str:
        """Reduction, packing and rounds in words; "-" where there is no choice."""
        words = self._exchange()
        if self.rounds > 1:
            words.append(f"{self.rounds} rounds")
        return ", ".join(words) or "-"

    def _exchange(self) -> list[str]:
        if self.exchange is None:
            return []
        words = [self.exchange.all_reduce_spec]
        if packs := self.exchange.gradient_repacking:
            words.append(f"{packs} pack" + ("s" if packs > 1 else ""))
        if self.exchange.small_bytes:
            words.append(f"joined to {self.exchange.small_bytes} bytes")
        return words


class Difference(NamedTuple):
    """How far a variable is from the reference's after a step."""

    step: int
    variable: str  # `replica_2/name` in a replica but the first
    ulps: float  # of the variable's largest element
    relative: float  # to that element


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a case.

    Attributes:
      case: that was run.
      largest: the largest difference over all steps and variables.
      first: the first beyond the bound, or None.
      excused: why it may be beyond the bound, or "".
    """

    case: Case
    largest: Difference
    first: Difference | None
    excused: str = ""

    @property
    def verdict(self) -> str:
        """`agrees`, `DIFFERS`, or why it may differ."""
        return self.excused or ("agrees" if self.agrees else "DIFFERS")

    @property
    def agrees(self) -> bool:
        """Whether nothing is beyond the bound."""
        return self.first is None

    @property
    def failed(self) -> bool:
        """Whether something is that should not be."""
        return not self.agrees and not self.excused


def distance(
    reference: np.ndarray | None, found: np.ndarray | None
) -> tuple[float, float]:
    """The largest difference of two arrays.

    Returns:
      It in ulps of the reference's largest element, and relative to that element;
      infinite where one is missing or not finite.
    """
    if reference is None or found is None or reference.shape != found.shape:
        return np.inf, np.inf
    if not reference.size:
        return 0.0, 0.0
    if not (np.all(np.isfinite(reference)) and np.all(np.isfinite(found))):
        return np.inf, np.inf
    gap = np.max(np.abs(reference.astype("f8") - found))
    scale = np.max(np.abs(reference)) or reference.dtype.type(1)
    ulp = np.spacing(scale) if reference.dtype.kind == "f" else 1
    return float(gap / ulp), float(gap / scale)


def row(outcome: Outcome) -> str:
    """A line of the table under `HEADING`."""
    case, first = outcome.case, outcome.first
    return _COLUMNS.format(
        case.variable_update,
        case.reduction,
        case.num_towers,
        f"{outcome.largest.ulps:.3g}",
        f"{outcome.largest.relative:.1e}",
        f"step {first.step}, {first.variable}" if first else "-",
        outcome.verdict,
    )


def summary(outcomes: Sequence[Outcome], bound: float) -> str:
    """The outcomes in one sentence."""
    held = [outcome for outcome in outcomes if not outcome.excused]
    agreeing = sum(outcome.agrees for outcome in held)
    words = [f"{agreeing} of {len(held)} agree with one tower to {bound:.0e}"]
    if excused := len(outcomes) - len(held):
        words.append(f"{excused} may differ {PER_TOWER}")
    if failed := [outcome for outcome in held if outcome.failed]:
        case, first = failed[0].case, failed[0].first
        words.append(
            f"{case.variable_update} ({case.reduction}) with {case.num_towers} towers "
            f"differs from step {first.step} on, first in {first.variable}"
        )
    return "; ".join(words)
