"""How many examples of a step each tower computes."""

import heapq
from collections.abc import Sequence

from flags import batch_sizes
from flags.config import Config
from flags.problem import wrong_setting
from towers.layout.gpus import plural


def of_towers(
    config: Config, default: int, num_towers: int, *, trains: bool = True
) -> tuple[int, ...]:
    """The examples of each tower, per round.

    Args:
      config: the settings; with `auto` batches are equal until they are measured.
      default: the model's batch size.
      num_towers: of all clients.
      trains: whether these towers train; evaluating ones may be another number, and
        then have the mean size.

    Raises:
      ValueError: there are more or fewer sizes than towers that train, or one tower
        that is to be rebalanced.
    """
    text, rebalance = config.variables.tower_batch_sizes, config.variables.rebalance
    if trains and rebalance and num_towers == 1:
        words = "is about several towers, and there is 1"
        raise wrong_setting("rebalance", rebalance, words, "leave it out")
    sizes = batch_sizes.parse(text)
    if sizes and len(sizes) != num_towers and not trains:
        return (sum(sizes) // len(sizes),) * num_towers
    if sizes and len(sizes) != num_towers:
        raise wrong_setting(
            "tower_batch_sizes",
            text,
            f"has {plural(len(sizes), 'number')} for {plural(num_towers, 'tower')}",
            "write one number for each tower",
        )
    return sizes or (config.data.batch_size or default,) * num_towers


def divide(
    examples: int, speeds: Sequence[float], *, multiple: int = 1
) -> tuple[int, ...]:
    """Divides the examples of a step so that the slowest tower takes the least time.

    Equal speeds give equal batches; if they do not divide, the first towers have more.

    Args:
      examples: of all towers.
      speeds: examples per second of each tower, or numbers in proportion.
      multiple: every batch is a multiple of it, as with micro-batches.

    Returns:
      the batches, at least `multiple` each.

    Raises:
      ValueError: there are too few examples, or they are no multiple.
    """
    pieces, rest = divmod(examples, multiple)
    if rest or pieces < len(speeds):
        raise ValueError(
            f"{examples} examples cannot be divided among {len(speeds)} towers in "
            f"multiples of {multiple}"
        )
    counts = [1] * len(speeds)
    # The tower that would end first with one more piece gets the next one.
    waiting = [(2 / speed, k) for k, speed in enumerate(speeds)]
    heapq.heapify(waiting)
    for _ in range(pieces - len(speeds)):
        _, k = waiting[0]
        counts[k] += 1
        heapq.heapreplace(waiting, ((counts[k] + 1) / speeds[k], k))
    return tuple(count * multiple for count in counts)
