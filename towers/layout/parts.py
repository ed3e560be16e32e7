"""Variables in parts: one tensor of the model that lies on several devices.

Each part is a variable of its own, `<name>/part_<k>` as TensorFlow's partitioners name
them, with a read, a gradient, a mean and optimizer slots of its own.  What is in parts
is a `Parts`, be it variables or their values; what is in one is itself:

  * they begin as the pieces of what the whole would begin as;
  * a checkpoint holds the whole, under its own name, and its slots likewise: it can be
    loaded with any number of parts, or none;
  * what is chosen by a variable's name, as weight decay is, goes by that of the whole.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

v1 = tf.compat.v1

_PART = re.compile(r"/part_\d+(?=/|$)")


class Split(NamedTuple):
    """How a variable is cut: into `count` parts along an axis, the first ones longer
    by one where it does not divide.

    Attributes:
      count: parts.
      axis: along which.
      fetched: whether a tower takes each part to a device of its own, the one of the
        part's number; else it has what it wants of a part done where that lies.
    """

    count: int
    axis: int = 0
    fetched: bool = False

    def ranges(self, length: int) -> list[tuple[int, int]]:
        """(begin, size) of each part of an axis of that length."""
        size, rest = divmod(length, self.count)
        sizes = [size + (k < rest) for k in range(self.count)]
        return [(sum(sizes[:k]), sizes[k]) for k in range(self.count)]

    @classmethod
    def over(cls, shape: tf.TensorShape, limit: int, most: int) -> "Split | None":
        """Parts of a float32 variable along its longest axis; None for one.

        Args:
          shape: of the variable.
          limit: bytes of a part, if `most` parts are enough; 0 for variables in one.
          most: parts.
        """
        sizes, num_bytes = shape.as_list(), 4 * shape.num_elements()
        if not limit or not sizes or num_bytes <= limit:
            return None
        axis = sizes.index(max(sizes))
        count = min(most, sizes[axis], -(-num_bytes // limit))
        return cls(count, axis) if count > 1 else None

    def shapes(self, whole: Sequence[int]) -> list[tf.TensorShape]:
        """Of each part."""
        whole = list(whole)
        return [
            tf.TensorShape([*whole[: self.axis], size, *whole[self.axis + 1 :]])
            for _, size in self.ranges(whole[self.axis])
        ]


class Parts(list):
    """The parts of a whole in order, as `tf.compat.v1.train.Saver` takes them.

    They are variables, or what was made of each of them.

    Attributes:
      axis: along which the whole is cut.
    """

    def __init__(self, parts: Sequence[Any], axis: int):
        super().__init__(parts)
        self.axis = axis

    @property
    def sizes(self) -> list[int]:
        """Of the parts, along the axis."""
        return [part.shape[self.axis] for part in self]

    @property
    def starts(self) -> list[int]:
        """Where each part begins in the whole, along the axis."""
        return [sum(self.sizes[:k]) for k in range(len(self))]

    @property
    def shape(self) -> tf.TensorShape:
        """Of the whole."""
        whole = self[0].shape.as_list()
        whole[self.axis] = sum(self.sizes)
        return tf.TensorShape(whole)


def each(variable: Any) -> list[Any]:
    """The parts of a whole; of any other variable, it alone."""
    return variable if isinstance(variable, Parts) else [variable]


def apply(function: Callable[[Any], Any], whole: Any) -> Any:
    """The function's results for all parts, as parts; or for what is in one."""
    if isinstance(whole, Parts):
        return Parts([function(part) for part in whole], whole.axis)
    return function(whole)


def name_of(whole: str, part: int) -> str:
    """`<whole>/part_<part>`."""
    return f"{whole}/part_{part}"


def is_part(name: str) -> bool:
    """Whether a name is that of a part."""
    return whole_name(name) != name


def whole_name(name: str) -> str:
    """The name of the whole of a part, or of its slot; any other name as it is."""
    return _PART.sub("", name)


def make(
    name: str, initial: tf.Tensor, split: Split, devices: Sequence[str], **options: Any
) -> Parts:
    """Makes the parts of a variable.

    Args:
      name: of the whole.
      initial: what the whole begins as, of static shape.
      split: how it is cut.
      devices: of each part.
      **options: of `tf.compat.v1.get_variable`.
    """
    places = iter(devices)

    def on_next_device(create, **arguments):
        with tf.device(next(places)):
            return create(**arguments)

    cuts = [1] * initial.shape.rank
    cuts[split.axis] = split.count
    with tf.variable_creator_scope(on_next_device):
        made = v1.get_variable(
            name, initializer=initial, partitioner=lambda shape, dtype: cuts, **options
        )
    return Parts(list(made), split.axis)


def joined(
    variables: Mapping[str, tf.Variable], wholes: Mapping[str, Parts]
) -> dict[str, tf.Variable | Parts]:
    """Variables by their names in a checkpoint, with parts and their slots together.

    Args:
      variables: by name, the parts of one whole in order.
      wholes: by name, what is in parts.
    """
    found: dict[str, tf.Variable | Parts] = {}
    for name, variable in variables.items():
        head, *rest = _PART.split(name, maxsplit=1)
        if rest and head in wholes:
            whole = found.setdefault(head + rest[0], Parts([], wholes[head].axis))
            whole.append(variable)
        else:
            found[name] = variable
    return found


def by_tower(
    replicas: Mapping[str, Sequence[tf.Variable]], wholes: Mapping[str, Parts]
) -> list[dict[str, tf.Variable | Parts]]:
    """Each tower's replicas by name, with parts and their slots together.

    Args:
      replicas: of each variable, part and slot, in tower order.
      wholes: by name, what is in parts.
    """
    return [joined(dict(zip(replicas, own)), wholes) for own in zip(*replicas.values())]


def read(variable: Any) -> Any:
    """The present values, each where its variable lies."""

    def one(part):
        with tf.device(part.device):
            return part.read_value()

    return apply(one, variable)


def join(values: Any) -> tf.Tensor:
    """The whole value."""
    return tf.concat(values, values.axis) if isinstance(values, Parts) else values


def divide(gradient: Any, variable: Any, host: str) -> list:
    """A tower's gradient, for each part of the variable.

    Args:
      gradient: tensor, None or `IndexedSlices`; a row of these goes to the part that
        has it.
      variable: in parts or not.
      host: CPU device beside the tower.
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
            tf.IndexedSlices(*found, tf.constant(shape, gradient.indices.dtype))
            for *found, shape in zip(values, indices, shapes)
        ]


def _divide_rows(gradient: tf.IndexedSlices, variable: Parts):
    """Values and indices for each part."""
    count = len(variable)
    if variable.axis:
        values = tf.split(gradient.values, variable.sizes, variable.axis)
        return values, [gradient.indices] * count
    owner = owners(gradient.indices, variable)
    values = tf.dynamic_partition(gradient.values, owner, count)
    indices = tf.dynamic_partition(gradient.indices, owner, count)
    return values, [own - start for own, start in zip(indices, variable.starts)]


def owners(rows: tf.Tensor, variable: Parts) -> tf.Tensor:
    """Which part has each row: int32 [n], for integers [n]."""
    starts = tf.constant(variable.starts, rows.dtype)
    return tf.searchsorted(starts, rows, side="right") - 1
