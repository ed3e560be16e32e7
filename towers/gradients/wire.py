"""Transfers between the tasks of a cluster: once per task, small tensors in bundles.

The network is the slowest link, so a value is sent to a task once and all its towers
read it there; the other way, `reduction.reduce_to_first` adds the gradients
of a task's towers before they leave it.  A step thus moves the parameters once to each
worker and once back, however many towers there are.

Each transfer costs both ends some 0.1 ms, whatever its size, and a model has hundreds
of small variables.  So small tensors from one device to another are concatenated before
they are sent, and split where they arrive.
"""

import collections
import re
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from towers.layout import parts
from towers.layout.placement import task_of

v1 = tf.compat.v1

# Bytes.  Larger tensors than the first are sent alone, since concatenation copies them;
# a bundle is bounded so that the first can be sent while others are still computed.
_SMALL, _BUNDLE = 2**18, 2**20


class Arrivals:
    """Values fetched from other tasks, once per task."""

    def __init__(self):
        self._made: dict[tuple[str, str], tf.Tensor] = {}

    def __call__(self, value: Any, host: str | None) -> tf.Tensor:
        """The value on a task.

        Args:
          value: a tensor, somewhere, or `parts.Parts` of tensors, which are joined on
            the task.
          host: CPU device of the task; a tensor itself is enough if it is on this
            task already, on whatever device.  None for the tensor as it is.
        """
        if not isinstance(value, parts.Parts):
            return self._fetch(value, host)
        host = host or value[0].device
        key = (f"{value[0].name} and the other parts", host)
        if key not in self._made:
            found = parts.apply(lambda tensor: self._fetch(tensor, host), value)
            with tf.device(host):
                self._made[key] = parts.join(found)
        return self._made[key]

    def _fetch(self, tensor: tf.Tensor, host: str | None) -> tf.Tensor:
        if host is None or task_of(tensor.device) == task_of(host):
            return tensor
        key = (tensor.name, host)
        if key not in self._made:
            with tf.device(host):
                self._made[key] = tf.identity(tensor)
        return self._made[key]

    def all(self, values: Mapping[str, Any], host: str | None) -> dict[str, tf.Tensor]:
        """The values on a task, small ones in few transfers.

        Args:
          values: by any name.
          host: as above.
        """
        if host is None:
            return {name: self(value, None) for name, value in values.items()}
        tensors = [x for value in values.values() for x in parts.each(value)]
        new = [x for x in tensors if (x.name, host) not in self._made]
        for tensor, here in zip(new, bring(new, [host] * len(new))):
            if here is not tensor:
                self._made[tensor.name, host] = here
        return {name: self(value, host) for name, value in values.items()}


def bring(tensors: Sequence[tf.Tensor], devices: Sequence[str]) -> list[tf.Tensor]:
    """Sends tensors to other tasks, small ones in bundles.

    Args:
      tensors: of static shape, on any devices.
      devices: where each is wanted.

    Returns:
      the tensors to read there: what arrived in a bundle, else the tensor itself.
    """
    found = list(tensors)
    for bundle in _bundles(tensors, devices):
        members = [tensors[index] for index in bundle]
        with tf.device(members[0].device):
            joined = tf.concat([tf.reshape(x, [-1]) for x in members], 0)
        with tf.device(devices[bundle[0]]):
            sizes = [x.shape.num_elements() for x in members]
            for index, piece in zip(bundle, tf.split(joined, sizes)):
                found[index] = tf.reshape(piece, tensors[index].shape)
    return found


def _bundles(tensors, devices) -> list[list[int]]:
    """Indices of the small tensors that share source, destination and dtype."""
    open_: dict[tuple[str, str, tf.DType], list[int]] = {}
    filled: dict[tuple[str, str, tf.DType], int] = collections.Counter()
    done: list[list[int]] = []
    for index, (tensor, device) in enumerate(zip(tensors, devices)):
        size = (tensor.shape.num_elements() or 0) * tensor.dtype.size
        if task_of(tensor.device) == task_of(device) or not 0 < size <= _SMALL:
            continue
        route = (tensor.device, device, tensor.dtype)
        if filled[route] + size > _BUNDLE:
            done.append(open_.pop(route))
            filled[route] = 0
        open_.setdefault(route, []).append(index)
        filled[route] += size
    return [bundle for bundle in [*done, *open_.values()] if len(bundle) > 1]


def transfers(metadata: v1.RunMetadata) -> dict[tuple[str, str], int]:
    """Bytes sent between tasks in a traced session call.

    TensorFlow may miss a transfer that ends as the call does.

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
