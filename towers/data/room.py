"""Whether the batches of a step fit into this machine's memory."""

import math
import os
from collections.abc import Mapping, Sequence

_INT_LIMIT = 2**31  # TensorFlow counts the rows of a batch in an int32
_ELEMENT_BYTES = 4  # of float32 features and of int32 tokens


def check(
    factors: Mapping[str, int],
    shape: Sequence[int],
    *,
    prefetch: int = 0,
    memory: int = 0,
) -> None:
    """Refuses batches that no memory could hold, before it is tried.

    What the step itself needs beside them is not counted: what passes may still be too
    much.

    Args:
      factors: flag -> its value; their product is the examples of a step.
      shape: of one example's features.
      prefetch: steps whose batches are kept ready, `--datasets_prefetch_buffer_size`.
      memory: bytes that there are; 0: not known.

    Raises:
      ValueError: there are too many examples, or too many bytes.
    """
    name, value = max(factors.items(), key=lambda item: item[1])
    examples = math.prod(factors.values())
    if examples >= _INT_LIMIT:
        raise ValueError(
            f"--{name}={value}: a step would have {examples} examples, and must have "
            f"fewer than {_INT_LIMIT}"
        )
    step = examples * math.prod(shape) * _ELEMENT_BYTES
    if memory and step * (1 + prefetch) > memory:
        if step * 2 <= memory:
            name, value = "datasets_prefetch_buffer_size", prefetch
        raise ValueError(
            f"--{name}={value}: the batches would take "
            f"{step * (1 + prefetch) / 1e9:.0f} GB, and this machine has "
            f"{memory / 1e9:.0f} GB; write less"
        )


def of_machine() -> int:
    """Bytes of memory that this machine has; 0 where it does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 0
