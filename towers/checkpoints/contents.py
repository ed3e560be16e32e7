"""The names and shapes in a checkpoint, compared with those of a run."""

import os
from collections.abc import Collection, Iterable, Mapping, Set

import numpy as np
import tensorflow as tf

from flags.problem import wrong_setting
from towers.checkpoints import constants, tf_cnn_names
from towers.data import damaged_count, order
from towers.errors.explain import first_few

# The kind of slot that a moving average is, after the name of its variable.
AVERAGE = "ExponentialMovingAverage"

# Of runs that drop gradients (`variable_update.dropped_examples`).
CLIENT_OFFSETS, SKIPPED = "client_offsets", "skipped_examples"

# Variables that count, and a number that none of them reaches.
_COUNTS, _MOST = {"global_step", "position", damaged_count.NAME, SKIPPED}, 2**62

# Prefix of variables that pass a value from one step to the next.  A checkpoint may
# have them or not; both can be loaded with or without them.
CARRIED = "carried/"

# Variables of this prefix are of callbacks.  A checkpoint can be loaded without them,
# and by a run without callbacks.
CALLBACKS = "callbacks/"


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
        {name: shape for name, shape in every.items() if not may_be_missing(name)}
        for every in (of(path), shapes)
    )
    missing = sorted(set(shapes) - set(stored) - set(untrained(shapes, stored)))
    extra = [] if partial else sorted(set(stored) - set(shapes))
    extra = sorted(set(extra) - set(untrained(stored, shapes)))
    differ = [
        f"{name} is {stored[name]} in it and {shapes[name]} in this run"
        for name in sorted(set(stored) & set(shapes))
        if list(stored[name]) != list(shapes[name])
    ]
    parts = [
        f"{title}: {first_few(names)}"
        for title, names in (
            ("not in it", missing),
            ("only in it", extra),
            ("of another shape", differ),
        )
        if names
    ]
    if tf_cnn_names.are_theirs(stored):
        raise wrong_setting(
            "train_dir",
            os.path.dirname(path),
            f"{os.path.basename(path)} is a checkpoint of tf_cnn_benchmarks, which is "
            "not continued",
            "start from it by `init_checkpoint`, with another `train_dir`",
        )
    if parts:
        raise wrong_setting(
            "train_dir",
            os.path.dirname(path),
            f"{os.path.basename(path)} is of another model or optimizer "
            f"({'; '.join(parts)})",
            "give the settings that it was trained with, or another `train_dir`",
        )


def untrained(names: Iterable[str], stored: Collection[str]) -> dict[str, str]:
    """The slots and moving averages that a checkpoint lacks of frozen variables.

    They are missing because the run that wrote it trained other variables, if it holds
    their variable, and the same kind of slot of another variable.

    Args:
      names: of slots, moving averages and variables.
      stored: what the checkpoint holds.

    Returns:
      name -> that of its variable.
    """
    there = set(stored)
    kinds = {_kind(name) for name in there if _variable(name) in there}
    return {
        name: _variable(name)
        for name in names
        if name not in there and _variable(name) in there and _kind(name) in kinds
    }


def _variable(name: str) -> str:
    """The variable that a slot of this name belongs to."""
    return name.rpartition("/")[0]


def _kind(name: str) -> str:
    return name.rpartition("/")[2]


def of(path: str) -> dict[str, list[int]]:
    """Name -> shape of each variable in a checkpoint."""
    return tf.train.load_checkpoint(path).get_variable_to_shape_map()


def check_offsets(path: str, shapes: Mapping[str, list[int]]) -> None:
    """Refuses a run that would lose or repeat examples of clients that are behind.

    Args:
      path: of the checkpoint.
      shapes: variable name -> shape, of those that are to be loaded.

    Raises:
      ValueError: the run has other clients, or none with positions of their own.
    """
    there, here = of(path).get(CLIENT_OFFSETS), shapes.get(CLIENT_OFFSETS)
    if there is None or there == here:
        return
    offsets = tf.train.load_checkpoint(path).get_tensor(CLIENT_OFFSETS)
    if here is None and not np.any(offsets):
        return
    raise wrong_setting(
        "train_dir",
        os.path.dirname(path),
        f"{os.path.basename(path)} is of {len(offsets)} workers with "
        "`dropped_examples=replay`, of which some are behind the others",
        "go on with as many workers and this setting, or name another `train_dir`",
    )


def check_counts(path: str, names: Set[str]) -> None:
    """Raises an OpError if a counter has a value that no run reaches."""
    for name in sorted(_COUNTS & names):
        count = np.asarray(tf.train.load_checkpoint(path).get_tensor(name))
        if count.dtype != np.int64 or np.any((count < 0) | (count >= _MOST)):
            raise tf.errors.DataLossError(None, None, f"its {name} is {count}")


def kind_of(name: str) -> str:
    """What an optional variable is part of, loaded as a whole; "" for others."""
    counted = (order.NAME, damaged_count.NAME, SKIPPED, CLIENT_OFFSETS)
    if name in counted or name.startswith(CALLBACKS):
        return name
    return name.split("/")[1] if name.startswith(CARRIED) else ""


def may_be_missing(name: str) -> bool:
    """Whether a checkpoint can be loaded without it."""
    return bool(kind_of(name)) or constants.is_one(name)
