"""How variables and gradients meet: one class per mode.

A mode says where variables are created, what a tower reads, and how the towers'
gradients become one update.  The towers do not know the mode, and the mode does not
know how a tower came about.
"""

import dataclasses
import zlib
from collections.abc import Callable, Sequence

import tensorflow as tf

from towers import packing, reduction, sparse
from towers.optimizer import Update
from towers.placement import Placement
from towers.tower import Gradient, Tower

v1 = tf.compat.v1


@dataclasses.dataclass(frozen=True)
class Exchange:
    """How the replicas' gradients are reduced.

    Attributes:
      all_reduce_spec: in the grammar of `spec`.
      gradient_repacking: 0, or the number of equal packs for all gradients.
      small_bytes: gradients up to this size are reduced in groups.
      small_group: most gradients in one group.
      sparse_to_dense: sparse gradients become dense ones on their tower.
    """

    all_reduce_spec: str = "pscpu"
    gradient_repacking: int = 0
    small_bytes: int = 0
    small_group: int = 10
    sparse_to_dense: bool = False

    def gradients(self, towers: Sequence[Tower]) -> list[list[Gradient]]:
        """The towers' gradients, [towers][variables], as they are to be reduced.

        Raises:
          ValueError: sparse ones are to become dense, and there are none.
        """
        found = [tower.gradients for tower in towers]
        if not self.sparse_to_dense:
            return found
        if not any(isinstance(gradient, tf.IndexedSlices) for gradient in found[0]):
            raise ValueError(
                "--sparse_to_dense_grads: no gradient of this model is sparse; leave "
                "it out"
            )
        return [sparse.densify(gradients) for gradients in found]

    def reduce_all(self, hosts: Sequence[str]) -> reduction.ReduceAll:
        """The reduction of all gradients that these settings describe."""
        reduce = reduction.from_spec(self.all_reduce_spec, hosts)
        if self.gradient_repacking:
            return packing.equal(self.gradient_repacking, reduce)
        if self.small_bytes:
            return packing.small(self.small_bytes, self.small_group, reduce)
        return reduction.each(reduce)


class ParameterServer:
    """One copy of every variable, read by all towers, updated once per step.

    Variables lie on the placement's parameter devices, each on the one that holds the
    fewest bytes when it is made.  Every tower's gradient travels to the variable's
    device; their mean is formed and applied there.
    """

    exchanges = True  # whether the towers' gradients meet
    all_reduce_spec: str | None = None  # how, where there is a choice
    description = "one copy; the mean gradient is formed and applied beside it"

    def __init__(
        self, placement: Placement, *, seed: int = 0, exchange: Exchange = Exchange()
    ):
        if dataclasses.replace(exchange, sparse_to_dense=False) != Exchange():
            raise ValueError(
                "--all_reduce_spec, --gradient_repacking and --agg_small_grads_* are "
                "about replicas; write --variable_update=replicated with them"
            )
        self.placement = placement
        self._exchange = exchange
        self._store = _Store(placement.parameters, seed)
        self._reads: dict[str, tf.Tensor] = {}
        self.variables: dict[str, tf.Variable] = self._store.variables

    def create(
        self,
        name: str,
        shape: tf.TensorShape,
        initializer: Callable | None,
        *,
        trainable: bool,
    ) -> None:
        """Makes a float32 variable unless there is one of this name."""
        self._store.create(name, shape, initializer, trainable=trainable)

    def read(self, name: str, tower: int) -> tf.Tensor:
        """The variable's value as the tower reads it: once a step for all towers."""
        del tower
        return _read_once(self._reads, name, self.variables[name])

    def apply(
        self, towers: Sequence[Tower], names: Sequence[str], update: Update, rate
    ) -> list[tf.Operation]:
        """The updates of all variables from the towers' gradients.

        Args:
          towers: with gradients in the order of `names`.
          names: of the trainable variables.
          update: optimizer, weight decay.
          rate: float32 scalar, the learning rate of this step.

        Returns:
          operations that, run once, make one step.
        """
        variables = [self.variables[name] for name in names]
        with tf.name_scope("reduction"):
            means = reduction.mean(
                self._exchange.gradients(towers),
                [[variable.device] for variable in variables],
                names=names,
                hosts=self.placement.hosts,
            )
        gradients = [copies[0] for copies in means]
        return [
            _update_one_copy(
                gradients, variables, reads=self._reads, update=update, rate=rate
            )
        ]

    def sync(self) -> tf.Operation:
        """What must run after initialisation or restore: nothing, with one copy."""
        return tf.no_op()

    def saved(self, variables: Sequence[tf.Variable]) -> dict[str, tf.Variable]:
        """Checkpoint name -> variable, of all global variables of the graph."""
        return {variable.op.name: variable for variable in variables}


