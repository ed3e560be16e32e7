"""From the towers' gradients to their mean.

Each tower differentiates its share of the mean loss (see `tower`), so the mean of the
joined batch is the plain sum of what the towers deliver: no algorithm here divides,
and none can turn a mean into a sum or back.

    reduce = from_spec("pscpu:32k:xring", hosts)
    mean(tower_gradients, destinations, reduce_all=each(reduce))

A reduction works on one tensor at a time,

    reduce(shares, destinations) -> one tensor per destination

with `shares[k]` the gradient from tower k, on its device, and `destinations` the
devices where the mean is wanted.  `mean` handles `None` and `IndexedSlices` once, for
all of them; `packing` wraps `each` of any.
"""

import functools
from collections.abc import Callable, Sequence

import tensorflow as tf

from towers import all_reduce, precision, spec
from towers.tower import Gradient

Shares = Sequence[tf.Tensor]  # one gradient, of each tower
Devices = Sequence[str]
Reduce = Callable[[Shares, Devices], list[tf.Tensor]]
# The same for all gradients: [variables][towers] -> [variables][copies].
ReduceAll = Callable[[Sequence[Shares], Sequence[Devices]], list[list[tf.Tensor]]]


def at_first_destination(
    shares: Sequence[tf.Tensor], destinations: Sequence[str]
) -> list[tf.Tensor]:
    """Adds all shares on the first destination, in tower order.

    One `AddN`: it runs at memory speed, and chains, trees and stacks of the same
    tensors were measured slower.
    """
    with tf.device(destinations[0]):
        total = tf.add_n(list(shares)) if len(shares) > 1 else tf.identity(shares[0])
    return [total] * len(destinations)


def _on_host(shares, devices, num_shards, hosts):
    """`pscpu`: all shares to the first tower's host and the sum back."""
    del num_shards
    with tf.device(hosts[0]):
        total = tf.add_n(list(shares)) if len(shares) > 1 else tf.identity(shares[0])
    return [total] * len(devices)


def _dataflow(algorithm: all_reduce.Algorithm):
    def run(shares, devices, num_shards, hosts):
        del hosts
        return algorithm(shares, devices, num_shards)

    return run


# name -> (shares, devices, shards, hosts) -> one tensor per device.  A new algorithm is
# one function and one row.
REDUCTIONS: dict[str, Callable[..., list[tf.Tensor]]] = {
    "pscpu": _on_host,
    "psgpu": _dataflow(all_reduce.to_one),
    "tree": _dataflow(all_reduce.tree),
    "xring": _dataflow(all_reduce.ring),
    "rechd": _dataflow(all_reduce.halving_doubling),
}


def from_spec(text: str, hosts: Sequence[str]) -> Reduce:
    """The reduction that an `--all_reduce_spec` describes.

    Args:
      text: in the grammar of `spec`.
      hosts: the CPU device beside each tower.

    Raises:
      ValueError: the text is no spec; the sentence gives the position.
    """
    ranges = spec.parse(text, REDUCTIONS)

    def reduce(shares, destinations):
        num_bytes = shares[0].shape.num_elements() * shares[0].dtype.size
        chosen = next(r for r in ranges if r.limit is None or num_bytes <= r.limit)
        return _two_level(chosen, shares, destinations, hosts)

    return reduce


def _two_level(chosen: spec.Range, shares, devices, hosts) -> list[tf.Tensor]:
    """Inside each host first, then across the hosts, then down to every tower."""
    within = functools.partial(
        REDUCTIONS[chosen.within.name], num_shards=chosen.within.shards
    )
    if chosen.across is None:
        return within(shares, devices, hosts=hosts)
    groups: dict[str, list[int]] = {}
    for k, host in enumerate(hosts):
        groups.setdefault(host, []).append(k)
    sums = [
        within(
            [shares[k] for k in ks], [devices[k] for k in ks], hosts=[host] * len(ks)
        )[0]
        for host, ks in groups.items()
    ]
    firsts = [devices[ks[0]] for ks in groups.values()]
    totals = REDUCTIONS[chosen.across.name](
        sums, firsts, num_shards=chosen.across.shards, hosts=list(groups)
    )
    found: list[tf.Tensor] = [None] * len(shares)
    for total, ks in zip(totals, groups.values()):
        for k in ks:
            with tf.device(devices[k]):
                found[k] = tf.identity(total)
    return found


def each(reduce: Reduce) -> ReduceAll:
    """Lifts a reduction of one gradient to all of them, one by one."""

    def reduce_all(shares, destinations):
        return [reduce(s, d) for s, d in zip(shares, destinations)]

    return reduce_all


def mean(
    tower_gradients: Sequence[Sequence[Gradient]],
    destinations: Sequence[Sequence[str]],
    *,
    reduce_all: ReduceAll | None = None,
) -> list[list[Gradient]]:
    """The mean gradient of every variable, on every device that wants it.

    Args:
      tower_gradients: [towers][variables], shares as `tower.Tower` has them.
      destinations: [variables][copies] devices.
      reduce_all: for the dense gradients; added at each variable's first destination
        when None.

    Returns:
      [variables][copies] gradients; None for a variable that no tower uses.

    Raises:
      ValueError: a variable has a gradient in some towers only.
    """
    means: list[list[Gradient]] = []
    dense: list[int] = []
    by_variable = list(zip(*tower_gradients, strict=True))
    for index, (shares, devices) in enumerate(zip(by_variable, destinations)):
        present = [share is not None for share in shares]
        means.append([None] * len(devices))
        if any(present) and not all(present):
            raise ValueError(
                f"a gradient is missing in tower {present.index(False)} only"
            )
        if any(isinstance(share, tf.IndexedSlices) for share in shares):
            means[index] = _join_rows(shares, devices)
        elif any(present):
            dense.append(index)
    found = (reduce_all or each(at_first_destination))(
        [precision.widen(by_variable[i], destinations[i]) for i in dense],
        [destinations[i] for i in dense],
    )
    for index, copies in zip(dense, found):
        means[index] = copies
    return means


def _join_rows(
    shares: Sequence[tf.IndexedSlices], destinations: Sequence[str]
) -> list[tf.IndexedSlices]:
    """Sparse gradients stay sparse: rows side by side; the update adds equal rows."""
    with tf.device(destinations[0]):
        joined = tf.IndexedSlices(
            values=tf.cast(tf.concat([s.values for s in shares], 0), tf.float32),
            indices=tf.concat([s.indices for s in shares], 0),
            dense_shape=shares[0].dense_shape,
        )
    return [joined] * len(destinations)
