"""Transfers between devices: their dtype, and how small tensors share one.

**Dtype.**  Gradients are sent in float32, or in 16 bits on request (`Wire`):

| where                     | dtype                                                   |
|---------------------------|---------------------------------------------------------|
| on a tower's own device   | float32 (widened from 16-bit compute, which is exact)   |
| between two devices       | that of `Wire`; rounded on the device that sends        |
| every addition            | float32, on the device where the numbers arrive         |
| the sum, on every device  | rounded once where it is complete, widened again        |

So a share is rounded once per hop of the reduction, and the sum once.  The broadcast
does not round again, and all copies are bit-equal.  A tensor that stays on its device
is not rounded.  bfloat16 has float32's range and 8 bits of precision; float16 has 11,
but numbers beyond 65504 become infinite, and those below 6e-8 become zero.

**Bundles.**  The network is the slowest link.  So a value is sent to a task once, and
all its towers read it there (`Arrivals`); `reduce_to_first` adds the gradients of
a task's towers before they leave it.  A step sends the parameters once to each worker
and as much back, however many towers there are.

Each transfer between tasks costs both of them about 0.1 ms, whatever its size, and a
model has hundreds of small variables.  So small tensors are concatenated before they
are sent, and split where they arrive (`bring`, `summed`).  Between devices of one task
a transfer costs microseconds, so only very small tensors are joined there.

"""

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from towers.compute import deterministic_sum
from towers.layout import parts
from towers.layout.placement import Placement, task_of

AllShares = Sequence[Sequence[tf.Tensor]]  # [variables][towers] gradients
AllDevices = Sequence[Sequence[str]]  # [variables][copies]
Sums = list[list[tf.Tensor]]  # [variables][copies]
ReduceAll = Callable[[AllShares, AllDevices], Sums]
Reduce = Callable[[Sequence[tf.Tensor], Sequence[str]], list[tf.Tensor]]

# Bytes.  Larger tensors are sent alone, since concatenation copies them.  A bundle has
# a largest size, so that it can be sent while other tensors are still computed.
_SMALL, _BUNDLE = 2**18, 2**20
_SMALL_BESIDE = 2**14  # between devices of one task


@dataclasses.dataclass(frozen=True)
class Wire:
    """Transfers of float32 tensors between devices.

    Attributes:
      dtype: in which they are sent: float32, bfloat16 or float16.
    """

    dtype: tf.DType = tf.float32

    @property
    def narrow(self) -> bool:
        """Whether tensors are rounded before they are sent."""
        return self.dtype != tf.float32

    def carry(self, tensor: tf.Tensor, source: str, target: str) -> tf.Tensor:
        """A tensor of the source device as the target device receives it, float32."""
        if not self.narrow or source == target:
            return tensor
        return _widen(self._narrow(tensor, source), target)

    def copy(self, tensor: tf.Tensor, source: str, target: str) -> tf.Tensor:
        """As `carry`, and the result is on the target device even without a cast."""
        if self.narrow and source != target:
            return self.carry(tensor, source, target)
        with tf.device(target):
            return tf.identity(tensor)

    def rounded(self, total: tf.Tensor, device: str) -> tf.Tensor:
        """A complete sum, rounded to what other devices will receive."""
        if not self.narrow:
            return total
        return _widen(self._narrow(total, device), device)

    def spread(
        self, total: tf.Tensor, source: str, targets: Sequence[str]
    ) -> list[tf.Tensor]:
        """Broadcasts a complete sum; in float32 the targets read it from the source."""
        if not self.narrow:
            return [total] * len(targets)
        once = self._narrow(total, source)
        return [_widen(once, target) for target in targets]

    def _narrow(self, tensor: tf.Tensor, device: str) -> tf.Tensor:
        with tf.device(device):
            return tf.cast(tensor, self.dtype)


WIDE = Wire()


def widen(shares: Sequence[tf.Tensor], devices: Sequence[str]) -> list[tf.Tensor]:
    """Gradients in float32, cast after the transfer, which so is one of 16 bits.

    Args:
      shares: the gradient of one variable from each tower, in any float dtype.
      devices: where they are cast: one device for all, or one for each tower.
    """
    if all(share.dtype == tf.float32 for share in shares):
        return list(shares)
    where = devices if len(devices) == len(shares) else [devices[0]] * len(shares)
    return [_widen(share, device) for share, device in zip(shares, where)]


def _widen(tensor: tf.Tensor, device: str) -> tf.Tensor:
    with tf.device(device):
        return tf.cast(tensor, tf.float32)


def join(tensors: Sequence[tf.Tensor], device: str) -> tf.Tensor:
    """The elements of tensors of one dtype as one vector, on a device."""
    with tf.device(device):
        flat = [x if x.shape.rank == 1 else tf.reshape(x, [-1]) for x in tensors]
        return tf.concat(flat, 0)


def cut(vector: tf.Tensor, like: Sequence[tf.Tensor], device: str) -> list[tf.Tensor]:
    """Splits what `join` makes, or a sum of such vectors, on a device.

    Args:
      vector: to split.
      like: tensors of static shape, those that were joined.
      device: where the parts, of the shapes of `like`, are put.
    """
    shapes = [x.shape for x in like]
    with tf.device(device):
        parts = tf.split(vector, [shape.num_elements() for shape in shapes])
        return [x if s.rank == 1 else tf.reshape(x, s) for x, s in zip(parts, shapes)]


