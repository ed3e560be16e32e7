"""Copies of frozen variables on the devices of the towers that read them.

A frozen variable is stored once, wherever the mode puts it.  Without a copy its value
would be transferred to every tower in every step.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import tensorflow as tf

from towers.layout import parts
from towers.layout.placement import Placement
from towers.variable_update.variable_store import copy_to, on_towers

v1 = tf.compat.v1


class FixedCopies:
    """A copy for each tower whose device is not the variable's.

    Args:
      placement: of the towers.
      names: of the variables that no step changes.
    """

    def __init__(self, placement: Placement, names: Collection[str] = ()):
        self._placement = placement
        self._names = {name for name in names if not parts.is_part(name)}
        self._stores = on_towers(placement)
        self._copies: dict[str, list[tf.Variable]] = {}  # the variable itself is first

    @property
    def variables(self) -> list[tf.Variable]:
        """The copies; `fill` sets their values."""
        return [copy for _, *copies in self._copies.values() for copy in copies]

    def read(
        self,
        name: str,
        tower: int,
        held: Callable[[str], Any],
        stages: Mapping[str, int],
    ) -> tf.Tensor | None:
        """The value of a tower's copy.

        Args:
          name: of the variable.
          tower: index of the tower that reads it.
          held: name -> variable.
          stages: name -> the first stage that reads the variable.

        Returns:
          None if it has none: a step changes the variable, or it is on the tower's
          device, or partitioned.
        """
        if name not in self._names or isinstance(held(name), parts.Parts):
            return None
        variable, store = held(name), self._stores[tower]
        if variable.device == self._placement.stages[tower][stages[name]]:
            return None
        start = v1.zeros_initializer()
        created = store.create(
            name, variable.shape, start, trainable=False, stage=stages[name]
        )
        self._copies.setdefault(name, [variable]).extend(created.values())
        return store.read(name)

    def fill(self) -> list[tf.Operation]:
        """Copies the variables' values; runs after initialisation and a restore."""
        return [copy_to(*copies) for copies in self._copies.values()]
