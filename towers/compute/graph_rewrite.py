"""Removes redundant nodes from a template without changing its results.

TensorFlow's gradient functions make a constant for every use, and compute shapes at run
time that were known when the graph was built.  In a template these nodes are costly:
each is built, partitioned and run once per tower.
"""

from collections.abc import Collection, Iterable

import tensorflow as tf

from towers.compute.nodes import operation_of

v1 = tf.compat.v1


def simplify(
    graph: tf.Graph,
    kept: Collection[str],
    outputs: Iterable[str],
    whole: v1.GraphDef | None = None,
) -> v1.GraphDef:
    """Some nodes of a graph, with static shapes folded and equal constants merged.

    Colocation is removed, also inside functions: it would name nodes that are not
    copied, and in a function that several towers call, nodes of all of them.  The
    nodes' devices are set anyway.

    Args:
      graph: to copy from; it is not changed.
      kept: names of the operations to copy, all that the outputs need.
      outputs: names of tensors whose operations are kept in any case.
      whole: the GraphDef of the graph, if it was made already.

    Returns:
      nodes that compute the same outputs, bit for bit.
    """
    whole = whole or graph.as_graph_def()
    nodes = [node for node in whole.node if node.name in kept]
    fixed = set(map(operation_of, outputs)) | _named(nodes)
    nodes, shapes = _fold_shapes(graph, nodes, fixed)
    nodes, constants = _merge_constants(nodes, fixed)
    graph_def = v1.GraphDef(versions=whole.versions, library=whole.library)
    graph_def.node.extend(nodes)
    inside = [
        node for function in graph_def.library.function for node in function.node_def
    ]
    for node in (*graph_def.node, *inside):
        node.attr.pop("_class", None)
    for node in graph_def.node:
        inputs = [shapes.get(name, name) for name in node.input]
        node.input[:] = [constants.get(name, name) for name in inputs]
    return graph_def


def _named(nodes: Iterable[v1.NodeDef]) -> set[str]:
    """Names of nodes that others have control dependencies on or are colocated with."""
    names = {name[1:] for node in nodes for name in node.input if name[0] == "^"}
    for node in nodes:
        if "_class" in node.attr:
            names |= {
                name.decode().removeprefix("loc:@")
                for name in node.attr["_class"].list.s
            }
    return names


def _fold_shapes(
    graph: tf.Graph, nodes: Iterable[v1.NodeDef], fixed: set[str]
) -> tuple[list[v1.NodeDef], dict[str, str]]:
    """Turns the shapes of tensors of static shape into constants.

    Only int32 shapes: GPUs keep int32 constants in the host's memory, where shapes are
    read, and other constants in their own.

    Returns:
      the nodes, and input before -> after.
    """
    left, moved = [], {}
    for node in nodes:
        if node.op not in ("Shape", "ShapeN") or node.name in fixed:
            left.append(node)
            continue
        op = graph.get_operation_by_name(node.name)
        is_static = all(tensor.shape.is_fully_defined() for tensor in op.inputs)
        if not is_static or op.control_inputs or op.outputs[0].dtype != tf.int32:
            left.append(node)
            continue
        for index, tensor in enumerate(op.inputs):
            constant = v1.NodeDef(
                name=f"{node.name}/{index}", op="Const", device=node.device
            )
            value = tf.make_tensor_proto(tensor.shape.as_list(), tf.int32)
            constant.attr["value"].tensor.CopyFrom(value)
            constant.attr["dtype"].type = tf.int32.as_datatype_enum
            left.append(constant)
            moved[f"{node.name}:{index}" if index else node.name] = constant.name
    return left, moved


def _merge_constants(
    nodes: Iterable[v1.NodeDef], fixed: set[str]
) -> tuple[list[v1.NodeDef], dict[str, str]]:
    """Drops all but the first of equal constants.

    Returns:
      the nodes left, and input before -> after.
    """
    left, merged = [], {}
    first: dict[tuple[bytes, str], str] = {}
    for node in nodes:
        if node.op == "Const" and not node.input and node.name not in fixed:
            value = node.attr["value"].tensor.SerializeToString(deterministic=True)
            merged[node.name] = first.setdefault((value, node.device), node.name)
        if merged.get(node.name, node.name) == node.name:
            left.append(node)
    return left, merged


def place_sums(
    graph_def: v1.GraphDef, gradients: Iterable[tuple[tf.Tensor, Iterable[str]]]
) -> v1.GraphDef:
    """Puts the sum of a part's gradients from all its uses on the part's device.

    Args:
      graph_def: changed in place, and returned.
      gradients: (part of a variable, names of the tensors of its gradient) pairs.
    """
    where = {
        operation_of(name): part.device for part, names in gradients for name in names
    }
    for node in graph_def.node:
        if node.op in ("AddN", "ConcatV2") and not node.device:
            node.device = where.get(node.name, "")
    return graph_def
