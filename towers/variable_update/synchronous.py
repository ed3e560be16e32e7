"""The synchronous modes: all towers step together, on the variables of this step."""

import dataclasses
from collections.abc import Collection, Sequence

import tensorflow as tf

from towers.compute.tower import Gradient, Tower
from towers.gradients import reduction, sparse
from towers.gradients.exchange import GradientExchange
from towers.gradients.transfer import Arrivals
from towers.layout import graph_names, parts
from towers.layout.graph_names import checkpoint_name
from towers.optimizers.optimizer import Update
from towers.variable_update.base import ByCopy, VariableUpdate
from towers.variable_update.variable_store import VariableStore, on_towers

v1 = tf.compat.v1


class ParameterServer(VariableUpdate):
    """One copy of every variable, read by all towers, updated once per step.

    `variable_placement` chooses the device of each variable; with `partition_bytes`,
    large ones are partitioned over several devices.  Every tower sends its gradient,
    partitioned like the variable, to the variable's device, where the mean is computed
    and applied.  With `sufficient_factors`, a gradient that is a product of two smaller
    matrices is sent as these.
    """

    description = "one copy; the mean gradient is formed and applied beside it"
    reads = (
        *VariableUpdate.reads,
        "variable_placement",
        "partition_bytes",
        "sufficient_factors",
    )
    between_graph = True

    def _stores(self) -> tuple[VariableStore, list[VariableStore]]:
        where, settings = self.placement, self.exchange
        store = VariableStore(
            where.homes,
            self.seed,
            shards=where.shard_homes,
            variable_placement=settings.variable_placement,
            partition_bytes=settings.partition_bytes,
        )
        return store, []

    def reduce(
        self, towers: Sequence[Tower], names: Sequence[str]
    ) -> list[list[Gradient]]:
        """The mean of each gradient, on its variable's device."""
        hosts = [self.placement.hosts[tower.index] for tower in towers]
        pieces = self.store.pieces(names)
        with tf.name_scope(graph_names.REDUCTION):
            gradients = _gradients(towers, self.exchange)
            if self.wholes:
                gradients = [
                    self.store.divide(of_tower, names, host)
                    for of_tower, host in zip(gradients, hosts)
                ]
            means = reduction.mean_of_towers(
                gradients,
                [[piece.device] for piece in pieces],
                names=[parts.whole_name(checkpoint_name(piece)) for piece in pieces],
                hosts=hosts,
                dtype=self.exchange.compact_gradient_transfer,
            )
            devices = {d for t in towers for d in self.placement.stages[t.index]}
            return [_once_free(self.store, [c[0] for c in means], names, devices)]

    def update(
        self, gradients: ByCopy, names: Sequence[str], update: Update, rate: tf.Tensor
    ) -> list[tf.Operation]:
        """One update of each variable."""
        return [_apply(self.store, gradients[0], names, update=update, rate=rate)]


def _gradients(
    towers: Sequence[Tower], exchange: GradientExchange
) -> list[list[Gradient]]:
    """The towers' gradients, [towers][variables], in the form to be reduced."""
    gradients = [tower.gradients for tower in towers]
    if not exchange.sparse_to_dense_grads:
        return gradients
    return sparse.densify_all(gradients)


def _once_free(
    store: VariableStore,
    gradients: Sequence[Gradient],
    names: Sequence[str],
    devices: Collection[str],
) -> list[Gradient]:
    """Delays the gradient of each large variable until its value is not in use.

    TensorFlow copies a variable that is updated while its value is in use.  The
    gradient with respect to a layer's input uses the value, and often still runs when
    the gradient with respect to the variable is ready.  Waiting for all of the towers'
    gradients instead would keep them all in memory.

    Args:
      store: of the variables.
      gradients: one for each of its `pieces`: tensor, `IndexedSlices` or None.
      names: of the variables.
      devices: of the towers of this step; waiting for others would run them.
    """
    freed, pieces = list(gradients), store.pieces(names)
    for index, users in store.users(names, devices).items():
        if isinstance(gradient := freed[index], tf.Tensor):
            with tf.device(pieces[index].device):
                with tf.control_dependencies([tf.group(*users)]):
                    freed[index] = tf.identity(gradient)
    return freed


def _apply(
    store: VariableStore,
    gradients: Sequence[Gradient],
    names: Sequence[str],
    *,
    update: Update,
    rate: tf.Tensor,
) -> tf.Operation:
    """The update of one copy."""
    update = dataclasses.replace(update, prefix=store.prefix)
    return store.optimizer.apply(
        update.rules,
        update.make,
        gradients,
        store.pieces(names),
        rate=rate,
        reads=store.reads,
    )