def arrival_hosts(placement: Placement) -> list[str | None]:
    """The CPU device where each tower's variables arrive.

    None if its stages are on several tasks: each task then gets what it reads.
    """
    return [
        host if len(set(map(task_of, devices))) == 1 else None
        for devices, host in zip(placement.stages, placement.hosts)
    ]


class Arrivals:
    """Sends values that towers read: once to each task, in few transfers."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], tf.Tensor] = {}
        self._joined: dict[tuple[str, ...], tf.Tensor] = {}

    def __call__(self, value: Any, host: str | None) -> tf.Tensor:
        """The value on a task.

        Args:
          value: a tensor on any device, or `parts.Parts` of tensors, which are joined
            on the task.
          host: CPU device of the task; a tensor on any device of the task is returned
            as it is.  None returns every tensor as it is.
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


def reduce_to_first(
    hosts: Sequence[str] = (), dtype: tf.DType | None = None
) -> ReduceAll:
    """Reduces every gradient to the first of its destinations, in tower order.

    If there are several hosts, the shares of a host are summed on its CPU first, so
    that one tensor per host crosses the network.  Small tensors are sent together.

    Args:
      hosts: the CPU device of each tower's host.
      dtype: shares are cast to it before they leave their tower, and sums before they
        leave their host; None leaves shares as they are, and sums in float32.

    Returns:
      a reduction of shares of any float dtype to float32 sums.  All destinations get
      the same tensor, on the first of them.
    """
    groups = towers_by_host(hosts)

    def reduce_all(shares: AllShares, destinations: AllDevices) -> Sums:
        shares = [[_cast(share, dtype) for share in per_tower] for per_tower in shares]
        roots = [devices[0] for devices in destinations]
        many_tasks = len({task_of(device) for device in [*hosts, *roots]}) > 1
        if groups and (many_tasks or len(groups) > 1):
            by_host = []
            for group in groups:
                group_shares = [[per_tower[k] for k in group] for per_tower in shares]
                on_host = [hosts[group[0]]] * len(shares)
                host_sums = summed(group_shares, on_host, _sum)
                host_sums = [_cast(host_sum, dtype) for host_sum in host_sums]
                by_host.append(bring(host_sums, roots))
            shares = list(zip(*by_host))
        totals = summed(shares, roots, _sum)
        return [[total] * len(d) for total, d in zip(totals, destinations)]

    return reduce_all


def _cast(tensor: tf.Tensor, dtype: tf.DType | None) -> tf.Tensor:
    """The tensor in a dtype, or as it is if None; cast on its own device."""
    if dtype is None:
        return tensor
    with tf.device(tensor.device):
        return tf.cast(tensor, dtype)


def _sum(shares: Sequence[tf.Tensor], device: str) -> tf.Tensor:
    """The float32 sum on a device; 16-bit shares are cast where they arrive."""
    wide = widen(shares, [device])
    with tf.device(device):
        return deterministic_sum.sum_in_order(wide)


def towers_by_host(hosts: Sequence[str]) -> list[list[int]]:
    """The indices of the towers of each host, hosts in order of their first tower."""
    groups: dict[str, list[int]] = {}
    for k, host in enumerate(hosts):
        groups.setdefault(host, []).append(k)
    return list(groups.values())


def at_one(
    shares: Sequence[tf.Tensor], devices: Sequence[str], root: str, wire: Wire
) -> list[tf.Tensor]:
    """Reduces on the device `root`, which need not be a tower's, and broadcasts."""
    arrived = [wire.carry(s, d, root) for s, d in zip(shares, devices)]
    with tf.device(root):
        total = deterministic_sum.sum_in_order(arrived)
    return wire.spread(total, root, devices)


def bring(
    tensors: Sequence[tf.Tensor],
    devices: Sequence[str],
    joined: dict[tuple[str, ...], tf.Tensor] | None = None,
) -> list[tf.Tensor]:
    """Sends tensors to other devices, small ones in bundles.

    Args:
      tensors: on any devices.
      devices: where each is sent to.
      joined: names of tensors -> the bundle of them on their device, so that a bundle
        is made once; new bundles are added.

    Returns:
      the tensors to read there: parts of the bundle that arrived, or the tensor itself.
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
    shares: AllShares,
    devices: Sequence[str],
    add: Callable[[Sequence[tf.Tensor], str], tf.Tensor],
) -> list[tf.Tensor]:
    """The sum of each tensor; small ones are sent and added as one vector.

    Args:
      shares: [tensors][towers]; small ones are of static shape.
      devices: [tensors], where the sums are computed.
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
    """Whether it is faster to send a tensor together with others."""
    beside = task_of(tensor.device) == task_of(device)
    size = (tensor.shape.num_elements() or 0) * tensor.dtype.size
    return tensor.device != device and 0 < size <= (_SMALL_BESIDE if beside else _SMALL)


def _bundles(tensors: Sequence[tf.Tensor], devices: Sequence[str]) -> list[list[int]]:
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
