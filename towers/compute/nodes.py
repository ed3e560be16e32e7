"""Names of operations and tensors in a GraphDef.

A node's input is `operation`, which means its first output, `operation:1`, or
`^operation` where it only waits for that; a tensor is always `operation:0` or the like.
"""

from collections.abc import Iterable, Mapping

import tensorflow as tf

v1 = tf.compat.v1


def operation_of(name: str) -> str:
    """The operation of an input or a tensor."""
    return name.removeprefix("^").split(":")[0]


def tensor_of(name: str) -> str:
    """The name of the tensor that an input means; of `^operation`, its first output."""
    name = name.removeprefix("^")
    return name if ":" in name else f"{name}:0"


def needed_by(nodes: Mapping[str, v1.NodeDef], names: Iterable[str]) -> set[str]:
    """The operations that inputs or tensors need, and their own.

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