class Replicated(VariableUpdate):
    """A replica of every trainable variable on each tower's device.

    The gradients are all-reduced, and every tower applies the mean to its own replica,
    so the replicas stay bit-equal.  The first tower's replicas have the plain names and
    are the ones saved.  Batch norm's moving averages exist once, beside them.
    """

    description = "a replica per tower; each applies the all-reduced mean gradient"
    reads = (
        *VariableUpdate.reads,
        "all_reduce_spec",
        "gradient_repacking",
        "agg_small_grads_max_bytes",
        "agg_small_grads_max_group",
    )
    replicates = True

    def _stores(self) -> tuple[VariableStore, list[VariableStore]]:
        homes = self.placement.replica_homes[0]
        first = VariableStore(homes, self.seed, shards=homes)
        return first, [first, *on_towers(self.placement)[1:]]

    def reduce(
        self, towers: Sequence[Tower], names: Sequence[str]
    ) -> list[list[Gradient]]:
        """The mean of each gradient, on every tower's device."""
        with tf.name_scope(graph_names.REDUCTION):
            means = reduction.mean_of_towers(
                _gradients(towers, self.exchange),
                [
                    [c.variables[name].device for c in self.replica_stores]
                    for name in names
                ],
                names=names,
                hosts=[self.placement.hosts[tower.index] for tower in towers],
                dtype=self.exchange.compact_gradient_transfer,
                reduce_all=self.exchange.reduce_all(self.placement.hosts),
            )
            return [
                _once_free(copy, [c[k] for c in means], names, devices)
                for k, (copy, devices) in enumerate(
                    zip(self.replica_stores, self.placement.stages)
                )
            ]

    def update(
        self, gradients: ByCopy, names: Sequence[str], update: Update, rate: tf.Tensor
    ) -> list[tf.Operation]:
        """An update of each replica."""
        changes, slots = [], []
        for k, of_tower in enumerate(gradients):
            before = {v.ref() for v in v1.global_variables()}
            with tf.device(self.placement.towers[k]):
                copy = self.replica_stores[k]
                changes.append(_apply(copy, of_tower, names, update=update, rate=rate))
            slots.append([v for v in v1.global_variables() if v.ref() not in before])
        for replicas in zip(*slots):
            self.replicas[checkpoint_name(replicas[0])] = list(replicas)
        return changes


class DistributedReplicated(ParameterServer):
    """A shadow copy, updated with the mean, and a replica of it on each tower's device.

    The mean gradient is computed and applied beside the shadow copy, as in
    `ParameterServer`; then the new values are copied to every tower's replica, once to
    each task of a cluster.  So a tower reads variables from its own device.  The shadow
    copy has the plain names and the slot variables, and is the one saved; batch norm's
    moving averages exist there only.
    """

    description = (
        "a shadow copy, to which the mean gradient is applied, and a replica of it per "
        "tower"
    )
    replicates = True
    saved_replicas = 0

    def _stores(self) -> tuple[VariableStore, list[VariableStore]]:
        shadow, _ = super()._stores()
        return shadow, on_towers(self.placement)

    def update(
        self, gradients: ByCopy, names: Sequence[str], update: Update, rate: tf.Tensor
    ) -> list[tf.Operation]:
        """Updates the shadow copy, then copies it to the replicas."""
        changes = super().update(gradients, names, update, rate)
        return [*changes, *self.sync(changes)]

    def sync(self, after: Sequence[tf.Operation] = ()) -> list[tf.Operation]:
        """Copies the shadow copy to all replicas, in a step after they were read.

        After a restore the replicas may have no values yet.
        """
        arrive, copies = Arrivals(), []
        for name, replicas in self.replicas.items():
            with tf.control_dependencies(after):
                value = parts.read(self.held(name))
            for copy, host, replica in zip(
                self.replica_stores, self.placement.hosts, replicas
            ):
                value_here = arrive(value, host)
                read = [copy.read(name)] if after else []
                with tf.device(replica.device), tf.control_dependencies(read):
                    copies.append(replica.assign(value_here, read_value=False))
        return copies


class Independent(Replicated):
    """A replica per tower and no exchange: the upper bound on speed.

    Every tower trains a separate model on its share of the data, with the mean gradient
    of its own batch.  The first tower's model is saved, and all towers of a resumed run
    start from it.
    """

    description = "a replica per tower, no exchange: it does NOT train one model"
    reads = ()
    joined = False
    exact = False
    replicates = False

    def reduce(
        self, towers: Sequence[Tower], names: Sequence[str]
    ) -> list[list[Gradient]]:
        """Each tower's own gradients, on the devices of its replicas."""
        reduced = []
        with tf.name_scope(graph_names.REDUCTION):
            for tower, gradients in zip(towers, _gradients(towers, self.exchange)):
                copy = self.replica_stores[tower.index]
                homes = [[copy.variables[name].device] for name in names]
                means = [
                    c[0]
                    for c in reduction.mean_of_towers([gradients], homes, names=names)
                ]
                devices = self.placement.stages[tower.index]
                reduced.append(_once_free(copy, means, names, devices))
        return reduced
