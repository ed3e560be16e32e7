"""Gradient packing: gradients are concatenated, reduced together and split again.

This makes fewer, larger transfers.  A packing wraps any reduction.  With four gradients
a b c d of which a and c are small,

    small(...)   reduces  [a c]  b  d
    equal(2)     reduces  [a b | b c d]: one vector, split into two halves

and returns the means of a, b, c, d.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

Reduce = Callable[[Sequence[tf.Tensor], Sequence[str]], list[tf.Tensor]]


def equal(num_packs: int, reduce: Reduce) -> Callable[..., list[list[tf.Tensor]]]:
    """`--gradient_repacking=N`: all gradients as one vector, cut into N equal packs.

    Args:
      num_packs: how many packs.
      reduce: of `reduction`, for each pack.

    Returns:
      a reduction of all gradients, as `reduction.mean` takes it: (shares
      [variables][towers], destinations [variables][towers]) -> means
      [variables][towers].
    """

    def reduce_all(shares, destinations):
        if not shares:  # all gradients are sparse
            return []
        devices = destinations[0]
        vectors = _join(shares, devices)
        size = vectors[0].shape.num_elements()
        sizes = [size // num_packs + (i < size % num_packs) for i in range(num_packs)]
        packs = []
        for vector, device in zip(vectors, devices):
            with tf.device(device):
                packs.append(tf.split(vector, sizes))
        totals = [reduce(pack, devices) for pack in zip(*packs)]
        return _cut(_join_pieces(totals, devices), shares, devices)

    return reduce_all


def small(
    max_bytes: int, max_group: int, reduce: Reduce
) -> Callable[..., list[list[tf.Tensor]]]:
    """`--agg_small_grads_max_bytes`: small gradients are reduced in groups.

    Args:
      max_bytes: a gradient up to this size is small.
      max_group: most gradients in one group.
      reduce: of `reduction`, for each group and each large gradient.

    Returns:
      a reduction of all gradients, as `equal` returns it.
    """

    def reduce_all(shares, destinations):
        means = [None] * len(shares)
        for group in _groups(shares, max_bytes, max_group):
            devices = destinations[group[0]]
            members = [shares[index] for index in group]
            if len(group) == 1:
                found = [reduce(members[0], devices)]
            else:
                found = _cut(reduce(_join(members, devices), devices), members, devices)
            for index, copies in zip(group, found):
                means[index] = copies
        return means

    return reduce_all


def _groups(shares, max_bytes: int, max_group: int) -> list[list[int]]:
    """Indices of the gradients of each group, in order of the variables."""
    groups: list[list[int]] = []
    current: list[int] = []
    for index, gradient in enumerate(shares):
        if gradient[0].shape.num_elements() * gradient[0].dtype.size > max_bytes:
            groups.append([index])
            continue
        current.append(index)
        if len(current) == max_group:
            groups.append(current)
            current = []
    return groups + ([current] if current else [])


def _join(shares, devices) -> list[tf.Tensor]:
    """Concatenates [variables][towers] gradients to one vector per tower."""
    vectors = []
    for tower, device in enumerate(devices):
        with tf.device(device):
            flat = [tf.reshape(gradient[tower], [-1]) for gradient in shares]
            vectors.append(tf.concat(flat, 0))
    return vectors


def _join_pieces(totals, devices) -> list[tf.Tensor]:
    """Concatenates [packs][towers] to one vector per tower."""
    vectors = []
    for pieces, device in zip(zip(*totals), devices):
        with tf.device(device):
            vectors.append(tf.concat(pieces, 0))
    return vectors


def _cut(vectors, shares, devices) -> list[list[tf.Tensor]]:
    """Splits one vector per tower to [variables][towers], shaped as `shares`."""
    shapes = [gradient[0].shape for gradient in shares]
    sizes = [shape.num_elements() for shape in shapes]
    by_tower = []
    for vector, device in zip(vectors, devices):
        with tf.device(device):
            pieces = tf.split(vector, sizes)
            by_tower.append([tf.reshape(p, s) for p, s in zip(pieces, shapes)])
    return [list(copies) for copies in zip(*by_tower)]
