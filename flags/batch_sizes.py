"""The value of `--tower_batch_sizes`: a number for each tower, or `auto`."""

from collections.abc import Iterator, Mapping
from typing import Any

from flags.problem import Problem

AUTO = "auto"  # measured before the first step

_NAME = "tower_batch_sizes"
_LIMIT = 2**31  # TensorFlow counts the rows of a batch in an int32


def parse(text: str | None) -> tuple[int, ...]:
    """The examples of each tower; () without any, or for `auto`.

    Raises:
      ValueError: they are not whole numbers of at least 1.
    """
    if text in (None, AUTO):
        return ()
    numbers = text.split(",")
    if not all(n.strip().isdecimal() and 0 < int(n) < _LIMIT for n in numbers):
        raise ValueError(
            "must be auto, or a whole number of at least 1 for each tower, separated "
            "by commas, as in 48,16"
        )
    return tuple(map(int, numbers))


def problems(flags: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with the flag, if it was given."""
    if _NAME not in flags:
        return
    try:
        sizes = parse(flags[_NAME])
    except ValueError as error:
        yield Problem(_NAME, flags[_NAME], str(error))
        return
    if sizes and "batch_size" in flags:
        words = f"does not go with `{_NAME}={flags[_NAME]}`, which names the examples"
        yield Problem("batch_size", flags["batch_size"], f"{words} of each tower")
