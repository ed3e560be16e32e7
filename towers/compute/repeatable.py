"""What a model must not do, because towers are copies of what it was traced to."""

import tensorflow as tf

v1 = tf.compat.v1

_STATEFUL_DRAWS = ("Random", "TruncatedNormal", "Multinomial")


def check(graph: tf.Graph) -> None:
    """Refuses what would make the result depend on the number of towers.

    Args:
      graph: that a model was traced in.

    Raises:
      ValueError: the sentence names the variable or the operation.
    """
    if graph.get_collection(v1.GraphKeys.GLOBAL_VARIABLES):
        made = graph.get_collection(v1.GraphKeys.GLOBAL_VARIABLES)[0]
        raise ValueError(
            f"variable {made.name!r} was made without get_variable; towers share "
            "variables by name, so make it with tf.compat.v1.get_variable"
        )
    for op in graph.get_operations():
        if op.op_def.is_stateful and any(t in op.type for t in _STATEFUL_DRAWS):
            raise ValueError(
                f"operation {op.name!r} draws with the stateful {op.type}: its numbers "
                "would change with the number of towers; use nn.dropout, or "
                "tf.random.stateless_* with a seed made from the example"
            )
        # What it calls is gone with this graph; `numpy_function` calls the function
        # itself, which lives as long as its module.
        if op.type == "EagerPyFunc":
            raise ValueError(
                f"operation {op.name!r} is a tf.py_function, which a copy of the graph "
                "cannot call; write it with TensorFlow's operations"
            )
