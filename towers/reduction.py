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

from towers import all_reduce, precision, sparse, spec
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


def host_by_host(hosts: Sequence[str]) -> Reduce:
    """Adds the shares of each host there, then the hosts' sums at the destination.

    So one gradient per host crosses the network, not one per tower.

    Args:
      hosts: the CPU device beside each tower, or none if all are beside the same.
    """
    groups: dict[str, list[int]] = {}
    for k, host in enumerate(hosts):
        groups.setdefault(host, []).append(k)
    if len(groups) < 2:
        return at_first_destination

    def reduce(shares, destinations):
        sums = [
            at_first_destination([shares[k] for k in ks], [host])[0]
            for host, ks in groups.items()
        ]
        return at_first_destination(sums, destinations)

    return reduce


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
    names: Sequence[str] = (),
    hosts: Sequence[str] = (),
    reduce_all: ReduceAll | None = None,
) -> list[list[Gradient]]:
    """The mean gradient of every variable, on every device that wants it.

    Args:
      tower_gradients: [towers][variables], shares as `tower.Tower` has them.
      destinations: [variables][copies] devices.
      names: of the variables, for errors.
      hosts: the CPU device beside each tower; gradients are added on each first,
        those that are dense unless `reduce_all` says how.
      reduce_all: for the dense gradients; added at each variable's first destination
        when None.

    Returns:
      [variables][copies] gradients, float32; None for a variable that no tower uses,
      `IndexedSlices` with every row once for one whose gradients are such.

    Raises:
      ValueError: some variables have a gradient in some towers only, or a dense one in
        some and a sparse one in others.
    """
    by_variable = list(zip(*tower_gradients, strict=True))
    _check_alike(by_variable, names)
    means: list[list[Gradient]] = []
    dense: list[int] = []
    for index, (shares, devices) in enumerate(zip(by_variable, destinations)):
        means.append([None] * len(devices))
        if isinstance(shares[0], tf.IndexedSlices):
            rows = sparse.mean(shares, devices[0], hosts=hosts)
            means[index] = [rows] * len(devices)
        elif shares[0] is not None:
            dense.append(index)
    apart = reduce_all is None and len(set(hosts)) > 1
    found = (reduce_all or each(host_by_host(hosts)))(
        [
            precision.widen(by_variable[i], hosts if apart else destinations[i])
            for i in dense
        ],
        [destinations[i] for i in dense],
    )
    for index, copies in zip(dense, found):
        means[index] = copies
    return means


def _check_alike(by_variable: Sequence[Sequence[Gradient]], names: Sequence[str]):
    """Every tower computes the same, so what only some of them have is a fault."""
    found = []
    for index, shares in enumerate(by_variable):
        name = repr(names[index]) if names else f"variable {index}"
        kinds = [_kind(share) for share in shares]
        odd = [k for k, kind in enumerate(kinds) if kind != kinds[0]]
        if odd:
            found.append(
                f"{name} has a {kinds[0]} gradient in tower 0 and a {kinds[odd[0]]} "
                f"one in tower {', '.join(map(str, odd))}"
            )
    if found:
        raise ValueError(
            f"the towers' gradients differ in kind: {'; '.join(found)}; all towers "
            "must compute the same"
        )


def _kind(gradient: Gradient) -> str:
    if gradient is None:
        return "missing"
    return "sparse" if isinstance(gradient, tf.IndexedSlices) else "dense"
