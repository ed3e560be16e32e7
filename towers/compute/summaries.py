"""Summaries that a model makes; tower 0 computes them.

A block, loss or metric may call `tf.compat.v1.summary`.  These operations run on CPUs
only.  So tower 0 computes their inputs, and the operations are made again with the
run's own summaries.  A step without summaries computes none of it.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

v1 = tf.compat.v1


class Made(NamedTuple):
    """A summary operation of a model.

    Attributes:
      node: the operation, without its inputs.
      tag: under which it is shown, the name of its scope.
      inputs: without the tag: names of tensors, or in a `Tower` the tensors.
    """

    node: v1.NodeDef
    tag: str
    inputs: tuple[str | tf.Tensor, ...]


def collect(graph: tf.Graph) -> tuple[Made, ...]:
    """The summaries in a graph's collection that show at least one tensor by a tag.

    Args:
      graph: in which a model was traced; each tensor shown gets a name of its own.
    """
    summaries = []
    for tensor in graph.get_collection(v1.GraphKeys.SUMMARIES):
        op = tensor.op
        tagged = op.inputs and op.op_def.input_arg[0].name in ("tag", "tags")
        tag = tf.get_static_value(op.inputs[0]) if tagged else None
        if tensor.graph is not graph or tag is None:
            continue
        with graph.as_default(), v1.name_scope(None):
            shown = [tf.identity(shown, "summary").name for shown in op.inputs[1:]]
        node = v1.NodeDef(op=op.type)
        for name, value in op.node_def.attr.items():
            if name != "_class":
                node.attr[name].CopyFrom(value)
        summaries.append(Made(node, tag.item().decode(), tuple(shown)))
    return tuple(summaries)


def names(summaries: Sequence[Made]) -> list[str]:
    """Names of the tensors that they show."""
    return [name for summary in summaries for name in summary.inputs]


def given(summaries: Sequence[Made], of: Mapping[str, tf.Tensor]) -> tuple[Made, ...]:
    """The summaries whose tensors a tower has, with these tensors."""
    return tuple(
        summary._replace(inputs=tuple(of[name] for name in summary.inputs))
        for summary in summaries
        if all(name in of for name in summary.inputs)
    )


def again(summary: Made, tag: str) -> tf.Tensor:
    """Makes the operation again in the current graph, on its device: string scalar.

    Args:
      summary: with tensors.
      tag: under which to show it.
    """
    nodes, fed = v1.GraphDef(), {}
    node = nodes.node.add()
    node.CopyFrom(summary.node)
    node.name = "summary"
    for index, tensor in enumerate([tf.constant(tag), *summary.inputs]):
        placeholder = nodes.node.add(name=f"input_{index}", op="Placeholder")
        placeholder.attr["dtype"].type = tensor.dtype.as_datatype_enum
        node.input.append(placeholder.name)
        fed[f"{placeholder.name}:0"] = tensor
    [text] = tf.import_graph_def(nodes, fed, return_elements=["summary:0"], name="own")
    return text
