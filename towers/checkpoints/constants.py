"""Constants in checkpoints, such as the vocabulary of a text.

    checkpoints = Checkpoints(directory, train.saved | of(source, device))

Numbers in the data, as those of words, have the meaning that they had in training only
with the same vocabulary.  Shapes may be equal for another one.  So a checkpoint with
other constants is refused.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from flags.problem import wrong_setting
from models.layers import Rows
from towers.data.source import Source
from towers.layout import graph_names

v1 = tf.compat.v1

# Prefix of their names in a checkpoint.  Old checkpoints without constants can be
# loaded, too.
PREFIX = "constant/"
_ROWS = f"{PREFIX}rows"
_SIZES = f"{PREFIX}tower_batch_sizes"
_WORKERS = f"{PREFIX}nominal_workers"


def of(
    source: Source,
    device: str,
    rows: Rows | None = None,
    sizes: Sequence[int] = (),
    *,
    workers: int = 0,
) -> dict[str, tf.Variable]:
    """Makes variables of the constants of a data source.

    They are in no collection, so that modes do not treat them as part of a model.

    Args:
      source: of data; its `vocabulary` may be empty or missing.
      device: a CPU; other devices have no strings.
      rows: of a stateful model, of which its states are; or None.
      sizes: batch size of each tower, for `batch_sizes`; () to leave them out.
      workers: for `nominal_workers`; 0 to leave the number out.

    Returns:
      name in a checkpoint -> string variable.
    """
    values = {"vocabulary": getattr(source, "vocabulary", ())}
    values["rows"] = (str(rows.count).encode(),) if rows else ()
    values["tower_batch_sizes"] = tuple(str(size).encode() for size in sizes)
    values["nominal_workers"] = (str(workers).encode(),) if workers else ()
    with tf.device(device), v1.name_scope(graph_names.VARIABLES):
        return {
            PREFIX + name: v1.Variable(
                np.array(value, object),
                trainable=False,
                collections=[],
                use_resource=True,
                name=PREFIX + name,
            )
            for name, value in values.items()
            if value
        }


def batch_sizes(path: str) -> tuple[int, ...]:
    """The batch size of each tower, if a checkpoint has them; else ()."""
    return _numbers(path, _SIZES)


def nominal_workers(path: str) -> int:
    """`Options.nominal_workers` of the run that wrote a checkpoint; else 0."""
    return sum(_numbers(path, _WORKERS))


def _numbers(path: str, name: str) -> tuple[int, ...]:
    try:
        return tuple(map(int, tf.train.load_checkpoint(path).get_tensor(name)))
    except (tf.errors.OpError, ValueError, RuntimeError):  # damaged, or without them
        return ()


def values(variables: Mapping[str, Any]) -> dict[str, list[bytes]]:
    """The values of those variables of the current graph that are constants."""
    return {
        name: tf.get_static_value(variable.initial_value).tolist()
        for name, variable in variables.items()
        if is_one(name)
    }


def is_one(name: str) -> bool:
    """Whether a variable of this name is a constant."""
    return name.startswith(PREFIX)


def check(
    path: str,
    here: Mapping[str, Sequence[bytes]],
    contents: Collection[str],
    *,
    partial: bool = False,
) -> None:
    """Compares the constants of a checkpoint with those of a run.

    Args:
      path: of the checkpoint.
      here: the run's `values`.
      contents: the names in the checkpoint.
      partial: whether the checkpoint may contain more.

    Raises:
      ValueError: they differ.
    """
    there = set(filter(is_one, contents)) - {_SIZES, _WORKERS}  # any will do
    for name in sorted(there & here.keys() if partial else there):
        old = tf.train.load_checkpoint(path).get_tensor(name).tolist()
        new = here.get(name, [])
        if old != new and name == _ROWS:
            count, here_count = (int(n[0]) if n else 0 for n in (old, new))
            raise wrong_setting(
                "train_dir",
                os.path.dirname(path),
                f"{os.path.basename(path)} holds the states of {count} rows, and a "
                f"step of this run has {here_count}",
                "keep the product of `num_gpus`, `batch_size` and `accumulate_steps`, "
                "or name another `train_dir`",
            )
        if old != new:
            raise wrong_setting(
                "train_dir",
                os.path.dirname(path),
                f"{os.path.basename(path)} has another {name.removeprefix(PREFIX)} "
                f"({_difference(old, new)})",
                "name the data that it was trained on, or another `train_dir`",
            )


def _difference(old: Sequence[bytes], new: Sequence[bytes]) -> str:
    """The first difference of two lists, in words."""
    for index, (was, now) in enumerate(zip(old, new)):
        if was != now:
            return (
                f"number {index} is {_shown(was)} in it and {_shown(now)} in this run"
            )
    return f"{len(old)} entries in it and {len(new) or 'none'} in this run"


def _shown(entry: bytes) -> str:
    return repr(entry.decode(errors="backslashreplace"))