class Replicated:
    """A replica of every trainable variable on each tower's device.

    The gradients are all-reduced, and every tower applies the mean to its own replica,
    so the replicas stay bit-equal.  The first tower's replicas carry the plain names
    and are the ones saved.  Moving averages of batch norm exist once, beside them.
    """

    exchanges = True
    description = "a replica per tower; each applies the all-reduced mean gradient"

    def __init__(
        self, placement: Placement, *, seed: int = 0, exchange: Exchange = Exchange()
    ):
        self.placement = placement
        self._exchange = exchange
        self.all_reduce_spec = exchange.all_reduce_spec if self.exchanges else None
        first, *others = placement.towers
        self._stores = [_Store([first], seed)]
        self._stores += [
            _Store([device], seed, prefix=f"replica_{k}/")
            for k, device in enumerate(others, start=1)
        ]
        self._reads: list[dict[str, tf.Tensor]] = [{} for _ in placement.towers]
        self._slots: list[list[tf.Variable]] = [[] for _ in placement.towers]
        self.variables: dict[str, tf.Variable] = self._stores[0].variables

    def create(
        self,
        name: str,
        shape: tf.TensorShape,
        initializer: Callable | None,
        *,
        trainable: bool,
    ) -> None:
        """Makes a float32 variable, and its replicas if it is trained."""
        for store in self._stores if trainable else self._stores[:1]:
            store.create(name, shape, initializer, trainable=trainable)

    def read(self, name: str, tower: int) -> tf.Tensor:
        """The value of the tower's own replica."""
        own = self._stores[tower].variables.get(name)
        if own is None:
            return _read_once(self._reads[0], name, self.variables[name])
        return _read_once(self._reads[tower], name, own)

    def apply(
        self, towers: Sequence[Tower], names: Sequence[str], update: Update, rate
    ) -> list[tf.Operation]:
        """The updates of all replicas; as `ParameterServer.apply` has it."""
        with tf.name_scope("reduction"):
            means = reduction.mean(
                self._exchange.gradients(towers),
                [self.placement.towers] * len(names),
                names=names,
                hosts=self.placement.hosts,
                reduce_all=self._exchange.reduce_all(self.placement.hosts),
            )
        return self._apply_each(
            [[copies[k] for copies in means] for k in range(len(towers))],
            names,
            update,
            rate,
        )

    def _apply_each(self, gradients, names, update: Update, rate):
        """Every tower's gradients to its own replicas."""
        changes = []
        for k, own in enumerate(gradients):
            before = {v.ref() for v in v1.global_variables()}
            variables = [self._stores[k].variables[name] for name in names]
            with tf.device(self.placement.towers[k]):
                changes.append(
                    _update_one_copy(
                        own, variables, reads=self._reads[k], update=update, rate=rate
                    )
                )
            made = [v for v in v1.global_variables() if v.ref() not in before]
            self._slots[k] = made
        return changes

    def replicas(self) -> dict[str, list[tf.Variable]]:
        """Name -> replicas, in tower order, of variables and optimizer slots."""
        found = {}
        for name, first in self.variables.items():
            copies = [store.variables.get(name) for store in self._stores]
            if all(copy is not None for copy in copies):
                found[first.op.name] = copies
        for copies in zip(*self._slots):
            found[copies[0].op.name] = list(copies)
        return found

    def sync(self) -> tf.Operation:
        """Copies the first tower's replicas, slots too, to all others."""
        copies = []
        for first, *others in self.replicas().values():
            with tf.device(first.device):
                value = first.read_value()
            for other in others:
                with tf.device(other.device):
                    copies.append(other.assign(value, read_value=False))
        return tf.group(*copies)

    def saved(self, variables: Sequence[tf.Variable]) -> dict[str, tf.Variable]:
        """Checkpoint name -> variable: of the replicas, the first tower's."""
        later = {v.ref() for copies in self.replicas().values() for v in copies[1:]}
        return {v.op.name: v for v in variables if v.ref() not in later}


