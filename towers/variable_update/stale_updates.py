"""The modes with stale gradients, which were computed from older variables.

They hide the time of the exchange or of the slowest tower, but do not take the steps of
one tower.  Each class states its equation: w_t are the variables before step t, g(w) is
the mean gradient at w on the step's batch, and update(w, g) is the optimizer's step
from w with gradient g.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from flags.rules import Switch
from towers.checkpoints.contents import CARRIED
from towers.compute.sufficient_factors import Gradient, dense
from towers.gradients import transfer
from towers.layout import graph_names, parts
from towers.layout.parts import Parts, Split
from towers.layout.placement import Placement, host_of
from towers.optimizers.optimizer import Update
from towers.variable_update.base import ByCopy
from towers.variable_update.synchronous import ParameterServer, Replicated

v1 = tf.compat.v1


class Asynchronous(ParameterServer):
    """One copy of every variable; towers do not wait for one another.

    Each tower reads the variables, computes the mean gradient of its own batch, and
    applies it at once: w becomes update(w, g_k(v)), where v are the variables that
    tower k has read.  The staleness of an update is the number of updates that other
    towers applied between that read and this update.  Reads are not atomic: a step may
    read some variables before another tower's update and some after it.

    A global step is one tower's update, of any client.  The learning rate is that of
    one tower's batch; with `staleness_lr` it is divided by the update's staleness where
    that is above 1 (Zhang et al. 2016, Staleness-aware Async-SGD).
    """

    description = (
        "one copy; each tower applies its own gradient when it is ready: it does NOT "
        "take the steps of one tower"
    )
    reads = (*ParameterServer.reads, "max_staleness", "staleness_lr")
    joined = False
    together = False
    exact = False
    switch = Switch("parameter_server", "cross_replica_sync", False)

    _version: tf.Tensor | None = None

    def latest(self, name: str, tower: int) -> Any:
        """The value, read after the global step, so with at least that many updates."""
        del tower
        if self._version is None:
            step = v1.train.get_global_step()
            with tf.device(step.device), v1.name_scope(graph_names.READ):
                self._version = step.read_value()
        return self.store.read(name, after=[self._version.op])

    def update(
        self, gradients: ByCopy, names: Sequence[str], update: Update, rate: tf.Tensor
    ) -> list[tf.Operation]:
        """One tower's update."""
        step = v1.train.get_global_step()
        present = [g for g in map(dense, gradients[0]) if g is not None]
        ready = [getattr(gradient, "values", gradient).op for gradient in present]
        with tf.name_scope("staleness"), tf.device(step.device):
            with tf.control_dependencies(ready):
                stale = step.read_value() - self._version
            if self.exchange.staleness_lr:
                rate = rate / tf.cast(tf.maximum(stale, 1), tf.float32)
        self.staleness.append(stale)
        # The global step is incremented after these updates, so after `stale` is read.
        return [*super().update(gradients, names, update, rate), stale.op]


class Staged(ParameterServer):
    """Towers read the variables of the step before: --staged_vars.

    w_{t+1} = update(w_t, g(w_{t-1})), and w_{-1} = w_0.  Each tower's device has a
    staged copy of the trainable variables.  While a step computes with it, the current
    values are sent to the device for the next step, so no step waits for that transfer.
    Evaluation reads the variables themselves; a checkpoint holds both.
    """

    description = "one copy; towers read it one step late: NOT the steps of one tower"
    exact = False
    between_graph = False
    switch = Switch("parameter_server", "staged_vars", True)
    carries = "staged"

    def __init__(self, placement: Placement, **options: Any):
        super().__init__(placement, **options)
        self._graph = v1.get_default_graph()
        [self._filled] = _carried("filled", [], [placement.master])

    def create(
        self, name: str, shape: tf.TensorShape, *initializer: Any, **options: Any
    ) -> None:
        """Creates the one copy and, if it is trained, a staged one for each tower."""
        super().create(name, shape, *initializer, **options)
        stage, split = options.get("stage", 0), options.get("split")
        pieces, numbers, axis = [name], [stage], 0
        if split is not None:
            numbers, axis = list(range(split.count)), split.axis
            pieces = [parts.name_of(name, number) for number in numbers]
        if not options["trainable"] or pieces[0] in self.carried:
            return
        with self._graph.as_default(), v1.name_scope(graph_names.READ):
            for k, stages in enumerate(self.placement.stages):
                devices = [stages[number] for number in numbers]
                variables = _carried(
                    f"{self.carries}{k or ''}/{name}", shape, devices, axis
                )
                for piece, variable in zip(pieces, variables):
                    self.carried.setdefault(piece, []).append(variable)
                    with tf.device(variable.device):
                        read = variable.read_value()
                    self.staged_reads.setdefault(piece, []).append(read)

    def update(
        self, gradients: ByCopy, names: Sequence[str], update: Update, rate: tf.Tensor
    ) -> list[tf.Operation]:
        """The update, and the copies that the next step reads."""
        arrive, refills = transfer.Arrivals(), []
        for number in range(len(self.placement.towers)):
            for host, copies in self._by_host(number).items():
                values = {name: self.latest(name, number) for name in copies}
                for name, value in arrive.all(values, host).items():
                    copy, read = copies[name], self.staged_reads[name][number]
                    with tf.device(copy.device), tf.control_dependencies([read]):
                        refills.append(copy.assign(value, read_value=False))
        return [*super().update(gradients, names, update, rate), *refills]

    def _by_host(self, tower: int) -> dict[str, dict[str, tf.Variable]]:
        """Host of each of the tower's tasks -> name -> staged copy there."""
        by_host: dict[str, dict[str, tf.Variable]] = {}
        for name, copies in self.carried.items():
            copy = copies[tower]
            by_host.setdefault(host_of(copy.device), {})[name] = copy
        return by_host

    def sync(self, after: Sequence[tf.Operation] = ()) -> list[tf.Operation]:
        """Fills the staged copies from the checkpoint, or else from the variables."""
        del after
        fills = []
        for name, (first, *others) in self.carried.items():
            with tf.device(first.device):
                was = tf.where(
                    self._filled.read_value() > 0,
                    first.read_value(),
                    parts.join(parts.read(self.held(name))),
                )
            for copy in (first, *others):
                with tf.device(copy.device):
                    fills.append(copy.assign(was, read_value=False))
        with tf.control_dependencies(fills):
            return [self._filled.assign(1.0, read_value=False)]


