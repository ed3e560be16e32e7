"""Outcomes of a comparison, as numbers and as a table."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from towers.gradients.exchange import GradientExchange
from towers.layout.shards import Shards
from towers.layout.stages import Pipeline

# dtype -> the largest relative error of rounding to it.
_ROUNDING = {tf.bfloat16: 2.0**-8, tf.float16: 2.0**-11}


@dataclasses.dataclass(frozen=True)
class Case:
    """The settings of a training that is compared.

    Attributes:
      variable_update: a mode.
      num_towers: among which the global batch is split.
      exchange: how the mode exchanges gradients; None if there is no choice.
      rounds: of gradient accumulation in each tower; 1 for none.
      pipeline: stages, micro-batches and schedule of each tower; None for none.
      transfer: dtype in which gradients are sent; None for that of the towers.
      shards: which layers are sharded over a tower's devices; None for none.
      batch_sizes: of each tower, if they differ; else ().
    """

    variable_update: str
    num_towers: int
    exchange: GradientExchange | None = None
    rounds: int = 1
    pipeline: Pipeline | None = None
    transfer: tf.DType | None = None
    shards: Shards | None = None
    batch_sizes: tuple[int, ...] = ()

    @property
    def devices(self) -> int:
        """How many devices each tower occupies."""
        stages = self.pipeline.stages if self.pipeline else 1
        return max(stages, self.shards.devices if self.shards else 1)

    @property
    def pieces(self) -> int:
        """Parts of each tower's batch: accumulation rounds x micro-batches."""
        return self.rounds * (self.pipeline.micro_batches if self.pipeline else 1)

    def bound(self, exact: float, compute: tf.DType = tf.float32) -> float:
        """The largest difference that counts as rounding, in 16 bits after one step.

        A gradient that is sent in 16 bits is rounded on each of at most N - 1 hops and
        once more as a sum, to the precision of the towers' shares.  These may be larger
        than their sum, so the bound is twice that.  If towers compute in 16 bits, every
        layer and every part of the batch rounds, so the bound allows a few roundings of
        each.  A sum instead of a mean exceeds both by far.

        Args:
          exact: the bound if everything is in float32.
          compute: dtype in which towers compute.
        """
        travels = self.num_towers * _ROUNDING.get(self.transfer, 0.0)
        computed = max(16, self.num_towers * self.pieces) * _ROUNDING.get(compute, 0.0)
        return max(exact, 2 * travels, 2 * computed)

    @property
    def reduction(self) -> str:
        """The settings besides mode and number of towers; "-" if there are none."""
        words = self._exchange()
        if self.transfer:
            words.append(self.transfer.name)
        if self.pipeline:
            words += _of_pipeline(self.pipeline)
        if self.rounds > 1:
            words.append(f"{self.rounds} rounds")
        if self.shards:
            words.append(_of_shards(self.shards))
        if self.batch_sizes:
            words.append(f"batches of {', '.join(map(str, self.batch_sizes))}")
        return ", ".join(words) or "-"

    def _exchange(self) -> list[str]:
        if self.exchange is None:
            return []
        if not self.exchange.sufficient_factors:
            return ["whole gradients"]
        words = [self.exchange.all_reduce_spec]
        if packs := self.exchange.gradient_repacking:
            words.append(f"{packs} pack" + ("s" if packs > 1 else ""))
        if self.exchange.agg_small_grads_max_bytes:
            words.append(f"joined to {self.exchange.agg_small_grads_max_bytes} bytes")
        return words


def _of_shards(shards: Shards) -> str:
    names = zip(("classes", "rows"), shards)
    spread = " and ".join(name for name, count in names if count > 1)
    return f"{spread} over {shards.devices}"


def _of_pipeline(how: Pipeline) -> list[str]:
    words = [f"{how.schedule} K={how.stages} M={how.micro_batches}"]
    if how.recompute != "none":
        words.append(f"recompute {how.recompute}")
    return words