class Independent(Replicated):
    """A replica per tower and no exchange: the upper bound on speed.

    Every tower trains a model of its own on its share of the data, by the mean of its
    own examples.  The first tower's model is the one saved, and the one that a resumed
    run gives to all.
    """

    exchanges = False

    description = "a replica per tower, no exchange: it does NOT train one model"

    def apply(
        self, towers: Sequence[Tower], names: Sequence[str], update: Update, rate
    ) -> list[tf.Operation]:
        """Each tower's own gradients, applied to its own replicas."""
        return self._apply_each(
            [tower.gradients for tower in towers], names, update, rate
        )


# name -> mode.  A new mode is one class and one row.
VARIABLE_UPDATES = {
    "parameter_server": ParameterServer,
    "replicated": Replicated,
    "independent": Independent,
}


class _Store:
    """Float32 variables by name, each on the device that holds the fewest bytes."""

    def __init__(self, devices: Sequence[str], seed: int, prefix: str = ""):
        self._load = dict.fromkeys(devices, 0)
        self._seed = seed
        self._prefix = prefix
        self._graph = v1.get_default_graph()
        self.variables: dict[str, tf.Variable] = {}

    def create(self, name, shape, initializer, *, trainable: bool) -> None:
        if name in self.variables:
            return
        where = min(self._load, key=self._load.__getitem__)
        self._load[where] += 4 * shape.num_elements()
        with (
            self._graph.as_default(),
            tf.device(where),
            v1.variable_scope(v1.VariableScope(reuse=False), use_resource=True),
        ):
            self.variables[name] = v1.get_variable(
                self._prefix + name,
                shape,
                tf.float32,
                seeded(initializer, name, self._seed),
                trainable=trainable,
            )


def _read_once(reads: dict[str, tf.Tensor], name: str, variable) -> tf.Tensor:
    if name not in reads:
        with v1.name_scope("read/"), tf.device(variable.device):
            reads[name] = variable.read_value()
    return reads[name]


def _update_one_copy(
    gradients, variables, *, reads: dict[str, tf.Tensor], update: Update, rate
) -> tf.Operation:
    """Weight decay and optimizer on one copy of the variables."""
    gradients = update.clip(update.decay(gradients, variables))
    optimizer = update.make(rate)
    pairs = [(g, v) for g, v in zip(gradients, variables) if g is not None]
    # A gradient need not depend on its variable's value, yet the variable must
    # not change before every tower has read it.
    with tf.control_dependencies([tf.group(*reads.values())]):
        return optimizer.apply_gradients(pairs)


def seeded(initializer: Callable | None, name: str, seed: int) -> Callable:
    """The initializer with a seed made from the run's seed and the variable's name.

    TensorFlow would take it from the number of operations made before, and so from
    the number of towers and the mode.

    Args:
      initializer: of `tf.compat.v1` or Keras, or any callable of (shape, dtype).
        Glorot uniform when None, as `get_variable` has it.
      name: of the variable.
      seed: of the run.
    """
    initializer = initializer or v1.glorot_uniform_initializer()
    if isinstance(initializer, type):
        initializer = initializer()
    config = getattr(initializer, "get_config", dict)()
    if "seed" in config and config["seed"] is None:
        own = zlib.crc32(f"{seed}/{name}".encode()) & 0x7FFFFFFF
        # The constructor's dtype is deprecated; get_variable passes it on the call.
        config = {k: v for k, v in config.items() if k != "dtype"}
        return type(initializer).from_config({**config, "seed": own})
    return initializer
