"""Tensors with a gradient of one's own.

`tf.custom_gradient` registers a function for each use, which holds its graph, and
TensorFlow keeps it for ever.  An elastic run builds a graph after each change of its
members.  Here one gradient is registered; what it calls is in the graph's collections.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

v1 = tf.compat.v1

_GRADIENT = "TowersOwnGradient"


def with_gradient(
    outputs: Sequence[tf.Tensor],
    inputs: Sequence[tf.Tensor],
    backward: Callable[..., Sequence[tf.Tensor]],
) -> list[tf.Tensor]:
    """Copies of the outputs that are differentiated by a function.

    Args:
      outputs: computed from the inputs.
      inputs: get a gradient.
      backward: the gradients of the outputs -> those of the inputs.
    """
    graph = v1.get_default_graph()
    with graph.gradient_override_map({"IdentityN": _GRADIENT}):
        copies = tf.identity_n([*outputs, *inputs])[: len(outputs)]

    def gradients(*upstream: tf.Tensor) -> list[tf.Tensor | None]:
        return [None] * len(outputs) + [*backward(*upstream[: len(outputs)])]

    graph.add_to_collection(_collection(copies[0].op), gradients)
    return copies


@tf.RegisterGradient(_GRADIENT)
def _gradients(op: tf.Operation, *upstream: tf.Tensor) -> list[tf.Tensor | None]:
    [gradients] = op.graph.get_collection(_collection(op))
    return gradients(*upstream)


def _collection(op: tf.Operation) -> str:
    return f"{_GRADIENT}/{op.name}"
