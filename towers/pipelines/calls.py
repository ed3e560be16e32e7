"""Calls of functions that are not inlined: the passes of pipelines.

A pass is one `PartitionedCall`.  Towers, stages and micro-batches need thousands of
them, each with dozens of inputs.  TensorFlow's Python takes milliseconds to add one;
adding all of them in one `GraphDef` saves most of that.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

v1 = tf.compat.v1

Spec: TypeAlias = tf.Tensor | tf.TensorSpec  # has a shape and a dtype


class Function(NamedTuple):
    """A function of the graph from named values to named values."""

    concrete: Any  # tf.ConcreteFunction
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    stateful: bool  # whether one of its operations is

    @property
    def steps(self) -> tuple[tuple[str, "Function"], ...]:
        """The function alone, on the stage's device."""
        return (("", self),)


class Functions(NamedTuple):
    """A sequence of functions on several devices, from named values to more of them.

    Attributes:
      steps: (device in the template, or "" for the stage's own; function), in order.
      inputs: names of the values that they read from outside.
    """

    steps: tuple[tuple[str, Function], ...]
    inputs: tuple[str, ...]


def function(concrete: Any, inputs: Iterable[str], outputs: Iterable[str]) -> Function:
    """A traced function.

    Args:
      concrete: its `tf.ConcreteFunction`, with the attribute `_noinline`.
      inputs: names of its arguments, in order.
      outputs: names of what it returns.
    """
    stateful = any(op.op_def.is_stateful for op in concrete.graph.get_operations())
    return Function(concrete, tuple(inputs), tuple(outputs), stateful)


def trace(
    name: str,
    body: Callable[[dict[str, tf.Tensor]], Mapping[str, tf.Tensor]],
    specs: Mapping[str, Spec],
    outputs: Iterable[str],
) -> Function:
    """Traces a function that is not inlined in the graph.

    Args:
      name: of the function.
      body: inputs by name -> outputs by name, and perhaps others.
      specs: of the inputs, by name.
      outputs: names of the outputs.
    """
    inputs, outputs = tuple(specs), tuple(outputs)

    def call(*tensors: tf.Tensor) -> list[tf.Tensor]:
        values = body(dict(zip(inputs, tensors)))
        return [values[value] for value in outputs]

    call.__name__ = name
    tf_function = tf.function(
        call, autograph=False, experimental_attributes={"_noinline": True}
    )
    with tf.Graph().as_default():
        concrete = tf_function.get_concrete_function(
            *[tf.TensorSpec(t.shape, t.dtype) for t in specs.values()]
        )
    return function(concrete, inputs, outputs)


class CallOutput(NamedTuple):
    """An output of a call that is not yet in the graph."""

    call: str  # name of the operation
    index: int  # type: ignore[assignment]
    dtype: tf.DType

    def tensor(self, shape: Any = None) -> tf.Tensor:
        """The tensor, when the call is in the current graph.

        Args:
          shape: if known.  TensorFlow infers it from the function's body, except if one
            leg of a pass passes a shape to the next as a tensor.
        """
        graph = v1.get_default_graph()
        tensor = graph.get_tensor_by_name(f"{self.call}:{self.index}")
        tensor.set_shape(shape)
        return tensor


Value: TypeAlias = tf.Tensor | CallOutput


class Calls:
    """Calls that are not yet in a graph."""

    def __init__(self) -> None:
        self._functions: dict[bytes, Function] = {}
        self._graph_def = v1.GraphDef()
        # Name in the GraphDef -> tensor that is in the graph already; and the reverse.
        self._given: dict[str, tf.Tensor] = {}
        self._names: dict[Any, str] = {}

    def add(
        self,
        called: Function,
        values: Mapping[str, Value],
        *,
        name: str,
        device: str,
        after: str | None = None,
    ) -> dict[str, CallOutput]:
        """Adds a call.

        Args:
          called: the function.
          values: by name; they include its inputs.
          name: scope of the call, absolute and unique.
          device: on which it runs.
          after: name of the call after which it begins.

        Returns:
          its outputs, by name.
        """
        self._functions[called.concrete.name] = called
        op = "StatefulPartitionedCall" if called.stateful else "PartitionedCall"
        node = self._graph_def.node.add(name=f"{name}/{op}", op=op, device=device)
        taken = [values[name] for name in called.inputs]
        dtypes = [tensor.dtype for tensor in called.concrete.graph.outputs]
        node.input.extend(map(self._name, taken))
        if after is not None:
            node.input.append(f"^{after}")
        node.attr["Tin"].list.type.extend(t.dtype.as_datatype_enum for t in taken)
        node.attr["Tout"].list.type.extend(t.as_datatype_enum for t in dtypes)
        node.attr["f"].func.name = called.concrete.name.decode()
        node.attr["config_proto"].s = _CONFIG
        outputs = (CallOutput(node.name, i, dtype) for i, dtype in enumerate(dtypes))
        return dict(zip(called.outputs, outputs, strict=True))

    def _name(self, value: Value) -> str:
        if isinstance(value, CallOutput):
            return f"{value.call}:{value.index}" if value.index else value.call
        if value.ref() not in self._names:
            name = f"given/{len(self._given)}"
            self._names[value.ref()], self._given[f"{name}:0"] = name, value
        return self._names[value.ref()]

    def place(self) -> None:
        """Puts the calls into the current graph."""
        graph = v1.get_default_graph()
        for called in self._functions.values():
            called.concrete.add_to_graph(graph)
        self._graph_def.versions.CopyFrom(graph.graph_def_versions)
        # The names are absolute; the caller's scope is ignored.
        with v1.name_scope(None), tf.device(None), tf.control_dependencies(None):
            tf.import_graph_def(self._graph_def, self._given, name="")


def _config() -> bytes:
    """The configuration of the functions' bodies: that of the session.

    A plain call of a `tf.function` would use soft placement, and optimize each body
    again on every device.
    """
    config = v1.ConfigProto(allow_soft_placement=False)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = v1.OptimizerOptions.L0
    return config.SerializeToString()


_CONFIG = _config()
