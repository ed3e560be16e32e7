"""Partitioned variables: one variable of the model, in parts on several devices.

Each part is a separate variable, named `<name>/part_<k>` as by TensorFlow's
partitioners, with its own read, gradient, mean and slot variables.  `Parts` is the list
of the parts of one whole, variables or values.  The functions here take `Parts`, or a
variable or value that is not partitioned.

  * The initial values of the parts are slices of the whole's initial value.
  * A checkpoint contains the whole, and its slots, under the whole's name.  It can be
    restored with any number of parts, or without.
  * Rules by variable name, such as which variables are decayed, use the whole's name.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1

_PART = re.compile(r"/part_\d+(?=/|$)")


class Split(NamedTuple):
    """How a variable is partitioned: into nearly equal parts along an axis.

    If the axis does not divide evenly, the first parts are longer by one.

    Attributes:
      count: number of parts.
      axis: along which the variable is split.
      fetched: whether part k is read on device k of each tower; if not, the tower's
        operations on a part run where that part is.
    """

    count: int  # type: ignore[assignment]
    axis: int = 0
    fetched: bool = False

    def ranges(self, length: int) -> list[tuple[int, int]]:
        """(begin, size) of each part of an axis of that length."""
        size, rest = divmod(length, self.count)
        sizes = [size + (k < rest) for k in range(self.count)]
        return [(sum(sizes[:k]), sizes[k]) for k in range(self.count)]

    @classmethod
    def over(cls, shape: tf.TensorShape, limit: int, most: int) -> "Split | None":
        """The split of a float32 variable along its longest axis; None for no split.

        Args:
          shape: of the variable.
          limit: bytes of a part, which it may exceed if `most` parts are too few; 0
            splits no variable.
          most: the largest number of parts.
        """
        sizes, num_bytes = shape.as_list(), 4 * shape.num_elements()
        if not limit or not sizes or num_bytes <= limit:
            return None
        axis = sizes.index(max(sizes))
        count = min(most, sizes[axis], -(-num_bytes // limit))
        return cls(count, axis) if count > 1 else None

    def shapes(self, whole: Sequence[int]) -> list[tf.TensorShape]:
        """The shape of each part of a whole's shape."""
        whole = list(whole)
        return [
            tf.TensorShape([*whole[: self.axis], size, *whole[self.axis + 1 :]])
            for _, size in self.ranges(whole[self.axis])
        ]


class Parts(list):
    """The parts of a whole in order, in the form that `tf.compat.v1.train.Saver` takes.

    They are variables, or values computed from each of them.

    Attributes:
      axis: along which the whole is split.
    """

    def __init__(self, parts: Sequence[Any], axis: int):
        super().__init__(parts)
        self.axis = axis

    @property
    def sizes(self) -> list[int]:
        """Sizes of the parts along the axis."""
        return [part.shape[self.axis] for part in self]

    @property
    def starts(self) -> list[int]:
        """Offsets of the parts in the whole, along the axis."""
        return [sum(self.sizes[:k]) for k in range(len(self))]

    @property
    def shape(self) -> tf.TensorShape:
        """Shape of the whole."""
        whole = self[0].shape.as_list()
        whole[self.axis] = sum(self.sizes)
        return tf.TensorShape(whole)


def each(variable: Any) -> list[Any]:
    """The parts of a partitioned variable; any other variable alone, in a list."""
    return variable if isinstance(variable, Parts) else [variable]


def apply(function: Callable[[Any], Any], whole: Any) -> Any:
    """Applies a function to each of `Parts`, or to an unpartitioned value."""
    if isinstance(whole, Parts):
        return Parts([function(part) for part in whole], whole.axis)
    return function(whole)


def name_of(whole: str, part: int) -> str:
    """`<whole>/part_<part>`."""
    return f"{whole}/part_{part}"


def is_part(name: str) -> bool:
    """Whether a name is that of a part, or of a part's slot."""
    return whole_name(name) != name


def whole_name(name: str) -> str:
    """The whole's name, from that of a part or of its slot; other names unchanged."""
    return _PART.sub("", name)


