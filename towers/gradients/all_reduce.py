"""All-reduce algorithms as graph operations: K shares in, their sum on K devices out.

Each function is a published algorithm, made of additions and copies that are pinned to
devices; TensorFlow adds the sends and receives.  All copies of a result are bit-equal:
every element is summed in one place and in one order, then copied.

    algorithm(shares, devices, num_shards, wire) -> [K] tensors

The float32 `shares[k]` is on `devices[k]`; `wire` has the dtype between devices.  With
several shards the tensor is flattened and split, and each shard is all-reduced by
itself.  There are at most as many shards as elements.
"""

import functools
import itertools
from collections.abc import Callable, Sequence

import tensorflow as tf

from towers.gradients import transfer
from towers.gradients.transfer import WIDE, Wire, towers_by_host

# (shares, devices, indices of the towers) -> their sum on each of these devices.
ReduceOf = Callable[
    [Sequence[tf.Tensor], Sequence[str], Sequence[int]], list[tf.Tensor]
]


def tree(
    shares: Sequence[tf.Tensor],
    devices: Sequence[str],
    num_shards: int = 1,
    wire: Wire = WIDE,
) -> list[tf.Tensor]:
    """Binary tree: reduced in pairs up to the root, then broadcast down again.

    2 log2(K) hops.  Each shard has another root.
    """

    def reduce_shard(
        pieces: Sequence[tf.Tensor], shard: int, num_shards: int
    ) -> list[tf.Tensor]:
        order = _rotated(len(devices), shard * len(devices) // num_shards)
        where = [devices[k] for k in order]
        held = {rank: pieces[k] for rank, k in enumerate(order)}
        hops = []
        stride = 1
        while stride < len(order):
            for low in range(0, len(order) - stride, 2 * stride):
                high = low + stride
                arrived = wire.carry(held[high], where[high], where[low])
                with tf.device(where[low]):
                    held[low] = held[low] + arrived
                hops.append((low, high))
            stride *= 2
        held[0] = wire.rounded(held[0], where[0])
        for low, high in reversed(hops):
            held[high] = wire.copy(held[low], where[low], where[high])
        return _by_tower(order, held)

    return sharded(reduce_shard, shares, devices, num_shards)


def ring(
    shares: Sequence[tf.Tensor],
    devices: Sequence[str],
    num_shards: int = 1,
    wire: Wire = WIDE,
) -> list[tf.Tensor]:
    """Ring (Patarasuk & Yuan 2009): a reduce-scatter, then an all-gather.

    Each of K chunks travels once around the ring to be summed and once more to be
    copied, so every link carries 2 (K - 1) / K of the bytes.  With several shards, that
    many rings run side by side.
    """

    def reduce_shard(
        pieces: Sequence[tf.Tensor], shard: int, num_shards: int
    ) -> list[tf.Tensor]:
        del num_shards
        count = len(devices)
        chunks = [_split(piece, devices[k], count) for k, piece in enumerate(pieces)]
        summed: list[list[tf.Tensor]] = [[] for _ in devices]  # [towers][chunks]
        for chunk in range(len(chunks[0])):
            order = _rotated(count, chunk + 1 + shard)
            hops = list(itertools.pairwise(order))
            total = chunks[order[0]][chunk]
            for before, k in hops:
                arrived = wire.carry(total, devices[before], devices[k])
                with tf.device(devices[k]):
                    total = arrived + chunks[k][chunk]
            held = {order[-1]: wire.rounded(total, devices[order[-1]])}
            for before, k in zip([order[-1], *order], order[:-1]):
                held[k] = wire.copy(held[before], devices[before], devices[k])
            for k in range(count):
                summed[k].append(held[k])
        return _joined(summed, devices)

    return sharded(reduce_shard, shares, devices, num_shards)


def halving_doubling(
    shares: Sequence[tf.Tensor],
    devices: Sequence[str],
    num_shards: int = 1,
    wire: Wire = WIDE,
) -> list[tf.Tensor]:
    """Recursive halving and doubling (Thakur, Rabenseifner & Gropp 2005).

    2 log2(K) hops, and as many bytes as a ring.  If K is not a power of two, the towers
    beyond the largest power of two below K first add their shares to those of a
    partner, and get the sum from it at the end.
    """
    core = 1 << (len(devices).bit_length() - 1)  # the largest power of two up to K

    def reduce_shard(
        pieces: Sequence[tf.Tensor], shard: int, num_shards: int
    ) -> list[tf.Tensor]:
        del shard, num_shards
        held = list(pieces[:core])
        for extra in range(core, len(devices)):
            partner = devices[extra - core]
            arrived = wire.carry(pieces[extra], devices[extra], partner)
            with tf.device(partner):
                held[extra - core] = held[extra - core] + arrived
        held = _halve_and_double(held, devices[:core], wire)
        for index in range(len(devices) - core):
            held.append(wire.copy(held[index], devices[index], devices[core + index]))
        return held

    return sharded(reduce_shard, shares, devices, num_shards)


def _halve_and_double(
    pieces: list[tf.Tensor], devices: Sequence[str], wire: Wire
) -> list[tf.Tensor]:
    """Reduce-scatter by halving, all-gather by doubling; 2^n devices."""
    if len(devices) == 1:
        return [wire.rounded(pieces[0], devices[0])]
    if pieces[0].shape.num_elements() < 2:  # nothing to halve
        return to_one(pieces, devices, 1, wire)
    half = len(devices) // 2
    split = [_split(piece, device, 2) for piece, device in zip(pieces, devices)]
    lower: list[tf.Tensor] = []
    upper: list[tf.Tensor] = []
    for low, high in zip(range(half), range(half, 2 * half)):
        for kept, at, there in ((lower, low, high), (upper, high, low)):
            which = 0 if kept is lower else 1
            arrived = wire.carry(split[there][which], devices[there], devices[at])
            with tf.device(devices[at]):
                kept.append(split[at][which] + arrived)
    lower = _halve_and_double(lower, devices[:half], wire)
    upper = _halve_and_double(upper, devices[half:], wire)
    gathered: list[list[tf.Tensor]] = [[] for _ in devices]
    for k, device in enumerate(devices):
        for sums, offset in ((lower, 0), (upper, half)):
            source = k % half + offset
            gathered[k].append(wire.carry(sums[k % half], devices[source], device))
    return _joined(gathered, devices)


def to_one(
    shares: Sequence[tf.Tensor],
    devices: Sequence[str],
    num_shards: int = 1,
    wire: Wire = WIDE,
) -> list[tf.Tensor]:
    """Reduces on one of the devices and broadcasts; each shard on another device."""

    def reduce_shard(
        pieces: Sequence[tf.Tensor], shard: int, num_shards: int
    ) -> list[tf.Tensor]:
        del num_shards
        return transfer.at_one(pieces, devices, devices[shard % len(devices)], wire)

    return sharded(reduce_shard, shares, devices, num_shards)


def _rotated(count: int, start: int) -> list[int]:
    return [(start + i) % count for i in range(count)]


def _by_tower(order: list[int], held: dict[int, tf.Tensor]) -> list[tf.Tensor]:
    tensors = {k: held[rank] for rank, k in enumerate(order)}
    return [tensors[k] for k in range(len(order))]


def sharded(
    reduce_shard: Callable[[Sequence[tf.Tensor], int, int], list[tf.Tensor]],
    shares: Sequence[tf.Tensor],
    devices: Sequence[str],
    num_shards: int,
) -> list[tf.Tensor]:
    """All-reduces a tensor shard by shard: flattens, splits, reduces, concatenates.

    Args:
      reduce_shard: (pieces [K], index of the shard, number of shards) -> sums [K].
      shares: [K], of one shape; a single one is its own sum.
      devices: [K].
      num_shards: at most; no shard is empty.
    """
    if len(shares) == 1:
        return list(shares)
    shape = shares[0].shape
    flat = []
    for share, device in zip(shares, devices):
        with tf.device(device):
            flat.append(tf.reshape(share, [-1]))
    if num_shards == 1:
        totals = reduce_shard(flat, 0, 1)
    else:
        pieces = [_split(f, d, num_shards) for f, d in zip(flat, devices)]
        count = len(pieces[0])
        results = [reduce_shard([p[s] for p in pieces], s, count) for s in range(count)]
        totals = _joined(
            [[r[k] for r in results] for k in range(len(devices))], devices
        )
    shaped = []
    for total, device in zip(totals, devices):
        with tf.device(device):
            shaped.append(tf.reshape(total, shape))
    return shaped


def _split(flat: tf.Tensor, device: str, count: int) -> list[tf.Tensor]:
    """`count` pieces of nearly equal size, not empty if there are enough elements."""
    size = flat.shape.num_elements()
    count = max(1, min(count, size))
    if count == 1:
        return [flat]
    sizes = [size // count + (i < size % count) for i in range(count)]
    with tf.device(device):
        return tf.split(flat, sizes)


def _joined(pieces: list[list[tf.Tensor]], devices: Sequence[str]) -> list[tf.Tensor]:
    """Concatenates [towers][pieces], each tower's on its device."""
    joined = []
    for tower_pieces, device in zip(pieces, devices):
        with tf.device(device):
            joined.append(tf.concat(tower_pieces, 0))
    return joined


def hierarchical(
    shares: Sequence[tf.Tensor],
    devices: Sequence[str],
    *,
    num_shards: int,
    hosts: Sequence[str],
    wire: Wire,
) -> list[tf.Tensor]:
    """Reduces to one tower of each host, then by a ring across the hosts."""
    groups = towers_by_host(hosts)
    if len(groups) == 1 and len(shares) >= 4:
        towers, half = range(len(shares)), len(shares) // 2
        groups = [list(towers[:half]), list(towers[half:])]
    across = functools.partial(ring, num_shards=num_shards, wire=wire)
    return two_level(
        shares,
        devices,
        groups,
        intra_host=lambda s, d, towers: transfer.at_one(s, d, d[0], wire),
        inter_host=lambda s, d, towers: across(s, d),
        wire=wire,
    )


def two_level(
    shares: Sequence[tf.Tensor],
    devices: Sequence[str],
    groups: Sequence[Sequence[int]],
    *,
    intra_host: ReduceOf,
    inter_host: ReduceOf,
    wire: Wire,
) -> list[tf.Tensor]:
    """Reduces inside each group, all-reduces across groups, broadcasts inside each.

    Only the first tower of a group exchanges with other groups, so that one tensor per
    group crosses the network in each direction of `inter_host`.

    Args:
      shares: [towers] tensors, each on its tower's device.
      devices: [towers].
      groups: indices of the towers of each host.
      intra_host, inter_host: the reduction of each level.
      wire: the dtype between devices.
    """
    if len(groups) == 1:
        return intra_host(shares, devices, groups[0])
    group_sums = [
        intra_host([shares[k] for k in group], [devices[k] for k in group], group)[0]
        for group in groups
    ]
    roots = [group[0] for group in groups]
    totals = inter_host(group_sums, [devices[k] for k in roots], roots)
    copies: list[tf.Tensor] = [None] * len(shares)
    for total, (root, *members) in zip(totals, groups):
        # The root receives it once, and the group's other towers copy it from there.
        with tf.device(devices[root]):
            copies[root] = tf.identity(total)
        for k in members:
            copies[k] = wire.copy(copies[root], devices[root], devices[k])
    return copies
