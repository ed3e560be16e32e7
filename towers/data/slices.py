"""Slices of splits, in the grammar of TFDS: `train[:90%]`, `validation[-37:]`."""

import tensorflow_datasets as tfds


class SliceError(ValueError):
    """A slice that a split does not have."""


def bounds(brackets: str, count: int, what: str = "examples") -> tuple[int, int]:
    """The first example that a slice in brackets means, and the one after its last.

    Args:
      brackets: `[:90%]`; "" for all.
      count: number of examples in the split.
      what: the examples are, in the plural.

    Raises:
      SliceError: it is not a slice, is empty, or exceeds `count`.
    """
    if not brackets:
        return 0, count
    whole = tfds.core.SplitInfo(name="split", shard_lengths=[count], num_bytes=0)
    try:
        instruction = tfds.core.ReadInstruction.from_spec(f"split{brackets}")
    except ValueError as error:
        raise SliceError(
            "not a slice as TFDS has it, [:37], [-37:] or [10%:20%]"
        ) from error
    try:
        (absolute,) = instruction.to_absolute({"split": whole})
    except ValueError as error:
        raise SliceError(f"there are only {count} {what}") from error
    start, stop = absolute.from_ or 0, count if absolute.to is None else absolute.to
    if start >= stop:
        raise SliceError(f"it is empty; there are {count} {what}")
    return start, stop
