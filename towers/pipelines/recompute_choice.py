"""The choice of recomputed blocks with the least work that fits in memory."""

import bisect
from collections.abc import Sequence
from typing import NamedTuple

from flags.problem import Problem

NO_LIMIT = Problem(
    "recompute",
    "auto",
    "how much memory a device has is known of this machine's GPUs only",
    "say with `memory_limit` how many megabytes a stage may need",
)


class BlockCost(NamedTuple):
    """The cost of a block; index 0 is without recomputation, 1 with it.

    Attributes:
      kept: [this block][the block before it], bytes kept for the backward pass.
      passing: [this block], further bytes that its passes need.
      gradients: bytes of its gradients, live while earlier blocks run backward.
      flops: of its recomputation.
      together: whether all micro-batches pass it forward before one runs backward; the
        activations of later blocks are then freed.
    """

    kept: tuple[tuple[int, ...], ...]
    passing: tuple[int, ...]
    gradients: int
    flops: int
    together: bool = False


class RecomputeChoice(NamedTuple):
    """Which of a stage's first blocks are recomputed; smaller is better."""

    flops: int = 0
    blocks: int = 0  # how many are
    kept: int = 0  # bytes
    passing: int = 0  # bytes
    again: tuple[bool, ...] = ()

    def then(self, block: BlockCost, again: bool) -> "RecomputeChoice":
        """This choice extended by one block."""
        before = self.again[-1] if self.again else False
        kept = block.kept[again][before]
        passing = self.passing + block.gradients - (kept if block.together else 0)
        return RecomputeChoice(
            self.flops + again * block.flops,
            self.blocks + again,
            self.kept + kept,
            max(passing, block.passing[again]),
            (*self.again, again),
        )

    @property
    def bytes(self) -> int:
        """Peak memory of the choice."""
        return self.kept + self.passing


def cheapest(blocks: Sequence[BlockCost], room: int) -> RecomputeChoice | None:
    """The cheapest choice that fits in memory, or None if none does.

    It is exact: dynamic programming over the blocks drops a choice only if another is
    at least as good in every respect.

    Args:
      blocks: of one stage.
      room: memory in bytes.
    """
    choices = _undominated(blocks, room)
    return min(choices, default=None)


def least(blocks: Sequence[BlockCost]) -> int:
    """The smallest peak memory of all choices."""
    return min(choice.bytes for choice in _undominated(blocks, None))


def _undominated(
    blocks: Sequence[BlockCost], room: int | None
) -> list[RecomputeChoice]:
    choices = [RecomputeChoice()]
    for block in blocks:
        grown = sorted(c.then(block, again) for c in choices for again in (False, True))
        fronts = {False: _Front(), True: _Front()}  # by whether the last one is again
        choices = [
            pick
            for pick in grown
            if (room is None or pick.bytes <= room) and fronts[pick.again[-1]].add(pick)
        ]
    return choices


class _Front:
    """The Pareto front of choices, by bytes kept and bytes passing."""

    def __init__(self) -> None:
        self._kept: list[int] = []  # bytes, rising
        self._passing: list[int] = []  # bytes of the same choices, falling

    def add(self, choice: RecomputeChoice) -> bool:
        """Adds a choice unless one on the front dominates it; returns whether it did.

        Choices must be added in order of rising FLOPs.
        """
        end = bisect.bisect_right(self._kept, choice.kept)
        if end and self._passing[end - 1] <= choice.passing:
            return False
        begin = bisect.bisect_left(self._kept, choice.kept)
        while end < len(self._kept) and self._passing[end] >= choice.passing:
            end += 1
        self._kept[begin:end] = [choice.kept]
        self._passing[begin:end] = [choice.passing]
        return True
