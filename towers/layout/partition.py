"""Cuts of a model's chain of blocks into contiguous pieces, one per pipeline chunk.

A cut is a tuple of ends: `(3, 5, 9)` means the blocks 0-2, 3-4 and 5-8.
"""

import itertools
from collections.abc import Sequence

from towers.layout.gpus import plural

Cut = tuple[int, ...]
_Best = tuple[float, float, Cut]  # (largest piece, sum of squares, ends)


def balanced(costs: Sequence[float], pieces: int) -> Cut:
    """The cut that minimizes the largest piece's cost, exactly.

    By dynamic programming over (pieces, blocks).  Of equal cuts it takes the one with
    the smallest sum of squared costs, so that the other pieces are balanced, too.

    Args:
      costs: of each block, in one unit, at least 0.
      pieces: how many; at least one block each.

    Raises:
      ValueError: there are more pieces than blocks.
    """
    count = len(costs)
    if pieces > count:
        raise ValueError(f"{pieces} pieces of {count} blocks")
    total = [0.0, *itertools.accumulate(costs)]
    # best[b]: of the first b blocks.
    best: dict[int, _Best] = {
        b: (total[b], total[b] ** 2, (b,)) for b in range(1, count + 1)
    }
    for piece in range(2, pieces + 1):
        best = {
            b: min(_with_piece(best[a], a, b, total) for a in range(piece - 1, b))
            for b in range(piece, count + 1)
        }
    return best[count][2]


def _with_piece(before: _Best, a: int, b: int, total: list[float]) -> _Best:
    """The best cut of the first a blocks, and one more piece up to b."""
    largest, squares, ends = before
    cost = total[b] - total[a]
    return max(largest, cost), squares + cost**2, (*ends, b)


def after(names: Sequence[str], blocks: Sequence[str], pieces: int) -> Cut:
    """The cut after the named blocks.

    Args:
      names: of the last blocks of all pieces but the last.
      blocks: names of all blocks.
      pieces: how many there must be.

    Raises:
      ValueError: a name is not of a block that can be cut after, the names are not in
        the model's order, or their number is wrong; the message lists the legal names.
    """
    legal = list(blocks[:-1])
    for name in names:
        if name not in legal:
            last = " (it is the last)" if name == blocks[-1] else ""
            raise ValueError(
                f"cannot cut after {name!r}{last}; cut after some of {', '.join(legal)}"
            )
    ends = [legal.index(name) + 1 for name in names]
    if (count := len(set(names))) != pieces - 1:
        raise ValueError(
            f"names {plural(count, 'block')} to cut after, and {pieces} pieces "
            f"need {pieces - 1} of {', '.join(legal)}"
        )
    if sorted(set(ends)) != ends:
        raise ValueError(
            f"names the blocks in another order than the model's, or twice; "
            f"write {','.join(legal[end - 1] for end in sorted(set(ends)))}"
        )
    return (*ends, len(blocks))


def pieces_of(cut: Cut, items: Sequence) -> list[Sequence]:
    """The items (blocks, names, costs) of each piece."""
    return [items[a:b] for a, b in zip((0, *cut), cut)]


def imbalance(costs: Sequence[float], cut: Cut) -> float:
    """Cost of the largest piece over the mean cost of a piece; 1 is perfect."""
    sums = [sum(piece) for piece in pieces_of(cut, costs)]
    return max(sums) * len(sums) / (sum(sums) or 1.0)
