"""Splits a graph whose operations are on several devices into subgraphs of one device.

XLA compiles a subgraph of one device only.  So each subgraph is a function from tensors
to tensors that can be called, or compiled, by itself.  The subgraphs are in an order in
which each reads only outputs of earlier ones.

The level of an operation is the number of device changes on the longest path to it.  A
subgraph holds the operations of one level and device.  An operation whose result is an
output of the graph has its earliest level.  Any other operation has the latest level
that its readers allow, so that few tensors leave a subgraph.  Each subgraph has its own
copy of the constants that it reads.
"""

import collections
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from towers.compute.nodes import operation_of, tensor_of

v1 = tf.compat.v1


class DeviceSubgraph(NamedTuple):
    """Operations of one device.

    Attributes:
      device: of its nodes, from which it is removed; "" if they had none.
      graph_def: the nodes.
      inputs: names of tensors, of placeholders or of earlier parts.
      outputs: names of tensors that later parts or the caller read.
    """

    device: str
    graph_def: v1.GraphDef
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __call__(self, values: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Copies the nodes into the current graph.

        Args:
          values: of the inputs, by name.

        Returns:
          the outputs, by name.
        """
        read = {tensor_of(name) for node in self.graph_def.node for name in node.input}
        tensors = tf.import_graph_def(
            self.graph_def,
            {name: values[name] for name in self.inputs if name in read},
            return_elements=list(self.outputs),
            name="",
        )
        return dict(zip(self.outputs, tensors))


def split_by_device(
    graph_def: v1.GraphDef, outputs: Sequence[str]
) -> list[DeviceSubgraph]:
    """The subgraphs of a graph, in an order in which they can be called.

    Args:
      graph_def: nodes; its placeholders are inputs of the subgraphs.
      outputs: names of the tensors that the caller reads; none is a placeholder's.
    """
    nodes = {node.name: node for node in graph_def.node}
    levels = _as_late(nodes, _levels(nodes), set(map(operation_of, outputs)))
    levels |= {n: 0 for n in map(operation_of, outputs) if _is_constant(nodes[n])}
    parts: dict[tuple[int, str], list[v1.NodeDef]] = collections.defaultdict(list)
    for name, level in levels.items():
        parts[level, _place(nodes[name])].append(nodes[name])
    keys = sorted(parts)
    reads = [_read_by(parts[key], nodes) for key in keys]
    wanted = set(outputs).union(*reads)
    pieces = []
    for key, read in zip(keys, reads):
        names = {node.name for node in parts[key]}
        part_outputs = sorted(name for name in wanted if operation_of(name) in names)
        pieces.append(
            DeviceSubgraph(
                device=key[1],
                graph_def=_alone(graph_def, parts[key], nodes),
                inputs=tuple(sorted(read)),
                outputs=tuple(part_outputs),
            )
        )
    return pieces


def _levels(nodes: Mapping[str, v1.NodeDef]) -> dict[str, int]:
    """Node -> the number of device changes on the longest path to it.

    Each node comes after those that it reads.  Constants and placeholders have none.
    """
    levels: dict[str, int] = {}
    left = list(nodes)
    while left:
        name = left[-1]
        if name in levels or _is_given(nodes[name]) or _is_constant(nodes[name]):
            left.pop()
            continue
        before = _before(nodes, name)
        if missing := [source for source in before if source not in levels]:
            left += missing
            continue
        steps = [levels[source] + _changes(nodes, source, name) for source in before]
        levels[name] = max(steps, default=0)
        left.pop()
    return levels


def _as_late(
    nodes: Mapping[str, v1.NodeDef], earliest: dict[str, int], wanted: set[str]
) -> dict[str, int]:
    """The latest levels that the readers allow; nodes that are not read have none."""
    levels = {name: earliest[name] for name in earliest if name in wanted}
    for name in reversed(earliest):
        if name in levels:
            for source in _before(nodes, name):
                if source not in wanted:
                    late = levels[name] - _changes(nodes, source, name)
                    levels[source] = min(late, levels.get(source, late))
    return levels


def _before(nodes: Mapping[str, v1.NodeDef], name: str) -> list[str]:
    """The inputs of a node, without constants and placeholders."""
    inputs = map(operation_of, nodes[name].input)
    return [n for n in inputs if not (_is_given(nodes[n]) or _is_constant(nodes[n]))]


def _changes(nodes: Mapping[str, v1.NodeDef], source: str, reader: str) -> bool:
    return _place(nodes[source]) != _place(nodes[reader])


def _read_by(part: Iterable[v1.NodeDef], nodes: Mapping[str, v1.NodeDef]) -> set[str]:
    """Tensors of other parts that a part reads.

    They include control inputs, so that a part waits for these, too.
    """
    part_names = {node.name for node in part}
    return {
        tensor_of(name)
        for node in part
        for name in node.input
        if operation_of(name) not in part_names
        and not _is_constant(nodes[operation_of(name)])
    }


def _alone(
    graph_def: v1.GraphDef,
    part: Sequence[v1.NodeDef],
    nodes: Mapping[str, v1.NodeDef],
) -> v1.GraphDef:
    """The nodes of a part and their constants, without the task in their devices."""
    part_def = v1.GraphDef(versions=graph_def.versions, library=graph_def.library)
    part_nodes = {node.name: node for node in part}
    for node in part:
        for name in map(operation_of, node.input):
            if _is_constant(nodes[name]):
                part_nodes[name] = nodes[name]
    for node in part_nodes.values():
        copy = part_def.node.add()
        copy.CopyFrom(node)
        spec = tf.DeviceSpec.from_string(node.device)
        copy.device = spec.replace(job=None, task=None).to_string()
        copy.attr.pop("_class", None)
        del copy.input[:]
        copy.input.extend(
            name for name in node.input if name[0] != "^" or name[1:] in part_nodes
        )
    return part_def


def _place(node: v1.NodeDef) -> str:
    """The task of a node's device."""
    spec = tf.DeviceSpec.from_string(node.device)
    return tf.DeviceSpec(job=spec.job, task=spec.task).to_string()


def _is_given(node: v1.NodeDef) -> bool:
    return node.op == "Placeholder"


def _is_constant(node: v1.NodeDef) -> bool:
    return node.op == "Const"
