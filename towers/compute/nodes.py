"""Names of operations and tensors in a GraphDef.

A node's input is written `operation` (its first output), `operation:1`, or `^operation`
(a control input).  A tensor is always written `operation:0` or similar.
"""

from collections.abc import Iterable, Mapping

import tensorflow as tf

v1 = tf.compat.v1


def operation_of(name: str) -> str:
    """The operation of an input or a tensor."""
    return name.removeprefix("^").split(":")[0]


def tensor_of(name: str) -> str:
    """The tensor name of an input; for `^operation` that of the first output."""
    name = name.removeprefix("^")
    return name if ":" in name else f"{name}:0"


def needed_by(nodes: Mapping[str, v1.NodeDef], names: Iterable[str]) -> set[str]:
    """The operations of inputs or tensors, and all operations that these need.

    Args:
      nodes: of the graph, by name.
      names: of inputs or tensors.
    """
    needed: set[str] = set()
    left = list(map(operation_of, names))
    while left:
        name = left.pop()
        if name not in needed:
            needed.add(name)
            left += map(operation_of, nodes[name].input)
    return needed


def ancestors(ops: Iterable[tf.Operation]) -> set[str]:
    """Names of the operations, and of all that they depend on."""
    names: set[str] = set()
    left = list(ops)
    while left:
        op = left.pop()
        if op.name not in names:
            names.add(op.name)
            left += [tensor.op for tensor in op.inputs] + list(op.control_inputs)
    return names
