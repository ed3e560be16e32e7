"""What crosses between the tasks of a cluster, and how often.

A network is slower than what it connects, so a value goes to a task once and all its
towers take it from there; the other way, `reduction.host_by_host` adds the gradients of
a task's towers before they leave it.  A step thus moves the parameters once to each
worker and once back, however many towers there are.
"""

import collections
import re

import tensorflow as tf

from towers.placement import task_of

v1 = tf.compat.v1


class Arrivals:
    """Values fetched from other tasks, once per task."""

    def __init__(self):
        self._made: dict[tuple[str, str], tf.Tensor] = {}

    def __call__(self, tensor: tf.Tensor, host: str) -> tf.Tensor:
        """The value on a task.

        Args:
          tensor: the value, somewhere.
          host: CPU device of the task; the tensor itself is enough if it is on this
            task already, on whatever device.
        """
        if task_of(tensor.device) == task_of(host):
            return tensor
        key = (tensor.name, host)
        if key not in self._made:
            with tf.device(host):
                self._made[key] = tf.identity(tensor)
        return self._made[key]


def transfers(metadata: v1.RunMetadata) -> dict[tuple[str, str], int]:
    """Bytes that crossed between tasks in a traced session call.

    TensorFlow may miss a transfer that ends when the call does.

    Args:
      metadata: of a call with `RunOptions.FULL_TRACE`.

    Returns:
      (from, to) -> bytes of tensors, the tasks as `placement.task` has them.
    """
    found: dict[tuple[str, str], int] = collections.Counter()
    pattern = (
        r" from (/job:\w+)/replica:0(/task:\d+)\S* to (/job:\w+)/replica:0(/task:\d+)"
    )
    for device in metadata.step_stats.dev_stats:
        for node in device.node_stats:
            # TensorFlow notes a transfer under the device that receives it.
            if node.node_name != "RecvTensor":
                continue
            ends = re.search(pattern, node.timeline_label)
            if ends:
                found[ends[1] + ends[2], ends[3] + ends[4]] += sum(
                    output.tensor_description.allocation_description.requested_bytes
                    for output in node.output
                )
    return dict(found)
