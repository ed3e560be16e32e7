"""All-reduce algorithms as plain dataflow: K shares in, their sum on K devices out.

Each function is one algorithm of the literature, drawn with additions and copies
pinned to devices; TensorFlow's own sends and receives do the rest.  All copies of a
result are bit-equal: every element is summed in one place and in one order, then
copied.

    algorithm(shares, devices, num_shards) -> [K] tensors

with `shares[k]` on `devices[k]`.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

Algorithm = Callable[[Sequence[tf.Tensor], Sequence[str], int], list[tf.Tensor]]


def tree(
    shares: Sequence[tf.Tensor], devices: Sequence[str], num_shards: int = 1
) -> list[tf.Tensor]:
    """Binary tree: pairs are added up to the root, the sum is handed down again.

    2 log2(K) hops.  With several shards each piece has a root of its own, so that no
    device is every piece's root.
    """

    def one(pieces: Sequence[tf.Tensor], shard: int) -> list[tf.Tensor]:
        order = _rotated(len(devices), shard * len(devices) // num_shards)
        held = {rank: pieces[k] for rank, k in enumerate(order)}
        hops = []
        stride = 1
        while stride < len(order):
            for low in range(0, len(order) - stride, 2 * stride):
                with tf.device(devices[order[low]]):
                    held[low] = held[low] + held[low + stride]
                hops.append((low, low + stride))
            stride *= 2
        for low, high in reversed(hops):
            with tf.device(devices[order[high]]):
                held[high] = tf.identity(held[low])
        return _by_tower(order, held)

    return _sharded(one, shares, devices, num_shards)


def ring(
    shares: Sequence[tf.Tensor], devices: Sequence[str], num_shards: int = 1
) -> list[tf.Tensor]:
    """Ring (Patarasuk & Yuan 2009): each of K chunks travels once around to be summed
    and once more to be spread, so every link carries 2 (K - 1) / K of the bytes.

    With several shards, that many rings run side by side on pieces of the tensor.
    """

    def one(pieces: Sequence[tf.Tensor], shard: int) -> list[tf.Tensor]:
        count = len(devices)
        chunks = [_split(piece, devices[k], count) for k, piece in enumerate(pieces)]
        parts: list[list[tf.Tensor]] = [[] for _ in devices]
        for chunk in range(count):
            order = _rotated(count, chunk + 1 + shard)
            total = chunks[order[0]][chunk]
            for k in order[1:]:
                with tf.device(devices[k]):
                    total = total + chunks[k][chunk]
            held = {order[-1]: total}
            for before, k in zip([order[-1], *order], order[:-1]):
                with tf.device(devices[k]):
                    held[k] = tf.identity(held[before])
            for k in range(count):
                parts[k].append(held[k])
        return _joined(parts, devices)

    return _sharded(one, shares, devices, num_shards)


def halving_doubling(
    shares: Sequence[tf.Tensor], devices: Sequence[str], num_shards: int = 1
) -> list[tf.Tensor]:
    """Recursive halving, then doubling (Thakur, Rabenseifner & Gropp 2005).

    2 log2(K) hops with the bytes of a ring.  When K is no power of two, the towers
    beyond the largest one first add theirs to a partner, and get the sum at the end.
    """
    core = 1 << (len(devices).bit_length() - 1)

    def one(pieces: Sequence[tf.Tensor], shard: int) -> list[tf.Tensor]:
        del shard
        held = list(pieces[:core])
        for extra in range(core, len(devices)):
            with tf.device(devices[extra - core]):
                held[extra - core] = held[extra - core] + pieces[extra]
        held = _halve_and_double(held, devices[:core])
        for extra in range(core, len(devices)):
            with tf.device(devices[extra]):
                held.append(tf.identity(held[extra - core]))
        return held

    return _sharded(one, shares, devices, num_shards)


def _halve_and_double(
    pieces: list[tf.Tensor], devices: Sequence[str]
) -> list[tf.Tensor]:
    """Both halves of the exchange for a power of two of devices."""
    if len(devices) == 1:
        return pieces
    half = len(devices) // 2
    split = [_split(piece, device, 2) for piece, device in zip(pieces, devices)]
    lower, upper = [], []
    for k in range(half):
        with tf.device(devices[k]):
            lower.append(split[k][0] + split[k + half][0])
        with tf.device(devices[k + half]):
            upper.append(split[k][1] + split[k + half][1])
    lower = _halve_and_double(lower, devices[:half])
    upper = _halve_and_double(upper, devices[half:])
    parts = [list(pair) for pair in zip(lower, upper)]
    return _joined(parts + parts, devices)


def to_one(
    shares: Sequence[tf.Tensor], devices: Sequence[str], num_shards: int = 1
) -> list[tf.Tensor]:
    """All shares to one device and the sum back; shards go to devices in turn."""

    def one(pieces: Sequence[tf.Tensor], shard: int) -> list[tf.Tensor]:
        with tf.device(devices[shard % len(devices)]):
            total = tf.add_n(list(pieces))
        return [total] * len(devices)

    return _sharded(one, shares, devices, num_shards)


def _rotated(count: int, start: int) -> list[int]:
    return [(start + i) % count for i in range(count)]


def _by_tower(order: list[int], held: dict[int, tf.Tensor]) -> list[tf.Tensor]:
    found = {k: held[rank] for rank, k in enumerate(order)}
    return [found[k] for k in range(len(order))]


def _sharded(one, shares, devices: Sequence[str], num_shards: int) -> list[tf.Tensor]:
    """Flattens, runs `one` on each piece, and puts the results together again."""
    if len(shares) == 1:
        return list(shares)
    shape = shares[0].shape
    flat = []
    for share, device in zip(shares, devices):
        with tf.device(device):
            flat.append(tf.reshape(share, [-1]))
    if num_shards == 1:
        totals = one(flat, 0)
    else:
        pieces = [_split(f, d, num_shards) for f, d in zip(flat, devices)]
        results = [one([p[s] for p in pieces], s) for s in range(num_shards)]
        totals = _joined(
            [[r[k] for r in results] for k in range(len(devices))], devices
        )
    shaped = []
    for total, device in zip(totals, devices):
        with tf.device(device):
            shaped.append(tf.reshape(total, shape))
    return shaped


def _split(flat: tf.Tensor, device: str, count: int) -> list[tf.Tensor]:
    """`count` pieces of nearly equal size; the first ones take the rest."""
    size = flat.shape.num_elements()
    sizes = [size // count + (i < size % count) for i in range(count)]
    with tf.device(device):
        return tf.split(flat, sizes)


def _joined(parts: list[list[tf.Tensor]], devices: Sequence[str]) -> list[tf.Tensor]:
    joined = []
    for pieces, device in zip(parts, devices):
        with tf.device(device):
            joined.append(tf.concat(pieces, 0))
    return joined
