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
      a reduction of all gradients, as `mean.of_towers` takes it: (shares
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
                group_means = [reduce(members[0], devices)]
            else:
                group_means = _cut(
                    reduce(_join(members, devices), devices), members, devices
                )
            for index, copies in zip(group, group_means):
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
    return [
        join([gradient[tower] for gradient in shares], device)
        for tower, device in enumerate(devices)
    ]


def _join_pieces(totals, devices) -> list[tf.Tensor]:
    """Concatenates [packs][towers] to one vector per tower."""
    return [join(pieces, device) for pieces, device in zip(zip(*totals), devices)]


def _cut(vectors, shares, devices) -> list[list[tf.Tensor]]:
    """Splits one vector per tower to [variables][towers], shaped as `shares`."""
    like = [gradient[0] for gradient in shares]
    by_tower = [cut(vector, like, device) for vector, device in zip(vectors, devices)]
    return [list(copies) for copies in zip(*by_tower)]


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
      device: where the parts, shaped as these, are wanted.
    """
    shapes = [x.shape for x in like]
    with tf.device(device):
        parts = tf.split(vector, [shape.num_elements() for shape in shapes])
        return [x if s.rank == 1 else tf.reshape(x, s) for x, s in zip(parts, shapes)]
