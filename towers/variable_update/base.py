"""The interface of a variable update mode.

A mode decides where variables are, what the towers read and how gradients update the
variables.  Towers do not know the mode, and the mode does not know how a tower was
built: whole, in stages, or as a loop over micro-batches.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from flags.rules import Switch
from towers.checkpoints.contents import CARRIED
from towers.compute import sufficient_factors
from towers.compute.tower import Gradient, Tower
from towers.gradients.exchange import DEFAULT, GradientExchange
from towers.layout import parts
from towers.layout.graph_names import checkpoint_name
from towers.layout.parts import Parts
from towers.layout.placement import Placement
from towers.optimizers.optimizer import Update
from towers.variable_update.fixed_copies import FixedCopies
from towers.variable_update.step_quota import QuotaBoard
from towers.variable_update.variable_store import VariableStore, copy_to

v1 = tf.compat.v1

ByCopy: TypeAlias = Sequence[Sequence[Gradient]]  # [copies][variables], parts by part


class VariableUpdate:
    """Base class of the modes in `modes.VARIABLE_UPDATES`.

    Args:
      placement: the devices of towers and variables.
      seed: of the initial values.
      exchange: the settings of gradient exchange.

    Raises:
      ValueError: `exchange` changes a setting that the mode does not read, or names a
        reduction that the towers' devices cannot run.

    Attributes:
      description: one line, printed at the start of a run.
      reads: the settings of `GradientExchange` that the mode reads.
      joined: whether the towers' losses are shares of the mean over the joined batch;
        if not, each tower's loss is the mean over its own batch.
      together: whether all towers take a step together (synchronous); if not, each
        tower takes its own steps.
      exact: whether a step equals that of one tower on the joined batch.
      deferred: number of steps by which the update with a gradient is delayed.
      replicates: whether towers have replicas that always hold the same bits.
      between_graph: whether each worker may be a client with a graph of its own.
      switch: the flag of tf_cnn_benchmarks that chooses the mode together with
        `--variable_update`; None if `--variable_update` alone does.
      placement: the devices of towers and variables.
      variables: name -> variable, parts by their own names; of replicas, the first
        tower's.
      wholes: name -> parts of each partitioned variable; of replicas, the first
        tower's.
      store: of the variables that are saved.
      replica_stores: of each tower's replicas of the trained ones; [] without replicas.
      replicas: name -> replicas in tower order, of variables, parts and slots.
      saved_replicas: how many of them, from the first on, are saved.
      carried: name -> each tower's variable for a value that one step passes to the
        next, such as a deferred gradient; the first tower's are saved.
      carries: the prefix of their names in a checkpoint.
      staged_reads: name -> for each tower what it reads instead of the variable.
      fixed: the towers' copies of what no step changes.
      staleness: int64 scalar of each asynchronous tower's update.
      board: shares the steps among several asynchronous clients; None otherwise.
      constants: name -> value that is read instead of the variable; {} in training.
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
    saved_replicas = 1
    carries = ""

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
        if not self.together:  # its towers do not wait for one another
            placement = dataclasses.replace(placement, at_a_time=0)
        self.placement = placement
        self.exchange = exchange
        self.seed = seed
        self.store, self.replica_stores = self._stores()
        self.variables, self.wholes = self.store.variables, self.store.wholes
        self.replicas: dict[str, list[tf.Variable]] = {}
        self.carried: dict[str, list[tf.Variable]] = {}
        self.staged_reads: dict[str, list[tf.Tensor]] = {}
        self.fixed = FixedCopies(placement)
        self.staleness: list[tf.Tensor] = []
        self.constants: Mapping[str, np.ndarray] = {}
        apart = placement.clients > 1 and not self.together
        self.board = QuotaBoard(placement) if apart else None

    def _stores(self) -> tuple[VariableStore, list[VariableStore]]:
        """What holds the saved variables, and what holds the towers' replicas."""
        raise NotImplementedError

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
        **options: Any,
    ) -> None:
        """Creates a float32 variable, and its replicas if it is trained.

        Args:
          name, shape, initializer, trainable, **options: as `VariableStore.create` has
            them; nothing is created where there is one of this name.
        """
        options["trainable"] = trainable
        created = self.store.create(name, shape, initializer, **options)
        if not trainable:
            return
        options["trainable"] = self.store in self.replica_stores
        start = v1.zeros_initializer()  # `sync` copies the saved value
        replicas = [
            created if s is self.store else s.create(name, shape, start, **options)
            for s in self.replica_stores
        ]
        for piece in replicas[0] if replicas else ():
            self.replicas[piece] = [pieces[piece] for pieces in replicas]

    def freeze(self, constants: Mapping[str, np.ndarray]) -> None:
        """Has towers read constants; called before the first read.

        Args:
          constants: name -> value of every variable, of parts by their own names.
        """
        self.constants = constants
        for store in (self.store, *self.replica_stores):
            store.constants = constants

    def latest(self, name: str, tower: int) -> Any:
        """The value, or `Parts` of values, after the last update, for a tower."""
        store = self.replica_stores[tower] if self.replica_stores else self.store
        return (store if name in store.variables else self.store).read(name)

    def read(self, name: str, tower: int) -> Any:
        """The value, or `Parts` of values, that a tower reads in a training step."""
        if name in self.staged_reads and not self.constants:
            return self.staged_reads[name][tower]
        fixed = self.fixed.read(name, tower, self.held, self.store.stages)
        return self.latest(name, tower) if fixed is None else fixed

    def fix(self, names: Collection[str]) -> None:
        """Has each tower read its own copy of variables that no step changes."""
        self.fixed = FixedCopies(self.placement, names)

    def held(self, name: str) -> tf.Variable | Parts:
        """The variable of this name, or its parts; of replicas, the first tower's."""
        return self.store.held(name)

    def factored(self, names: Sequence[str]) -> dict[int, str]:
        """Index -> device, of variables whose gradients may be added as their factors.

        Args:
          names: of the trainable variables.
        """
        chosen = "sufficient_factors" in self.reads
        if not (chosen and self.exchange.sufficient_factors):
            return {}
        variables = [self.variables.get(name) for name in names]  # None: partitioned
        return {
            index: variable.device
            for index, variable in enumerate(variables)
            if variable is not None
            and variable.shape.num_elements() >= sufficient_factors.LARGE
        }

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
        self, gradients: ByCopy, names: Sequence[str], update: Update, rate: tf.Tensor
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

    def sync(self, after: Sequence[tf.Operation] = ()) -> list[tf.Operation]:
        """The operations that copy the saved variables to those that towers read.

        They run after initialization, after a restore, and in steps that change only
        the saved variables.

        Args:
          after: operations of the step that they wait for; none outside of a step.
        """
        del after
        return [
            copy_to(*copies)
            for copies in (*self.replicas.values(), *self.carried.values())
        ]

    @property
    def whole_variables(self) -> dict[str, tf.Variable | Parts]:
        """Name -> variable of the model or its parts; of replicas the first tower's."""
        return parts.joined(self.variables, self.wholes)

    @property
    def synced(self) -> list[tf.Variable]:
        """The variables whose values come from `sync` only.

        They are not saved, and have no initial values, which would only take memory.
        Constants take the place of all.
        """
        if self.constants:
            carried = [v for copies in self.carried.values() for v in copies]
            replicas = [v for copies in self.replicas.values() for v in copies]
            return [*self.variables.values(), *replicas, *carried]
        later = [r[self.saved_replicas :] for r in self.replicas.values()]
        later += [copies[1:] for copies in self.carried.values()]
        return [v for copies in (*later, self.fixed.variables) for v in copies]

    def saved(self, variables: Sequence[tf.Variable]) -> dict[str, Any]:
        """Checkpoint name -> variable, or its parts, of all global variables."""
        synced = {variable.ref() for variable in self.synced}
        by_name = {checkpoint_name(v): v for v in variables if v.ref() not in synced}
        carried = {
            f"{CARRIED}{self.carries}/{name}": whole
            for name, whole in self.wholes.items()
        }
        return parts.joined(by_name, self.wholes | carried)
