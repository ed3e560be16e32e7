"""Many steps in one session call: the train step as the body of a loop in the graph.

The loop body is a copy of the step's nodes that uses the same variables and iterators.
The same operations run in the same order, so results are equal bit for bit.  The loop
saves the client's time per step, which matters for small models.
"""

import time
from collections.abc import Iterator
from typing import NamedTuple

import tensorflow as tf

from towers.layout import graph_names
from towers.variable_update.asynchronous import Runner, StepsTaken

v1 = tf.compat.v1


class DeviceLoop(NamedTuple):
    """A loop over steps inside the graph."""

    count: tf.Tensor  # int32 scalar placeholder, how many steps
    step: tf.Tensor  # int64 scalar, the global step after them
    losses: tf.Tensor  # float32 [count], the loss of each
    free: bool = False  # step lines come between two calls

    def runner(self, session: v1.Session) -> Runner:
        """A function that runs steps in a session."""
        inside = session.make_callable([self.step, self.losses], [self.count])

        def run(step: int, count: int) -> Iterator[StepsTaken]:
            del step
            begun = time.perf_counter()
            reached, losses = inside(count)
            yield int(reached), losses, time.perf_counter() - begun

        return run

    def report(self) -> list[str]:
        """No lines: the loop has nothing to report."""
        return []


def build(train_op: tf.Operation, step: tf.Tensor, loss: tf.Tensor) -> DeviceLoop:
    """Adds the loop to the current graph.

    Args:
      train_op: one step.
      step: int64 scalar, the global step after it.
      loss: float32 scalar, the loss of the step.
    """
    nodes, handles = _cut_out(v1.get_default_graph(), [train_op, step.op, loss.op])
    with v1.name_scope(graph_names.LOOP):
        count = v1.placeholder(tf.int32, [], "steps")

    def body(
        index: tf.Tensor, _: tf.Tensor, losses: tf.TensorArray
    ) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray]:
        inputs = {}
        for handle in handles:
            # The body can use an outer tensor only after reading it here.
            with tf.device(handle.device):
                inputs[handle.name] = tf.identity(handle)
        with tf.device(None):
            done, step_now, loss_now = tf.import_graph_def(
                nodes,
                inputs,
                return_elements=[train_op.name, step.name, loss.name],
                name="step",
            )
        with tf.control_dependencies([done]):
            return index + 1, tf.identity(step_now), losses.write(index, loss_now)

    with tf.device(step.device), v1.name_scope(graph_names.LOOP):
        losses = tf.TensorArray(tf.float32, size=count, element_shape=[])
        _, last, losses = tf.while_loop(
            lambda index, *_: index < count,
            body,
            [tf.constant(0), tf.constant(0, tf.int64), losses],
            parallel_iterations=1,
        )
        return DeviceLoop(count, last, losses.stack())


def _cut_out(
    graph: tf.Graph, ends: list[tf.Operation]
) -> tuple[v1.GraphDef, list[tf.Tensor]]:
    """The nodes that `ends` need, up to the handles of variables and iterators."""
    names: set[str] = set()
    handles: dict[str, tf.Tensor] = {}
    waiting = list(ends)
    while waiting:
        op = waiting.pop()
        if op.name in names:
            continue
        names.add(op.name)
        waiting += op.control_inputs
        for tensor in op.inputs:
            if tensor.dtype == tf.resource:
                handles[tensor.name] = tensor
            else:
                waiting.append(tensor.op)
    graph_def = graph.as_graph_def()
    kept = [node for node in graph_def.node if node.name in names]
    for node in kept:
        # Colocation names nodes outside the body; their devices are set anyway.
        node.attr.pop("_class", None)
    del graph_def.node[:]
    graph_def.node.extend(kept)
    return graph_def, list(handles.values())
