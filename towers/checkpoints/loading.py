"""Loads a checkpoint's values into the variables of a graph."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from towers.checkpoints import constants, contents
from towers.data import order
from towers.layout import parts

v1 = tf.compat.v1


class Loaders:
    """Adds the operations that load checkpoints to the current graph and device.

    Args:
      variables: checkpoint name -> variable.
      log: takes lines for the user.
    """

    def __init__(
        self,
        variables: Mapping[str, tf.Variable | parts.Parts],
        log: Callable[[str], None],
    ):
        self._variables = variables
        self._log = log
        self._loaders = [
            (set(group), v1.train.Saver(group)) for group in _groups(variables)
        ]
        version: Any = variables.get(order.NAME)
        self._permute = version is not None and version.assign(order.PERMUTED).op

    def load(self, session: v1.Session, path: str) -> None:
        """Loads the values of the graph's variables.

        Raises:
          OpError: the checkpoint cannot be read.
        """
        stored = set(contents.of(path))
        for names, loader in self._loaders:
            if names <= stored:
                loader.restore(session, path)
            elif not any(map(contents.may_be_missing, names)):
                self._load_each(session, path, names)
        if self._permute and order.NAME not in stored:
            session.run(self._permute)
        # Only of loaded variables, which are known to be readable.
        contents.check_counts(path, stored & self._variables.keys())

    def _load_each(
        self, session: v1.Session, path: str, names: Collection[str]
    ) -> None:
        """Loads a checkpoint of a run in which other variables were frozen.

        A missing moving average starts at the value of its variable, and missing slots
        start as in a new run.
        """
        reader = tf.train.load_checkpoint(path)
        missing = contents.untrained(names, contents.of(path))
        averages = {name for name in missing if name.endswith(contents.AVERAGE)}
        for name in sorted({*names} - missing.keys() | averages):
            variable, value = (
                self._variables[name],
                reader.get_tensor(missing.get(name, name)),
            )
            put(session, variable, value)
        if thawed := {missing[name] for name in missing.keys() - averages}:
            self._log(
                f"The optimizer's slots of {len(thawed)} variables are not in {path}, "
                "as they were frozen; they begin at their initial values"
            )


def put(
    session: v1.Session, variable: tf.Variable | parts.Parts, value: np.ndarray
) -> None:
    """Gives a variable a value, without adding an operation to the graph.

    Args:
      session: on the variable's graph, which may be finalized.
      variable: whole or partitioned.
      value: of the whole.
    """
    for piece, part in zip(parts.each(variable), parts.cut(value, variable)):
        # As `Variable.load` does.
        session.run(piece.initializer, {piece.initializer.inputs[1]: part})


def _groups(variables: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Groups of variables that are loaded together, without constants.

    Variables that may be missing form a group per `contents.kind_of`; all others one.
    """
    groups: dict[str, dict[str, Any]] = {}
    for name, variable in variables.items():
        if not constants.is_one(name):
            groups.setdefault(contents.kind_of(name), {})[name] = variable
    return list(groups.values())
