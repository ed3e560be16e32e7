"""Transfers between tasks and devices: once per task, small tensors in bundles.

The network is the slowest link, so a value is sent to a task once and all its towers
read it there; the other way, `mean.reduce_to_first` adds the gradients
of a task's towers before they leave it.  A step thus moves the parameters once to each
worker and once back, however many towers there are.

Each transfer costs both ends some 0.1 ms, whatever its size, and a model has hundreds
of small variables.  So small tensors from one device to another are concatenated before
they are sent, and split where they arrive.  Between the devices of one task a transfer
costs some microseconds, of TensorFlow's executors or of a GPU's bus; there only very
small tensors go together, but with many towers these transfers are most of a graph.
"""

import collections
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from towers.gradients.packing import cut, join
from towers.layout import parts
from towers.layout.placement import Placement, task_of

v1 = tf.compat.v1

# Bytes.  Larger tensors than the first are sent alone, since concatenation copies them;
# a bundle is bounded so that the first can be sent while others are still computed.
_SMALL, _BUNDLE = 2**18, 2**20
_SMALL_BESIDE = 2**14  # between devices of one task


def arrival_hosts(placement: Placement) -> list[str | None]:
    """Where each tower's variables arrive; None where its stages are on several tasks,
    each of which fetches what it reads."""
    return [
        host if len(set(map(task_of, devices))) == 1 else None
        for devices, host in zip(placement.stages, placement.hosts)
    ]


class Arrivals:
    """Values that towers read: once per task, and few transfers to each device."""

    def __init__(self):
        self._made: dict[tuple[str, str], tf.Tensor] = {}
        self._joined: dict[tuple[str, ...], tf.Tensor] = {}

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
            pieces = parts.apply(lambda tensor: self._fetch(tensor, host), value)
            with tf.device(host):
                self._made[key] = parts.join(pieces)
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
        new = [
            x
            for x in tensors
            if (x.name, host) not in self._made and task_of(x.device) != task_of(host)
        ]
        for tensor, here in zip(new, bring(new, [host] * len(new))):
            if here is not tensor:
                self._made[tensor.name, host] = here
        return {name: self(value, host) for name, value in values.items()}

    def beside(
        self, values: Mapping[str, tf.Tensor], devices: Sequence[str]
    ) -> dict[str, tf.Tensor]:
        """Values for a tower, small ones of its task in few transfers to its device.

        Args:
          values: by any name.
          devices: the tower's; with several, each fetches what it reads.
        """
        if len(devices) > 1:
            return dict(values)
        there = bring(list(values.values()), [*devices] * len(values), self._joined)
        return dict(zip(values, there))


def bring(
    tensors: Sequence[tf.Tensor],
    devices: Sequence[str],
    joined: dict[tuple[str, ...], tf.Tensor] | None = None,
) -> list[tf.Tensor]:
    """Sends tensors to other devices, small ones in bundles.

    Args:
      tensors: on any devices.
      devices: where each is wanted.
      joined: names of tensors -> a bundle of them on their device, to be used again;
        added to.

    Returns:
      the tensors to read there: what arrived in a bundle, else the tensor itself.
    """
    arrived, joined = list(tensors), {} if joined is None else joined
    for bundle in _bundles(tensors, devices):
        members = [tensors[index] for index in bundle]
        key = tuple(member.name for member in members)
        if key not in joined:
            joined[key] = join(members, members[0].device)
        for index, piece in zip(bundle, cut(joined[key], members, devices[bundle[0]])):
            arrived[index] = piece
    return arrived


def summed(
    shares: Sequence[Sequence[tf.Tensor]],
    devices: Sequence[str],
    add: Callable[[Sequence[tf.Tensor], str], tf.Tensor],
) -> list[tf.Tensor]:
    """A sum of each on its device; small ones travel and are added as one vector.

    Args:
      shares: [tensors][towers], of static shape where they are small.
      devices: [tensors], where the sums are wanted.
      add: (shares, device) -> their sum, element by element, there.
    """
    sums: list[tf.Tensor | None] = [None] * len(shares)
    routes: dict[Any, list[int]] = collections.defaultdict(list)
    for index, (members, device) in enumerate(zip(shares, devices)):
        small = len(members) > 1 and any(_is_small(share, device) for share in members)
        way = tuple((share.device, share.dtype) for share in members)
        routes[device, way, None if small else index].append(index)
    for (device, way, _), indices in routes.items():
        if len(indices) == 1:
            sums[indices[0]] = add(shares[indices[0]], device)
            continue
        towers = list(zip(*(shares[index] for index in indices)))
        vectors = [join(members, source) for members, (source, _) in zip(towers, way)]
        pieces = cut(add(vectors, device), towers[0], device)
        for index, piece in zip(indices, pieces):
            sums[index] = piece
    return sums


def _is_small(tensor: tf.Tensor, device: str) -> bool:
    """Whether a tensor of another device is better sent with others."""
    beside = task_of(tensor.device) == task_of(device)
    size = (tensor.shape.num_elements() or 0) * tensor.dtype.size
    return tensor.device != device and 0 < size <= (_SMALL_BESIDE if beside else _SMALL)


def _bundles(tensors, devices) -> list[list[int]]:
    """Indices of the small tensors that share source, destination and dtype."""
    open_: dict[tuple[str, str, tf.DType], list[int]] = {}
    filled: dict[tuple[str, str, tf.DType], int] = collections.Counter()
    done: list[list[int]] = []
    for index, (tensor, device) in enumerate(zip(tensors, devices)):
        if not _is_small(tensor, device):
            continue
        size = tensor.shape.num_elements() * tensor.dtype.size
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
    sent_bytes: dict[tuple[str, str], int] = collections.Counter()
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
                sent_bytes[ends[1] + ends[2], ends[3] + ends[4]] += sum(
                    output.tensor_description.allocation_description.requested_bytes
                    for output in node.output
                )
    return dict(sent_bytes)