def make(
    name: str, initial: tf.Tensor, split: Split, devices: Sequence[str], **options: Any
) -> Parts:
    """Creates the parts of a variable.

    Args:
      name: of the whole.
      initial: initial value of the whole, of static shape.
      split: how it is partitioned.
      devices: of each part.
      **options: of `tf.compat.v1.get_variable`.
    """
    places = iter(devices)

    def on_next_device(create: Callable, **arguments: Any) -> tf.Variable:
        with tf.device(next(places)):
            return create(**arguments)

    cuts = [1] * initial.shape.rank
    cuts[split.axis] = split.count
    with tf.variable_creator_scope(on_next_device):
        partitioned = v1.get_variable(
            name, initializer=initial, partitioner=lambda shape, dtype: cuts, **options
        )
    return Parts(list(partitioned), split.axis)


def joined(
    variables: Mapping[str, tf.Variable], wholes: Mapping[str, Parts]
) -> dict[str, tf.Variable | Parts]:
    """Variables by their names in a checkpoint, with parts and their slots together.

    Args:
      variables: by name, the parts of one whole in order.
      wholes: by name, the partitioned variables.
    """
    by_name: dict[str, tf.Variable | Parts] = {}
    for name, variable in variables.items():
        head, *rest = _PART.split(name, maxsplit=1)
        if rest and head in wholes:
            whole = by_name.setdefault(head + rest[0], Parts([], wholes[head].axis))
            whole.append(variable)
        else:
            by_name[name] = variable
    return by_name


def by_tower(
    replicas: Mapping[str, Sequence[tf.Variable]], wholes: Mapping[str, Parts]
) -> list[dict[str, tf.Variable | Parts]]:
    """Each tower's replicas by name, with parts and their slots together.

    Args:
      replicas: of each variable, part and slot, in tower order.
      wholes: by name, the partitioned variables.
    """
    return [joined(dict(zip(replicas, row)), wholes) for row in zip(*replicas.values())]


def read(variable: Any) -> Any:
    """The current value, or `Parts` of values, each read on its variable's device."""

    def read_part(part: tf.Variable) -> tf.Tensor:
        with tf.device(part.device):
            # `read_value` would add an identity, and `value` forget the device.
            return tf.raw_ops.ReadVariableOp(resource=part.handle, dtype=part.dtype)

    return apply(read_part, variable)


def cut(whole: np.ndarray, variable: Any) -> list[np.ndarray]:
    """The value of each of `each(variable)`, from that of the whole."""
    if not isinstance(variable, Parts):
        return [whole]
    return np.split(whole, variable.starts[1:], variable.axis)


def join(values: Any) -> tf.Tensor:
    """The value of the whole: `Parts` are concatenated, other values returned."""
    return tf.concat(values, values.axis) if isinstance(values, Parts) else values


def divide(gradient: Any, variable: Any, host: str) -> list:
    """Splits a tower's gradient like its variable: one gradient per part.

    Args:
      gradient: tensor, None, or `IndexedSlices`, whose rows are divided by the parts
        that have them.
      variable: partitioned or not.
      host: the CPU device of the tower's host, where `IndexedSlices` are split.
    """
    if not isinstance(variable, Parts):
        return [gradient]
    if gradient is None:
        return [None] * len(variable)
    if not isinstance(gradient, tf.IndexedSlices):
        with tf.device(gradient.device):
            return tf.split(gradient, variable.sizes, variable.axis)
    with tf.device(host):
        values, indices = _divide_rows(gradient, variable)
        shapes = [part.shape.as_list() for part in variable]
        return [
            tf.IndexedSlices(*rows, tf.constant(shape, gradient.indices.dtype))
            for *rows, shape in zip(values, indices, shapes)
        ]


def _divide_rows(
    gradient: tf.IndexedSlices, variable: Parts
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Values and indices for each part."""
    count = len(variable)
    if variable.axis:
        values = tf.split(gradient.values, variable.sizes, variable.axis)
        return values, [gradient.indices] * count
    owner = owners(gradient.indices, variable)
    values = tf.dynamic_partition(gradient.values, owner, count)
    indices = tf.dynamic_partition(gradient.indices, owner, count)
    return values, [rows - start for rows, start in zip(indices, variable.starts)]


def owners(rows: tf.Tensor, variable: Parts) -> tf.Tensor:
    """The index of the part that has each row: int32 [n], for integer rows [n]."""
    starts = tf.constant(variable.starts, rows.dtype)
    return tf.searchsorted(starts, rows, side="right") - 1
