"""Which of a stage's blocks to recompute: the choice with the least work that fits."""

from collections.abc import Sequence
from typing import NamedTuple


class Block(NamedTuple):
    """What a block costs with and without being computed again.

    Attributes:
      kept: bytes that it adds to what is kept, [again][the block before it again].
      passing: bytes that its passes take beside what is kept, [again].
      gradients: bytes of its gradients, which are there when those before it go back.
      flops: of computing it again.
      together: whether all micro-batches are through it before one goes back; what
        later blocks keep is then gone.
    """

    kept: tuple[tuple[int, int], tuple[int, int]]
    passing: tuple[int, int]
    gradients: int
    flops: int
    together: bool = False


class Choice(NamedTuple):
    """Which of some blocks are computed again; smaller is better."""

    flops: int = 0
    blocks: int = 0  # how many are
    kept: int = 0  # bytes
    passing: int = 0  # bytes
    again: tuple[bool, ...] = ()

    def then(self, block: Block, again: bool) -> "Choice":
        """With one more block."""
        before = self.again[-1] if self.again else False
        kept = block.kept[again][before]
        passing = self.passing + block.gradients - (kept if block.together else 0)
        return Choice(
            self.flops + again * block.flops,
            self.blocks + again,
            self.kept + kept,
            max(passing, block.passing[again]),
            (*self.again, again),
        )

    @property
    def bytes(self) -> int:
        """That the choice needs."""
        return self.kept + self.passing


def cheapest(blocks: Sequence[Block], room: int) -> Choice | None:
    """The best choice that needs no more bytes than there are; None: there is none.

    Exact: by dynamic programming over the blocks, in which a choice is dropped only for
    one that is no worse in any respect.

    Args:
      blocks: of one stage.
      room: in bytes.
    """
    found = _undominated(blocks, room)
    return min(found, default=None)


def least(blocks: Sequence[Block]) -> int:
    """Fewest bytes that any choice needs."""
    return min(choice.bytes for choice in _undominated(blocks, None))


def _undominated(blocks: Sequence[Block], room: int | None) -> list[Choice]:
    choices = [Choice()]
    for block in blocks:
        grown = sorted(c.then(block, again) for c in choices for again in (False, True))
        choices = []
        for one in grown:
            fits = room is None or one.bytes <= room
            if fits and not any(_as_good(other, one) for other in choices):
                choices.append(one)
    return choices


def _as_good(one: Choice, other: Choice) -> bool:
    """Whether a choice, which costs no more, needs no more either."""
    same_end = one.again[-1] == other.again[-1]
    return same_end and one.kept <= other.kept and one.passing <= other.passing
