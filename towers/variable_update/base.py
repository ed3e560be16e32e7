"""The interface of a variable update mode.

A mode decides where variables are, what the towers read and how gradients update the
variables.  Towers do not know the mode, and the mode does not know how a tower was
built: whole, in stages, or as a loop over micro-batches.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from flags.rules import Switch
from towers.compute.tower import Gradient, Tower
from towers.gradients.exchange import DEFAULT, GradientExchange
from towers.layout.graph_names import checkpoint_name
from towers.layout.parts import Parts, Split
from towers.layout.placement import Placement
from towers.optimizers.optimizer import Update
from towers.variable_update.asynchronous import StepLoop
from towers.variable_update.step_quota import QuotaBoard


class VariableUpdate:
    """Base class of the modes in `variable_update.VARIABLE_UPDATES`.

    Args:
      placement: the devices of towers and variables.
      seed: of the initial values.
      exchange: the settings of gradient exchange.

    Raises:
      ValueError: `exchange` changes a setting that the mode does not read, or names a
        reduction that the towers' devices cannot run.

    Attributes:
      description: one line for the header.
      reads: the settings of `GradientExchange` that the mode reads.
      joined: whether the towers' losses are shares of the joined batch's mean; if not,
        each tower's loss is the mean over its own batch.
      together: whether a step is one of all towers (synchronous); if not, each tower
        takes its own steps.
      exact: whether a step equals that of one tower on the joined batch.
      deferred: how many steps after it was computed a gradient is applied.
      replicates: whether towers have replicas that always hold the same bits.
      between_graph: whether each worker may be a client with a graph of its own.
      switch: what chooses the mode in tf_cnn_benchmarks, beside `--variable_update`;
        None if that alone does.
      placement: the devices of towers and variables.
      variables: name -> variable, parts by their own names; of replicas, the first
        tower's.
      wholes: name -> parts of each partitioned variable; of replicas, the first
        tower's.
      board: where the towers of several clients that step asynchronously take turns;
        None otherwise.
    """

    description = ""
    reads: tuple[str, ...] = ("sparse_to_dense_grads", "compact_gradient_transfer")
    joined = True
    together = True
    exact = True
    deferred = 0
    replicates = False
    between_graph = False
    switch: Switch | None = None

    def __init__(
        self,
        placement: Placement,
        *,
        seed: int = 0,
        exchange: GradientExchange = DEFAULT,
    ):
        if unread := sorted(set(exchange.changed()) - set(self.reads)):
            raise ValueError(
                f"{', '.join(unread)}: {type(self).__name__} does not read it"
            )
        exchange.check_devices(placement)
        if not self.together:  # no tower waits for another
            placement = dataclasses.replace(placement, at_a_time=0)
        self.placement = placement
        self.exchange = exchange
        self.seed = seed
        self.variables: dict[str, tf.Variable] = {}
        self.wholes: dict[str, Parts] = {}
        self.board: QuotaBoard | None = None

    @property
    def all_reduce_spec(self) -> str | None:
        """The spec of the reduction; None if the mode has a reduction built in."""
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
        """Creates a float32 variable unless one of this name exists.

        Args:
          name: of the variable.
          shape: of its value.
          initializer: as for `tf.compat.v1.get_variable`.
          trainable: whether it is trained.
          stage: the first stage of a tower that reads it.
          split: how it is partitioned; None: it is whole.
        """
        raise NotImplementedError

    def read(self, name: str, tower: int) -> Any:
        """The value, or `Parts` of values, that a tower reads in a training step."""
        raise NotImplementedError

    def held(self, name: str) -> tf.Variable | Parts:
        """The variable of this name, or its parts; of replicas, the first tower's."""
        return self.wholes.get(name) or self.variables[name]

    def latest(self, name: str, tower: int) -> Any:
        """The variable's value as evaluation reads it: after the last update."""
        return self.read(name, tower)

    def taken(
        self, gradients: Sequence[Gradient], names: Sequence[str]
    ) -> Sequence[Gradient]:
        """A tower's gradients in the forms in which the mode takes them.

        Args:
          gradients: as the tower computes them, in the order of `names`.
          names: of the trainable variables.
        """
        del names
        return gradients

    def reduce(
        self, towers: Sequence[Tower], names: Sequence[str]
    ) -> list[list[Gradient]]:
        """The reduced gradients for each copy of the variables.

        Args:
          towers: of one step, with gradients in the order of `names`.
          names: of the trainable variables.

        Returns:
          `[copies][variables]` gradients, one for each part of a partitioned variable.
        """
        raise NotImplementedError

    def update(
        self,
        gradients: Sequence[Sequence[Gradient]],
        names: Sequence[str],
        update: Update,
        rate: tf.Tensor,
    ) -> list[tf.Operation]:
        """The update of all variables.

        Args:
          gradients: as `reduce` returns them.
          names: of the trainable variables.
          update: optimizer, weight decay and clipping.
          rate: float32 scalar, the learning rate of this step.

        Returns:
          the operations that update all copies once.
        """
        raise NotImplementedError

    def loop(self, ends: Sequence[tuple[tf.Operation, tf.Tensor]]) -> StepLoop | None:
        """A runner of the steps between those with hooks; None: the session loop.

        Args:
          ends: (train op, loss) of each step in the graph.
        """
        del ends
        return None

    def replicas(self) -> dict[str, list[tf.Variable]]:
        """Name -> replicas in tower order, of variables and of optimizer slots."""
        return {}

    def refresh(self, after: Sequence[tf.Operation]) -> list[tf.Operation]:
        """Copies what a step has changed to the replicas in this graph.

        Args:
          after: the operations to wait for.
        """
        del after
        return []

    def sync(self) -> tf.Operation:
        """The operation to run after initialisation and after a restore."""
        return tf.no_op()

    def synced(self) -> list[tf.Variable]:
        """The variables that only `sync` gives their values.

        They have no initial values, which would take memory and be thrown away, and
        are not saved.
        """
        return []

    def own(self, variables: Sequence[tf.Variable]) -> list[tf.Variable]:
        """The given variables, those that are `synced` left out."""
        synced_refs = {variable.ref() for variable in self.synced()}
        return [variable for variable in variables if variable.ref() not in synced_refs]

    def saved(self, variables: Sequence[tf.Variable]) -> dict[str, Any]:
        """Checkpoint name -> variable, out of all global variables of the graph.

        Each part of a partitioned variable, or of its slots, has its own name.
        """
        return {checkpoint_name(variable): variable for variable in self.own(variables)}
