"""Refuses models whose traced operations cannot be copied to several towers."""

from collections.abc import Iterable, Iterator

import tensorflow as tf

from towers.layout import placeholders

v1 = tf.compat.v1

# Words in the types of random operations, and prefixes of those without state.
_DRAWS = ("Random", "TruncatedNormal", "Multinomial")
_STATELESS = ("Stateless", "RandomGammaGrad", "RandomIndexShuffle")

_VARIABLES = ("VarHandleOp", "Variable", "VariableV2", "TemporaryVariable")


def check(graph: tf.Graph) -> None:
    """Refuses operations whose result would depend on the number of towers.

    Args:
      graph: in which a model was traced.

    Raises:
      ValueError: the sentence names the variable or the operation.
    """
    for name, kind in _operations(graph):
        if kind in _VARIABLES:
            raise ValueError(_of_variable(graph, f"{name}:0"))
        if "HashTable" in kind:
            raise ValueError(
                f"operation {name!r} is a lookup table, which nobody fills in the "
                "towers; look words up in the data set, or numbers by tf.gather from "
                "a constant"
            )
        if any(t in kind for t in _DRAWS) and not kind.startswith(_STATELESS):
            raise ValueError(
                f"operation {name!r} draws with the stateful {kind}: its numbers "
                "would change with the number of towers; use nn.uniform, nn.normal or "
                "nn.dropout"
            )
        # Its Python function is deleted with this graph; `numpy_function` calls a
        # function that lives as long as its module.
        if kind == "EagerPyFunc":
            raise ValueError(
                f"operation {name!r} is a tf.py_function, which a copy of the graph "
                "cannot call; write it with TensorFlow's operations"
            )


def _of_variable(graph: tf.Graph, name: str) -> str:
    """The error of a variable that was not made by `get_variable` in a block."""
    metrics = graph.get_collection(v1.GraphKeys.METRIC_VARIABLES)
    if any(variable.name == name for variable in metrics):
        return (
            f"variable {name!r} is one of tf.compat.v1.metrics, which add up over steps"
            ", and a model's metrics are averaged over the evaluation already; return "
            "one number for each example, as tf.cast(tf.equal(...), tf.float32)"
        )
    return (
        f"variable {name!r} was made without get_variable, or not in a block; "
        "towers share variables by name, so make it with tf.compat.v1.get_variable "
        "in a block"
    )


def check_devices(graph: tf.Graph) -> None:
    """Refuses devices inside a branch, a loop or a tf.function.

    Args:
      graph: in which a model was traced, without its gradients.

    Raises:
      ValueError: the sentence names the operation.
    """
    for function in graph.as_graph_def().library.function:
        for node in function.node_def:
            if node.device and not placeholders.is_one(node.device):
                raise ValueError(
                    f"operation {function.signature.name}/{node.name} is on "
                    f"{node.device} by tf.device, in all towers; leave it out"
                )


def check_losses(graph: tf.Graph, outputs: Iterable[tf.Tensor] = ()) -> None:
    """Refuses a loss in one of TensorFlow's collections, which are not read.

    Args:
      graph: in which blocks were traced, and the loss if it is in that graph.
      outputs: of the blocks.

    Raises:
      ValueError: the sentence names the tensor.
    """
    returned = {id(tensor) for tensor in outputs}
    for name in (v1.GraphKeys.LOSSES, v1.GraphKeys.REGULARIZATION_LOSSES):
        for loss in graph.get_collection(name):
            if not tf.is_tensor(loss) or loss.graph is not graph:
                continue
            if not loss.consumers() and id(loss) not in returned:
                raise ValueError(
                    f"{loss.name!r} is in the collection {name!r}, which the model's "
                    "loss does not read; return it from the block beside x, and add "
                    "it in the loss"
                )


def _operations(graph: tf.Graph) -> Iterator[tuple[str, str]]:
    """Name and type of every operation, including those in functions and loops."""
    calls = False
    for op in graph.get_operations():
        yield op.name, op.type
        calls = calls or any("func" in attr.type for attr in op.op_def.attr)
    if calls:
        for function in graph.as_graph_def().library.function:
            for node in function.node_def:
                yield f"{function.signature.name}/{node.name}", node.op
