"""The two uses of XLA.

`--xla` (auto-clustering) lets XLA compile clusters of operations in the whole graph;
the rest runs in TensorFlow.  It is an option of the session; on CPUs an environment
variable has to allow it.  `--xla_compile` compiles each tower as a whole, forward and
backward, and an operation that XLA lacks is an error.  A tower on several devices is
compiled in parts, on each device from one exchange to the next.  In both, input,
reduction and update are not compiled.

Compilation takes seconds in the first step (tens for a deep model), and results differ
in rounding.
"""

import os
from collections.abc import Callable, Mapping, MutableMapping, Sequence

import tensorflow as tf

from towers.compute.nodes import operation_of

v1 = tf.compat.v1

Call = Callable[[Mapping[str, tf.Tensor]], list[tf.Tensor]]

_VARIABLE = "TF_XLA_FLAGS"
_NEEDED = (
    "--tf_xla_cpu_global_jit",
    # TensorFlow places the constants that it folds in a cluster of operations on
    # /job:localhost/device:CPU:0.  If the cluster is on another device, compilation
    # fails with "Multiple CPU devices".
    "--tf_xla_disable_constant_folding",
)


def allow_on_cpu(environment: MutableMapping[str, str] = os.environ) -> None:
    """Lets `--xla` compile for CPUs; call it before this process's first session.

    Args:
      environment: TensorFlow reads it once, when it first runs a graph.
    """
    flags = environment.get(_VARIABLE, "").split()
    for needed in _NEEDED:
        if not any(flag.startswith(needed) for flag in flags):
            flags.append(needed)
    environment[_VARIABLE] = " ".join(flags)


def compiled(
    graph_def: v1.GraphDef, inputs: Mapping[str, tf.TensorSpec], outputs: Sequence[str]
) -> Call:
    """A graph as one function that XLA compiles on the device where it is called.

    Args:
      graph_def: nodes; it may have placeholders with the inputs' names.
      inputs: name -> shape and dtype.
      outputs: names of tensors.

    Returns:
      a function of the inputs by name, which adds one operation to the current graph
      and returns the outputs.
    """
    body = v1.GraphDef()
    body.CopyFrom(graph_def)
    # XLA cannot compile a placeholder, not even one that is not read.
    kept = [node for node in body.node if node.name not in inputs]
    for node in kept:
        # The gradient of a gather is colocated with an input, which is not there.
        node.attr.pop("_class", None)
    del body.node[:]
    body.node.extend(kept)
    read = {operation_of(name) for node in kept for name in node.input}

    @tf.function(jit_compile=True, autograph=False)
    def tower(*tensors: tf.Tensor) -> list[tf.Tensor]:
        feeds = {n: t for n, t in zip(inputs, tensors) if operation_of(n) in read}
        return tf.import_graph_def(body, feeds, return_elements=list(outputs), name="")

    with tf.device(None):  # each call has its own
        concrete = tower.get_concrete_function(*inputs.values())
    return lambda tensors: list(concrete(*(tensors[name] for name in inputs)))
