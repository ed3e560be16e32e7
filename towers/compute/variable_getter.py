"""The variable getter of a model that is traced: a placeholder for every variable."""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from flags.problem import wrong_setting
from towers.errors.explain import first_few
from towers.layout import parts, placeholders
from towers.layout.parts import Split

v1 = tf.compat.v1


class VariableLookup(NamedTuple):
    """Rows of a variable that a tower gathers."""

    variable: str
    dtype: tf.DType  # of the rows as the tower reads them
    ids: str  # name of the tensor of row indices
    rows: str  # name of the gather


class KnownVariable(NamedTuple):
    """A variable, as the model's first `get_variable` of its name describes it."""

    shape: tf.TensorShape
    dtype: tf.DType  # in which it is read
    trainable: bool


# Arguments of `get_variable` that are refused -> what to use instead.
_NOT_TAKEN = {
    "regularizer": "weight decay belongs to the model's recipe",
    "constraint": "apply it to what get_variable returns",
    "partitioner": "the setting partition_bytes cuts large variables",
}


class VariablePlaceholders:
    """Replaces the variables of a traced model by placeholders for their values.

    A partitioned variable has a placeholder for each part.  The model gets their
    concatenation; operations that can work on the parts find them in `parts`, and the
    unused concatenation is dropped from the template.

    Args:
      create: creates a variable, as in `tower.trace`; for a partitioned one it also
        gets `split`.
      splits: name of each partitioned variable -> its split.
      owners: parts that are used on their own devices, by the numbers of
        `placeholders.owner`; new parts are appended.
      known: variables of the model's earlier segments; new ones are added.
      first: whether this trace creates the variables; if not, reuse=True may refer to
        those of an earlier trace.
      trainable: regular expression: variables in whose name it does not match are
        frozen, as if they were made with trainable=False.

    Attributes:
      reads: name of a variable or part -> its placeholder.
      trainable: the placeholders of trainable ones.
      parts: name of the tensor that the model got -> placeholders of its parts.
    """

    def __init__(
        self,
        create: Callable[..., Any],
        splits: Mapping[str, Split],
        owners: list[str] | None = None,
        known: dict[str, KnownVariable] | None = None,
        *,
        first: bool = True,
        trainable: str = "",
    ):
        self._create = create
        self._first = first
        self._trainable = trainable
        self._known = {} if known is None else known
        self._lowered = {name.lower(): name for name in self._known}
        self._splits = splits
        self.owners = [] if owners is None else owners
        self._given: dict[str, tf.Tensor] = {}
        self.reads: dict[str, tf.Tensor] = {}
        self.trainable: dict[str, tf.Tensor] = {}
        self.parts: dict[str, list[tf.Tensor]] = {}

    def get(
        self,
        getter: Callable,
        name: str,
        *,
        shape: Any = None,
        dtype: Any = tf.float32,
        **options: Any,
    ) -> tf.Tensor:
        """A custom getter for `tf.compat.v1.variable_scope`.

        Raises:
          ValueError: towers cannot have such a variable; the message names it.
        """
        del getter
        for option, instead in _NOT_TAKEN.items():
            if options.get(option) is not None:
                raise ValueError(
                    f"variable {name!r}: {option} is not taken from get_variable; "
                    f"{instead}"
                )
        if v1.GraphKeys.GLOBAL_STEP in (options.get("collections") or ()):
            raise ValueError(
                "a model has no global step: its towers are the same in every step; "
                "schedules belong to the model's recipe"
            )
        if re.search(r"/part_\d+$", name):
            raise ValueError(
                f"variable {name!r}: /part_{name.rsplit('_')[-1]} stands for a part of "
                "a variable; give it another name"
            )
        if name in self._known:
            self._check_shared(name, shape, dtype, options.get("reuse"))
        else:
            self._known[name] = self._new(name, shape, dtype, options)
        return self._value(name)

    def listed(
        self, *, trainable: bool, known: bool = True
    ) -> list[tuple[str, tf.Tensor]]:
        """The names of the variables made so far, and their values for this tower.

        Args:
          trainable: whether to leave out the others.
          known: whether to read those of earlier segments, too.
        """
        return [
            (name, self._value(name))
            for name, variable in self._known.items()
            if (variable.trainable or not trainable) and (known or name in self._given)
        ]

    def trains(self, name: str) -> bool:
        """Whether a variable of this name is trained, if the model lets it be."""
        return bool(re.search(self._trainable, name))

    def check_trained(self) -> None:
        """Raises SettingError if every variable is frozen."""
        trained = any(variable.trainable for variable in self._known.values())
        if self._first and self._trainable and not trained:
            raise wrong_setting(
                "trainable",
                self._trainable,
                "matches in the name of no variable that could be trained",
                f"the model has {first_few(self._known)}",
            )

    def _value(self, name: str) -> tf.Tensor:
        """A variable's value, read once."""
        if name not in self._given:
            make = self._joined if name in self._splits else self._read
            self._given[name] = make(name, *self._known[name])
        return self._given[name]

    def _new(
        self, name: str, shape: Any, dtype: Any, options: Mapping[str, Any]
    ) -> KnownVariable:
        """Creates a variable at its first `get_variable`."""
        if name.endswith("/") and options.get("trainable") is False:
            slot = name[:-1].rpartition("/")[2]
            raise ValueError(
                f"a model has no slots as {slot}; moving averages of variables are the "
                "recipe's ema_decay, those of activations follow nn.statistics, and "
                "the optimizer is the recipe's"
            )
        self._check_name(name)
        if options.get("reuse") is True and self._first:
            raise ValueError(
                f"variable {name!r} is to be shared, and there is none; make it first, "
                "without reuse=True"
            )
        trainable = options.get("trainable", True) is not False and self.trains(name)
        shape, initializer = tf.TensorShape(shape), options.get("initializer")
        if initializer is not None and not callable(initializer):
            shape, initializer = _constant(name, initializer)
        if not shape.is_fully_defined():
            raise ValueError(
                f"variable {name!r} is of shape {shape}; give get_variable one that is "
                "fully defined"
            )
        how = {"split": self._splits[name]} if name in self._splits else {}
        self._create(name, shape, initializer, trainable=trainable, **how)
        return KnownVariable(shape, tf.as_dtype(dtype), trainable)

    def _check_name(self, name: str) -> None:
        """Refuses names that TensorFlow would change or confuse with another name."""
        if not name or name.endswith("/"):
            raise ValueError(f"variable {name!r}: a name cannot be empty or end in /")
        other = self._lowered.setdefault(name.lower(), name)
        if other != name:
            raise ValueError(
                f"variable {name!r}: its name and {other!r} differ only in capital "
                "letters, which TensorFlow does not tell apart; give it another"
            )

    def _check_shared(self, name: str, shape: Any, dtype: Any, reuse: Any) -> None:
        """Refuses a second `get_variable` of a name unless it shares the variable."""
        variable = self._known[name]
        if not reuse:
            raise ValueError(
                f"variable {name!r} is there already; give the second one a name or "
                "scope of its own, or share it, in a variable_scope with "
                "reuse=tf.compat.v1.AUTO_REUSE"
            )
        if not variable.shape.is_compatible_with(shape):
            raise ValueError(
                f"variable {name!r} is {variable.shape} and is to be shared as "
                f"{tf.TensorShape(shape)}; a variable has one shape"
            )
        if variable.dtype != dtype:
            raise ValueError(
                f"variable {name!r} is read as {tf.as_dtype(dtype).name} and as "
                f"{variable.dtype.name}; a variable is read in one dtype"
            )

    def lookup(self, ids: tf.Tensor, table: tf.Tensor) -> tf.Tensor | None:
        """Rows of a partitioned table, each gathered on its part's device.

        Args:
          ids: int32 [...].
          table: as the model got it.

        Returns:
          [..., units]; None if the table is not cut into ranges of rows.
        """
        pieces = self.parts.get(table.name)
        if pieces is None or pieces[0].shape[1:] != table.shape[1:]:
            return None
        ranges = Split(len(pieces)).ranges(table.shape[0])
        flat = tf.reshape(ids, [-1])
        starts = tf.constant([begin for begin, _ in ranges], flat.dtype)
        owner = tf.searchsorted(starts, flat, side="right") - 1
        count = len(pieces)
        wanted = tf.dynamic_partition(flat - tf.gather(starts, owner), owner, count)
        places = tf.dynamic_partition(tf.range(tf.size(flat)), owner, count)
        rows = []
        for part, part_ids in zip(pieces, wanted):
            with tf.device(part.device):
                rows.append(tf.gather(part, part_ids))
        joined = tf.dynamic_stitch(places, rows)
        return tf.reshape(joined, [*ids.shape, *table.shape[1:]])

    def _read(
        self, name: str, shape: tf.TensorShape, dtype: tf.DType, trainable: bool
    ) -> tf.Tensor:
        # Inside tf.cond or a loop the placeholder would be in that function's graph,
        # where gradients are not taken.
        with tf.init_scope():
            read = v1.placeholder(dtype, shape, f"read/{name}")
        self.reads[name] = read
        if trainable:
            self.trainable[name] = read
        return read

    def _joined(
        self, name: str, shape: tf.TensorShape, dtype: tf.DType, trainable: bool
    ) -> tf.Tensor:
        """The concatenation of a partitioned variable's placeholders."""
        split, pieces = self._splits[name], []
        for k, part in enumerate(split.shapes(shape)):
            part_name = parts.name_of(name, k)
            where = placeholders.shard(k)
            if not split.fetched:
                where = placeholders.owner(len(self.owners))
                self.owners.append(part_name)
            with tf.device(where):
                pieces.append(self._read(part_name, part, dtype, trainable))
        with v1.name_scope(None):
            whole = tf.concat(pieces, split.axis, f"read/{name}")
        self.parts[whole.name] = pieces
        return whole


def _constant(name: str, value: Any) -> tuple[tf.TensorShape, Callable[..., Any]]:
    """The shape of a constant initial value, and an initializer for it.

    An initial value may be a tensor of the graph that the model is traced in; variables
    are created in another graph, so its static value is used.
    """
    static_value = tf.get_static_value(tf.convert_to_tensor(value))
    if static_value is None:
        raise ValueError(
            f"variable {name!r}: its initializer is a tensor that is computed in each "
            "run; give get_variable a shape, and an initializer such as "
            "tf.compat.v1.truncated_normal_initializer()"
        )
    return tf.TensorShape(static_value.shape), v1.constant_initializer(static_value)
