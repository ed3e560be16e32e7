"""Summaries that a model makes: computed by tower 0, written beside those of the run.

A block, loss or metric may call `tf.compat.v1.summary`.  These operations are for CPUs
only; so a tower computes what goes into them, and they are made again beside the run's
own.  Nothing of it is computed in a step without summaries.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

v1 = tf.compat.v1


class Made(NamedTuple):
    """A summary operation of a model.

    Attributes:
      node: the operation, without its inputs.
      tag: that it is shown by, the name of its scope.
      inputs: behind the tag, names of tensors; of a `Tower`, the tensors.
    """

    node: v1.NodeDef
    tag: str
    inputs: tuple[str | tf.Tensor, ...]


def collect(graph: tf.Graph) -> tuple[Made, ...]:
    """The summaries in a graph's collection that show one tensor or more by a tag.

    Args:
      graph: that a model was traced in; what they show gets a name of its own.
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
    """The tensors that they show."""
    return [name for summary in summaries for name in summary.inputs]


def given(summaries: Sequence[Made], of: Mapping[str, tf.Tensor]) -> tuple[Made, ...]:
    """Those whose tensors a tower has, with them."""
    return tuple(
        summary._replace(inputs=tuple(of[name] for name in summary.inputs))
        for summary in summaries
        if all(name in of for name in summary.inputs)
    )


def again(summary: Made, tag: str) -> tf.Tensor:
    """The operation in the current graph, on its device: string scalar.

    Args:
      summary: with tensors.
      tag: to show it by.
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