class Difference(NamedTuple):
    """The difference of a variable from the reference's after a step."""

    step: int
    variable: str  # `replica_2/name` in replicas after the first
    ulps: float  # of the variable's largest element
    relative: float  # to that element, or to the largest change of an element


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of a case.

    Attributes:
      case: that was run.
      largest: the largest difference over all steps and variables.
      first: the first difference beyond the bound, or None.
      bound: of the case, if it is not the bound of all others.
      grown: the difference that amplified rounding explains, if the case is beyond the
        bound and within this; else 0.
      repeats: whether one tower takes the same steps again, if the case differs.
      apart: whether `first` is of a replica that is not bit-equal to the others.
      mean_error: why the update is not the mean of gradients; "" if it is.
    """

    case: Case
    largest: Difference
    first: Difference | None
    bound: float | None = None
    grown: float = 0.0
    repeats: bool = True
    apart: bool = False
    mean_error: str = ""

    @property
    def verdict(self) -> str:
        """`agrees` or `DIFFERS`, with the bound if it is not that of all others."""
        verdict = "agrees" if self.agrees else "DIFFERS"
        if self.apart:
            return f"{verdict} (replicas that are not bit-equal)"
        if self.mean_error and self.first is None:
            return f"{verdict} (not the mean)"
        if self.agrees and self.grown:
            return f"{verdict} (rounding grows to {self.grown:.0e})"
        return f"{verdict} (bound {self.bound:.0e})" if self.bound else verdict

    @property
    def agrees(self) -> bool:
        """Whether all differences are within the bound, and the update is the mean."""
        return self.first is None and not self.mean_error


def distance(
    reference: np.ndarray | None, value: np.ndarray | None
) -> tuple[float, float]:
    """The largest difference of two arrays.

    Returns:
      (in ulps of the reference's largest element, relative to that element); infinite
      if an array is missing or has elements that are not finite.
    """
    if reference is None or value is None or reference.shape != value.shape:
        return np.inf, np.inf
    if not reference.size:
        return 0.0, 0.0
    largest = np.max(np.abs(reference))
    if not np.isfinite(largest):
        return np.inf, np.inf
    # Often most elements are equal, as in a table of which few rows were read.
    differ = reference != value
    gaps = np.abs(reference[differ].astype("f8") - value[differ])
    gap = np.max(gaps, initial=0.0)
    if not np.isfinite(gap):
        return np.inf, np.inf
    scale = largest or reference.dtype.type(1)
    ulp = np.spacing(scale) if reference.dtype.kind == "f" else 1
    return float(gap / ulp), float(gap / scale)


def same_bits(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two arrays are equal in shape, dtype and every bit: -0 is not 0."""
    first, second = np.asarray(first), np.asarray(second)
    same_kind = (first.shape, first.dtype) == (second.shape, second.dtype)
    return same_kind and first.tobytes() == second.tobytes()


class Table:
    """The table of outcomes, line by line.

    Args:
      cases: determine the width of the columns.

    Attributes:
      heading: its first line.
    """

    def __init__(self, cases: Sequence[Case]):
        mode, reduction = "variable_update", "reduction, packing, rounds, devices"
        first = max(map(len, [mode, *(case.variable_update for case in cases)]))
        second = max(map(len, [reduction, *(case.reduction for case in cases)]))
        other_columns = "{:>6}  {:>8}  {:>8}  {:34}  {}"
        self._columns = f"{{:{first}}}  {{:{second}}}  {other_columns}"
        self.heading = self._columns.format(
            mode,
            reduction,
            "towers",
            "ulps",
            "relative",
            "first beyond the bound",
            "verdict",
        )

    def row(self, outcome: Outcome) -> str:
        """The line of an outcome."""
        case, first = outcome.case, outcome.first
        return self._columns.format(
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
    agreeing = [outcome for outcome in outcomes if outcome.agrees]
    rounded = sum(outcome.bound is not None for outcome in agreeing)
    bits = "the rounding of 16 bits"
    to = bits if outcomes and rounded == len(outcomes) else f"{bound:.0e}"
    words = [f"{len(agreeing)} of {len(outcomes)} agree with one tower to {to}"]
    if 0 < rounded < len(outcomes):
        words[0] += f", {rounded} of them to {bits}"
    if grown := sum(outcome.grown > 0.0 for outcome in agreeing):
        words[0] += f", {grown} as far as the model lets rounding grow"
    if failed := [outcome for outcome in outcomes if not outcome.agrees]:
        case, first = failed[0].case, failed[0].first
        differs = "differs"
        if first is not None:
            differs += f" from step {first.step} on, first in {first.variable}"
        words.append(
            f"{case.variable_update} ({case.reduction}) with {case.num_towers} towers "
            f"{differs}"
        )
        words += [outcome.mean_error for outcome in failed if outcome.mean_error][:1]
    if not all(outcome.repeats for outcome in outcomes):
        words.append(
            "one tower does not even take its own steps again: the model reads more "
            "than its seed and its examples"
        )
    return "; ".join(words)