class Relaxed(Replicated):
    """Replicas that apply the mean gradient of the step before:
    --variable_consistency=relaxed.

    w_{t+1} = update(w_t, g_{t-1}), where g_t is the mean gradient of step t, at w_t,
    and g_{-1} = 0.  So the reduction of a step's gradients overlaps with the whole next
    step.  The deferred gradient is in the checkpoint; weight decay is taken at w_t.

    A sparse gradient is deferred as a dense one, as large as its table.  So Momentum
    and RMSProp update the slots of all rows; in other modes they do not change those of
    rows without a gradient.
    """

    description = (
        "a replica per tower; each applies the mean gradient one step late: NOT the "
        "steps of one tower"
    )
    exact = False
    deferred = 1
    switch = Switch("replicated", "variable_consistency", "relaxed")
    carries = "gradient"

    def update(
        self, gradients: ByCopy, names: Sequence[str], update: Update, rate: tf.Tensor
    ) -> list[tf.Operation]:
        """Applies the deferred gradients, and defers this step's."""
        late: list[list[Gradient]] = []
        defers = []
        for k, of_tower in enumerate(gradients):
            late.append([])
            for name, gradient in zip(names, of_tower):
                if gradient is None:
                    late[k].append(None)
                    continue
                kept = self._kept(k, name)
                with tf.device(kept.device):
                    before = kept.read_value()
                    with tf.control_dependencies([before]):
                        dense = tf.convert_to_tensor(gradient)
                        defers.append(kept.assign(dense, read_value=False))
                late[k].append(before)
        return [*super().update(late, names, update, rate), *defers]

    def _kept(self, tower: int, name: str) -> tf.Variable:
        """The variable of a deferred gradient, on the device of the replica or part."""
        if len(self.carried.get(name, ())) <= tower:
            whole = parts.whole_name(name)
            held = self.replica_stores[tower].held(whole)
            devices = [piece.device for piece in parts.each(held)]
            names, axis = [whole], 0
            if isinstance(held, Parts):
                axis = held.axis
                names = [parts.name_of(whole, k) for k in range(len(held))]
            variables = _carried(
                f"{self.carries}{tower or ''}/{whole}", held.shape, devices, axis
            )
            for piece, variable in zip(names, variables):
                self.carried.setdefault(piece, []).append(variable)
        return self.carried[name][tower]


def _carried(
    name: str, shape: Any, devices: Sequence[str], axis: int = 0
) -> list[tf.Variable]:
    """Float32 variables that pass a value from one step to the next; zeros at first.

    Args:
      name: of the whole variable.
      shape: of the whole variable.
      devices: of the parts; with one device there are none.
      axis: along which it is partitioned.
    """
    name, options = CARRIED + name, dict(trainable=False)
    with graph_names.variable_scope():
        if len(devices) > 1:
            split = Split(len(devices), axis)
            return parts.make(name, tf.zeros(shape), split, devices, **options)
        with tf.device(devices[0]):
            start = v1.zeros_initializer()
            return [v1.get_variable(name, shape, tf.float32, start, **options)]
