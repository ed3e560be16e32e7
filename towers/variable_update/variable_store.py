"""One copy of the model's variables: created by name, read once a step, updated."""

import itertools
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from towers.compute.tower import Gradient
from towers.gradients import exchange
from towers.layout import graph_names, parts
from towers.layout.parts import Parts, Split
from towers.layout.placement import Placement, host_of, task_of
from towers.optimizers.copy_optimizer import CopyOptimizer

v1 = tf.compat.v1


# Bytes of a large variable, whose update waits until its value is no longer read (see
# `users`).  For the many small ones waiting takes longer than a copy.  Copies of
# large ones fragment TensorFlow's memory: ResNet-50 on one tower took 5 % more.
_LARGE = 2**18

# --variable_placement -> what a variable of so many bytes adds to its device's load.
# A variable is placed on the device with the least load, the first of several.
VARIABLE_PLACEMENTS: dict[str, Callable[[int], int]] = {
    "least_loaded": lambda size: size,
    "round_robin": lambda size: 1,
    "one": lambda size: 0,
}


class VariableStore:
    """Float32 variables by name, and the optimizer that updates them.

    Args:
      devices: [stages], the devices that may hold a stage's variables.
      seed: of the initial values.
      prefix: of the variables' names in the graph.
      shards: [shards], the devices that may hold a part of a sharded variable; empty:
        parts are placed on the stage's devices in turn.
      variable_placement: how a device is chosen, a row of `VARIABLE_PLACEMENTS`.
      partition_bytes: larger trained variables are partitioned, into parts of at most
        so many bytes or one part per device, whichever is fewer; 0 partitions none.

    Attributes:
      variables: model's name -> variable, parts by their own names.
      wholes: model's name -> parts of each partitioned variable.
      stages: model's name -> the first stage that reads the variable.
      prefix: as given.
      optimizer: updates the variables.
      constants: name -> value that is read instead of the variable; {} in training.
    """

    def __init__(
        self,
        devices: Sequence[Sequence[str]],
        seed: int,
        prefix: str = "",
        *,
        shards: Sequence[Sequence[str]] = (),
        variable_placement: str = exchange.DEFAULT.variable_placement,
        partition_bytes: int = 0,
    ):
        self._devices = devices
        self._shards = shards
        self._weight = VARIABLE_PLACEMENTS[variable_placement]
        self._partition_bytes = partition_bytes
        self._load = {place: 0 for places in (*devices, *shards) for place in places}
        self._seed = seed
        self.prefix = prefix
        self._graph = v1.get_default_graph()
        self._reads: dict[str, Any] = {}
        self.optimizer = CopyOptimizer()
        self.constants: Mapping[str, np.ndarray] = {}
        self.variables: dict[str, tf.Variable] = {}
        self.wholes: dict[str, Parts] = {}
        self.stages: dict[str, int] = {}

    def create(
        self,
        name: str,
        shape: tf.TensorShape,
        initializer: Callable | None,
        *,
        trainable: bool,
        stage: int = 0,
        split: Split | None = None,
    ) -> dict[str, tf.Variable]:
        """Creates a variable, whole or partitioned, unless one of this name exists.

        Args:
          name: of the variable.
          shape: of its value.
          initializer: as for `tf.compat.v1.get_variable`.
          trainable: whether it is trained.
          stage: the first stage of a tower that reads it.
          split: how it is partitioned; None: as `partition_bytes` says.

        Returns:
          name -> variable that it has created, parts by their own names.
        """
        if name in self.variables or name in self.wholes:
            return {}
        first = seeded(initializer, name, self._seed)
        places = self._shards
        if split is None and trainable:
            places = ()
            most = len(self._devices[stage])
            split = Split.over(shape, self._partition_bytes, most)
        with (
            self._graph.as_default(),
            graph_names.variable_scope(),
        ):
            if split is not None:
                if not places:  # in turn, from the least loaded on
                    homes = sorted(self._devices[stage], key=self._load.__getitem__)
                    turns = itertools.islice(itertools.cycle(homes), split.count)
                    places = [[home] for home in turns]
                pieces = self._make_parts(
                    name, shape, first, split, places=places, trainable=trainable
                )
            else:
                with tf.device(self._least(self._devices[stage], shape)):
                    variable = v1.get_variable(
                        self.prefix + name,
                        shape,
                        tf.float32,
                        first,
                        trainable=trainable,
                    )
                pieces = {name: variable}
        self.variables |= pieces
        self.stages[name] = stage
        return pieces

    def _make_parts(
        self,
        name: str,
        shape: tf.TensorShape,
        initializer: Callable,
        split: Split,
        *,
        places: Sequence[Sequence[str]],
        trainable: bool,
    ) -> dict[str, tf.Variable]:
        """Makes the parts of a variable; returns name -> part."""
        devices = [
            self._least(homes, part)
            for homes, part in zip(places, split.shapes(shape), strict=True)
        ]
        # The initial value is made whole, in the memory of a host, and then split.
        with tf.device(host_of(devices[0])):
            initial = initializer
            if callable(initializer):
                initial = initializer(shape.as_list(), dtype=tf.float32)
            initial = tf.convert_to_tensor(initial, tf.float32)
        pieces = parts.make(
            self.prefix + name, initial, split, devices, trainable=trainable
        )
        self.wholes[name] = pieces
        return {parts.name_of(name, k): part for k, part in enumerate(pieces)}

    def _least(self, places: Sequence[str], shape: tf.TensorShape) -> str:
        """The device with the least load; adds a variable of this shape to it."""
        device = min(places, key=self._load.__getitem__)
        self._load[device] += self._weight(4 * shape.num_elements())
        return device

    def held(self, name: str) -> tf.Variable | Parts:
        """The variable of this name, or its parts."""
        return self.wholes.get(name) or self.variables[name]

    def pieces(self, names: Sequence[str]) -> list[tf.Variable]:
        """The variables, partitioned ones as their parts, in order."""
        return [piece for name in names for piece in parts.each(self.held(name))]

    def divide(
        self, gradients: Sequence[Gradient], names: Sequence[str], host: str
    ) -> list[Gradient]:
        """A tower's gradients, split like the variables: one for each of `pieces`.

        Args:
          gradients: one per name.
          names: of the variables.
          host: CPU device beside the tower.
        """
        return [
            piece
            for gradient, name in zip(gradients, names, strict=True)
            for piece in parts.divide(gradient, self.held(name), host)
        ]

    def read(self, name: str, after: Sequence[tf.Operation] = ()) -> Any:
        """The variable's value before the step's update, read once for all readers.

        Args:
          name: of the variable.
          after: operations that the read waits for, if this call creates it.

        Returns:
          a tensor, or `Parts` of tensors.
        """
        if name not in self._reads:
            with v1.name_scope(graph_names.READ), tf.control_dependencies(after):
                if self.constants:
                    self._reads[name] = parts.apply(self._constant, self.held(name))
                else:
                    self._reads[name] = parts.read(self.held(name))
        return self._reads[name]

    def _constant(self, variable: tf.Variable) -> tf.Tensor:
        """The constant that is read instead of a variable or part, on its device."""
        name = graph_names.checkpoint_name(variable).removeprefix(self.prefix)
        with tf.device(variable.device):
            return tf.constant(self.constants[name])

    def users(
        self, names: Sequence[str], devices: Collection[str]
    ) -> dict[int, list[tf.Operation]]:
        """What uses the value of each large variable in the variable's own memory.

        Args:
          names: of the variables.
          devices: whose operations count.

        Returns:
          Index among `pieces` -> operations, of those that were read.
        """
        values = {
            piece.ref(): value
            for name, read in self._reads.items()
            for piece, value in zip(parts.each(self.held(name)), parts.each(read))
        }
        return {
            index: [
                op
                for op in values[piece.ref()].consumers()
                if op.device in devices and _same_memory(op.device, piece.device)
            ]
            for index, piece in enumerate(self.pieces(names))
            if piece.ref() in values and _is_large(piece)
        }

    @property
    def reads(self) -> list[tf.Tensor]:
        """The values that were read, partitioned ones as their parts."""
        return [part for read in self._reads.values() for part in parts.each(read)]


