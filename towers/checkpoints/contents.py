"""The names and shapes in a checkpoint, compared with those of a run."""

import os
from collections.abc import Mapping, Set

import numpy as np
import tensorflow as tf

from flags.problem import wrong_setting
from towers.checkpoints import constants
from towers.data import order

# Variables that count, and a number that none of them reaches.
_COUNTS, _MOST = {"global_step", "position"}, 2**62

# Prefix of variables that pass a value from one step to the next.  A checkpoint may
# have them or not; both can be loaded with or without them.
CARRIED = "carried/"


def check_same(
    path: str, shapes: Mapping[str, list[int]], *, partial: bool = False
) -> None:
    """Compares a checkpoint with the variables that are to be loaded from it.

    Args:
      path: of the checkpoint.
      shapes: variable name -> shape.
      partial: whether the checkpoint may contain more.

    Raises:
      ValueError: names or shapes differ; up to five of each are named.
    """
    stored, shapes = (
        {name: shape for name, shape in every.items() if not _optional(name)}
        for every in (of(path), shapes)
    )
    missing = sorted(set(shapes) - set(stored))
    extra = [] if partial else sorted(set(stored) - set(shapes))
    differ = [
        f"{name} is {stored[name]} in it and {shapes[name]} in this run"
        for name in sorted(set(stored) & set(shapes))
        if list(stored[name]) != list(shapes[name])
    ]
    parts = [
        f"{title}: {', '.join(names[:5])}" + (" ..." if len(names) > 5 else "")
        for title, names in (
            ("not in it", missing),
            ("only in it", extra),
            ("of another shape", differ),
        )
        if names
    ]
    if parts:
        raise wrong_setting(
            "train_dir",
            os.path.dirname(path),
            f"{os.path.basename(path)} is of another model or optimizer "
            f"({'; '.join(parts)})",
            "give the settings that it was trained with, or another `train_dir`",
        )


def of(path: str) -> dict[str, list[int]]:
    """Name -> shape of each variable in a checkpoint."""
    return tf.train.load_checkpoint(path).get_variable_to_shape_map()


def check_counts(path: str, names: Set[str]) -> None:
    """Raises an OpError if a counter has a value that no run reaches."""
    for name in sorted(_COUNTS & names):
        count = np.asarray(tf.train.load_checkpoint(path).get_tensor(name))
        if count.dtype != np.int64 or np.any((count < 0) | (count >= _MOST)):
            raise tf.errors.DataLossError(None, None, f"its {name} is {count}")


def is_carried(name: str) -> bool:
    """Whether a variable passes a value from one step to the next."""
    return name.startswith(CARRIED)


def _optional(name: str) -> bool:
    """Whether a checkpoint can be loaded without it."""
    return is_carried(name) or constants.is_one(name) or name == order.NAME
