"""The synchronous modes: all towers step together, on the variables of this step."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from towers.compute.tower import Gradient, Tower
from towers.gradients import reduction, sparse
from towers.gradients.exchange import GradientExchange
from towers.gradients.transfer import Arrivals
from towers.layout import graph_names, parts
from towers.layout.graph_names import checkpoint_name
from towers.layout.placement import Placement
from towers.optimizers.optimizer import Update
from towers.variable_update.base import VariableUpdate
from towers.variable_update.variable_store import VariableStore

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

    def __init__(self, placement: Placement, **options: Any):
        super().__init__(placement, **options)
        self._copy = VariableStore(
            placement.homes,
            self.seed,
            shards=placement.shard_homes,
            variable_placement=self.exchange.variable_placement,
            partition_bytes=self.exchange.partition_bytes,
        )
        self.variables = self._copy.variables
        self.wholes = self._copy.wholes
        self.stages = self._copy.stages

    def create(
        self,
        name: str,
        shape: tf.TensorShape,
        initializer: Callable | None,
        *,
        trainable: bool,
        **options: Any,
    ) -> None:
        """Makes the variable."""
        self._copy.create(name, shape, initializer, trainable=trainable, **options)

    def latest(self, name: str, tower: int) -> Any:
        """The value, which is read once a step for all towers."""
        del tower
        return self._copy.read(name)

    def reduce(
        self, towers: Sequence[Tower], names: Sequence[str]
    ) -> list[list[Gradient]]:
        """The mean of each gradient, on its variable's device."""
        hosts = [self.placement.hosts[tower.index] for tower in towers]
        pieces = self._copy.pieces(names)
        with tf.name_scope(graph_names.REDUCTION):
            gradients = _gradients(towers, self.exchange)
            means = reduction.mean_of_towers(
                [
                    self._copy.divide(of_tower, names, h)
                    for of_tower, h in zip(gradients, hosts)
                ],
                [[piece.device] for piece in pieces],
                names=[parts.whole_name(checkpoint_name(piece)) for piece in pieces],
                hosts=hosts,
                dtype=self.exchange.compact_gradient_transfer,
            )
            devices = {d for t in towers for d in self.placement.stages[t.index]}
            return [self._copy.once_free([c[0] for c in means], names, devices)]

    def update(
        self,
        gradients: Sequence[Sequence[Gradient]],
        names: Sequence[str],
        update: Update,
        rate: tf.Tensor,
    ) -> list[tf.Operation]:
        """One update of each variable."""
        return [self._copy.update(gradients[0], names, update, rate)]


def _gradients(
    towers: Sequence[Tower], exchange: GradientExchange
) -> list[list[Gradient]]:
    """The towers' gradients, [towers][variables], in the form to be reduced."""
    gradients = [tower.gradients for tower in towers]
    if not exchange.sparse_to_dense_grads:
        return gradients
    return sparse.densify_all(gradients)


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

    def __init__(self, placement: Placement, **options: Any):
        super().__init__(placement, **options)
        self._copies = [
            VariableStore(
                homes, self.seed, prefix=f"replica_{k}/" if k else "", shards=homes
            )
            for k, homes in enumerate(placement.replica_homes)
        ]
        self.variables = self._copies[0].variables
        self.wholes = self._copies[0].wholes
        self.stages = self._copies[0].stages

    def create(
        self,
        name: str,
        shape: tf.TensorShape,
        initializer: Callable | None,
        *,
        trainable: bool,
        **options: Any,
    ) -> None:
        """Makes the variable, and its replicas if it is trained."""
        first, *others = self._copies
        options["trainable"] = trainable
        pieces = first.create(name, shape, initializer, **options)
        start = v1.zeros_initializer()  # `sync` copies the first replica's value
        if not trainable:
            return
        later = [copy.create(name, shape, start, **options) for copy in others]
        for piece, variable in pieces.items():
            replicas = [variable, *(pieces[piece] for pieces in later)]
            self.replicas[checkpoint_name(variable)] = replicas

    def latest(self, name: str, tower: int) -> Any:
        """The value of the tower's own replica."""
        has_replica = name in self._copies[tower].variables
        return self._copies[tower if has_replica else 0].read(name)

    def reduce(
        self, towers: Sequence[Tower], names: Sequence[str]
    ) -> list[list[Gradient]]:
        """The mean of each gradient, on every tower's device."""
        with tf.name_scope(graph_names.REDUCTION):
            means = reduction.mean_of_towers(
                _gradients(towers, self.exchange),
                [[c.variables[name].device for c in self._copies] for name in names],
                names=names,
                hosts=[self.placement.hosts[tower.index] for tower in towers],
                dtype=self.exchange.compact_gradient_transfer,
                reduce_all=self.exchange.reduce_all(self.placement.hosts),
            )
            return [
                self._copies[k].once_free([c[k] for c in means], names, devices)
                for k, devices in enumerate(self.placement.stages)
            ]

    def update(
        self,
        gradients: Sequence[Sequence[Gradient]],
        names: Sequence[str],
        update: Update,
        rate: tf.Tensor,
    ) -> list[tf.Operation]:
        """An update of each replica."""
        changes, slots = [], []
        for k, of_tower in enumerate(gradients):
            before = {v.ref() for v in v1.global_variables()}
            with tf.device(self.placement.towers[k]):
                changes.append(self._copies[k].update(of_tower, names, update, rate))
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

    def __init__(self, placement: Placement, **options: Any):
        super().__init__(placement, **options)
        self._replicas = [
            VariableStore(homes, self.seed, prefix=f"replica_{k}/", shards=homes)
            for k, homes in enumerate(placement.replica_homes)
        ]

    def create(
        self,
        name: str,
        shape: tf.TensorShape,
        initializer: Callable | None,
        *,
        trainable: bool,
        **options: Any,
    ) -> None:
        """Makes the shadow copy and, if it is trained, its replicas."""
        super().create(name, shape, initializer, trainable=trainable, **options)
        start = v1.zeros_initializer()  # `sync` copies the shadow copy's value
        if not trainable:
            return
        copies = [
            copy.create(name, shape, start, trainable=False, **options)
            for copy in self._replicas
        ]
        for piece in copies[0]:
            self.replicas[piece] = [pieces[piece] for pieces in copies]

    def latest(self, name: str, tower: int) -> Any:
        """The value of the tower's own replica, if it is trained."""
        copy = self._replicas[tower]
        return (
            copy.read(name) if name in copy.variables else super().latest(name, tower)
        )

    def update(
        self,
        gradients: Sequence[Sequence[Gradient]],
        names: Sequence[str],
        update: Update,
        rate: tf.Tensor,
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
                self._replicas, self.placement.hosts, replicas
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
                copy = self._copies[tower.index]
                homes = [[copy.variables[name].device] for name in names]
                means = [
                    c[0]
                    for c in reduction.mean_of_towers([gradients], homes, names=names)
                ]
                devices = self.placement.stages[tower.index]
                reduced.append(copy.once_free(means, names, devices))
        return reduced