def on_towers(placement: Placement) -> list[VariableStore]:
    """For each tower, a store on its devices; what fills it decides the values."""
    return [
        VariableStore(homes, 0, prefix=f"replica_{tower}/", shards=homes)
        for tower, homes in enumerate(placement.replica_homes)
    ]


def _is_large(variable: tf.Variable) -> bool:
    return 4 * variable.shape.num_elements() >= _LARGE


def _same_memory(device: str, other: str) -> bool:
    """Whether the other device reads a tensor of this device without a copy."""
    kinds = {tf.DeviceSpec.from_string(name).device_type for name in (device, other)}
    return device == other or (kinds == {"CPU"} and task_of(device) == task_of(other))


def seeded(initializer: Any, name: str, seed: int) -> Callable:
    """The initializer with a seed derived from the run's seed and the variable's name.

    TensorFlow derives seeds from the number of operations in the graph, which depends
    on the number of towers and the mode.

    Args:
      initializer: of `tf.compat.v1` or Keras, or any callable of (shape, dtype).
        Glorot uniform when None, as `get_variable` has it.
      name: of the variable.
      seed: of the run.
    """
    initializer = initializer or v1.glorot_uniform_initializer()
    if isinstance(initializer, type):
        initializer = initializer()
    config: dict[str, Any] = getattr(initializer, "get_config", dict)()
    if "seed" in config and config["seed"] is None:
        derived_seed = zlib.crc32(f"{seed}/{name}".encode()) & 0x7FFFFFFF
        # The constructor's dtype is deprecated; get_variable passes it in the call.
        config = {k: v for k, v in config.items() if k != "dtype"}
        return type(initializer).from_config({**config, "seed": derived_seed})
    return initializer


def copy_to(first: tf.Variable, *others: tf.Variable) -> tf.Operation:
    """Copies a variable's value to others, read once.

    Each gets a buffer of its own.  Otherwise they could share one, and TensorFlow would
    copy it at the variable's next update, when memory also holds that step's gradients.
    """
    with tf.device(first.device):
        value = first.read_value()
    copies = []
    for other in others:
        with tf.device(other.device):
            buffer = tf.raw_ops.DeepCopy(x=value)
            copies.append(other.assign(buffer, read_value=False))
    return tf.group(*copies)
