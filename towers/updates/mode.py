"""What a mode is: where variables are, what towers read, how gradients update them.

The towers do not know the mode, and the mode does not know how a tower came about.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from towers.compute.tower import Gradient, Tower
from towers.gradients.exchange import DEFAULT, Exchange
from towers.layout.parts import Parts, Split
from towers.layout.placement import Placement
from towers.updates.optimizer import Update
from towers.updates.turns import Board


class Mode:
    """What a row of `variable_update.VARIABLE_UPDATES` is; the base of all of them.

    Args:
      placement: devices.
      seed: of the initial values.
      exchange: what the mode leaves to choose.

    Raises:
      ValueError: the mode leaves less to choose.

    Attributes:
      description: for the header, in a line.
      reads: the settings of `Exchange` that have an effect.
      joined: whether the towers' shares add up to one mean; otherwise each tower has
        the mean over its own examples.
      together: whether one step holds all towers; otherwise each has steps of its own.
      exact: whether a step is that of one tower on the joined batch.
      deferred: how many steps after its own a gradient is applied.
      switch: the flag and its value that choose the mode in tf_cnn_benchmarks, beside
        `--variable_update`; None if that alone does.
      placement: devices.
      variables: by name, each part by its own; of replicas, the first tower's.
      wholes: the variables in parts, by name; of replicas, the first tower's.
      board: where towers that step apart take turns with those of other clients; None
        where there are none.
    """

    description = ""
    reads: tuple[str, ...] = ("sparse_to_dense", "transfer")
    joined = True
    together = True
    exact = True
    deferred = 0
    switch: tuple[str, object] | None = None

    def __init__(
        self, placement: Placement, *, seed: int = 0, exchange: Exchange = DEFAULT
    ):
        if unread := sorted(set(exchange.changed()) - set(self.reads)):
            raise ValueError(
                f"{', '.join(unread)}: {type(self).__name__} does not read it"
            )
        if not self.together:  # then none waits for another
            placement = dataclasses.replace(placement, at_a_time=0)
        self.placement = placement
        self.exchange = exchange
        self.seed = seed
        self.variables: dict[str, tf.Variable] = {}
        self.wholes: dict[str, Parts] = {}
        self.board: Board | None = None

    @property
    def all_reduce_spec(self) -> str | None:
        """How gradients are reduced, where there is a choice."""
        chosen = "all_reduce_spec" in self.reads
        return self.exchange.all_reduce_spec if chosen else None

    def create(
        self,
        name: str,
        shape: tf.TensorShape,
        initializer: Callable | None,
        *,
        trainable: bool,
        stage: int = 0,
        split: Split | None = None,
    ) -> None:
        """Makes a float32 variable unless there is one of this name.

        Args:
          name: of the variable.
          shape: of its value.
          initializer: as `tf.compat.v1.get_variable` has it.
          trainable: whether it is trained.
          stage: of a tower, the first that reads it.
          split: how it is cut into parts; None: it is whole.
        """
        raise NotImplementedError

    def read(self, name: str, tower: int) -> Any:
        """The value, or its parts, as the tower reads it in a training step."""
        raise NotImplementedError

    def held(self, name: str) -> tf.Variable | Parts:
        """The variable of this name, or its parts; of replicas, the first tower's."""
        return self.wholes.get(name) or self.variables[name]

    def latest(self, name: str, tower: int) -> Any:
        """The variable's value as evaluation reads it: after the last update."""
        return self.read(name, tower)

    def reduce(
        self, towers: Sequence[Tower], names: Sequence[str]
    ) -> list[list[Gradient]]:
        """The gradients that each copy of the variables is updated with.

        Args:
          towers: of one step, with gradients in the order of `names`.
          names: of the trainable variables.

        Returns:
          [copies][variables] gradients; [copies][parts] of variables in parts.
        """
        raise NotImplementedError

    def update(
        self,
        gradients: Sequence[Sequence[Gradient]],
        names: Sequence[str],
        update: Update,
        rate: tf.Tensor,
    ) -> list[tf.Operation]:
        """The updates of all variables.

        Args:
          gradients: as `reduce` returns them.
          names: of the trainable variables.
          update: optimizer, weight decay.
          rate: float32 scalar, the learning rate of this step.

        Returns:
          operations that, run once, make one step.
        """
        raise NotImplementedError

    def loop(self, ends: Sequence[tuple[tf.Operation, tf.Tensor]]) -> Any:
        """What runs the steps between those that are watched; None: nothing does.

        Args:
          ends: (train op, loss) of each step that the graph has.
        """
        del ends
        return None

    def replicas(self) -> dict[str, list[tf.Variable]]:
        """Name -> replicas, in tower order, of variables and optimizer slots."""
        return {}

    def refresh(self, after: Sequence[tf.Operation]) -> list[tf.Operation]:
        """What brings what a step changed, after that, to this graph's towers."""
        del after
        return []

    def sync(self) -> tf.Operation:
        """What must run after initialisation or restore."""
        return tf.no_op()

    def saved(self, variables: Sequence[tf.Variable]) -> dict[str, Any]:
        """Checkpoint name -> variable, of all global variables of the graph.

        Of variables in parts and their slots, each part has a name of its own.
        """
        return {variable.op.name: variable for variable in variables}
