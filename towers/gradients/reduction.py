"""From the towers' gradients to their mean.

Each tower differentiates its share of the mean loss (see `tower`), so the mean of the
joined batch is the plain sum of what the towers deliver: no algorithm here divides,
and none can turn a mean into a sum or back.

    reduce = from_spec("pscpu:32k:xring", hosts)
    mean(tower_gradients, destinations, reduce_all=in_float32(each(reduce)))

A reduction works on one tensor at a time,

    reduce(shares, destinations) -> one tensor per destination

with `shares[k]` the gradient from tower k, on its device, and `destinations` the
devices where the mean is wanted.  `mean` handles `None` and `IndexedSlices` once, for
all of them; `packing` wraps `each` of any.

| name         | how the towers' float32 gradients are added                          |
|--------------|----------------------------------------------------------------------|
| pscpu        | on the CPU beside the first tower; shards on the hosts' CPUs in turn |
| psgpu        | on a tower's device; shards on the towers' devices in turn           |
| tree         | in pairs up to a root and down again                                 |
| xring        | along a ring, in as many chunks as there are towers                  |
| rechd        | by recursive halving, then doubling                                  |
| hierarchical | on the first tower of each host, by xring across the hosts, and down |
| nccl         | by NCCL, on GPUs, inside a host                                      |
| collective   | inside a host by TensorFlow's collective operations: NCCL or a ring  |

`a/b` is a inside each host, then b across the hosts; so is hierarchical in general.
With one host, a/b is a; hierarchical then takes the first and the second half of the
towers for two hosts, if they are four or more.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from towers.compute import addition, precision
from towers.compute.tower import Gradient
from towers.gradients import all_reduce, collective, sparse, spec
from towers.gradients.transfer import WIDE, Wire
from towers.gradients.wire import bring
from towers.layout.placement import task_of

Shares = Sequence[tf.Tensor]  # one gradient, of each tower
Devices = Sequence[str]
Reduce = Callable[[Shares, Devices], list[tf.Tensor]]
# The same for all gradients: [variables][towers] -> [variables][copies].
ReduceAll = Callable[[Sequence[Shares], Sequence[Devices]], list[list[tf.Tensor]]]


class Row(NamedTuple):
    """An algorithm, and what it needs.

    Attributes:
      run: (shares, devices, num_shards=, hosts=, wire=) -> one tensor per device; the
        shares are float32.
      device: the kind of device that it needs, or "" for any.
      one_host: whether all its devices must be of one host.
    """

    run: Callable[..., list[tf.Tensor]]
    device: str = ""
    one_host: bool = False


def _dataflow(algorithm: Callable[..., list[tf.Tensor]], **fixed) -> Row:
    def run(shares, devices, *, num_shards, hosts, wire):
        del hosts
        return algorithm(shares, devices, num_shards, wire, **fixed)

    return Row(run)


def _on_host(shares, devices, *, num_shards, hosts, wire):
    """`pscpu`: to the first tower's host and back; shards to the hosts in turn."""
    places = list(dict.fromkeys(hosts))

    def one(pieces, shard, num_shards):
        del num_shards
        return all_reduce.at_one(pieces, devices, places[shard % len(places)], wire)

    if num_shards == 1:  # as it is: flattening and cutting would cost copies
        return one(shares, 0, 1)
    return all_reduce.sharded(one, shares, devices, num_shards)


def _hierarchical(shares, devices, *, num_shards, hosts, wire):
    """On one tower of each host first, then across the hosts, then down."""
    groups = _by_host(hosts)
    if len(groups) == 1 and len(shares) >= 4:
        ks, half = range(len(shares)), len(shares) // 2
        groups = [list(ks[:half]), list(ks[half:])]
    across = functools.partial(all_reduce.ring, num_shards=num_shards, wire=wire)
    return _in_groups(
        shares,
        devices,
        groups,
        within=lambda s, d, ks: all_reduce.at_one(s, d, d[0], wire),
        across=lambda s, d, ks: across(s, d),
        wire=wire,
    )


# name -> algorithm.  A new one is one function and one row.
REDUCTIONS: dict[str, Row] = {
    "pscpu": Row(_on_host),
    "psgpu": _dataflow(all_reduce.to_one),
    "tree": _dataflow(all_reduce.tree),
    "xring": _dataflow(all_reduce.ring),
    "rechd": _dataflow(all_reduce.halving_doubling),
    "hierarchical": Row(_hierarchical),
    "nccl": _dataflow(collective.reduce, hint="nccl")._replace(
        device="gpu", one_host=True
    ),
    "collective": _dataflow(collective.reduce, hint="auto")._replace(one_host=True),
}


def usable(kind: str) -> list[str]:
    """The names of the algorithms for towers on that kind of device: cpu or gpu."""
    return [name for name, row in REDUCTIONS.items() if row.device in ("", kind)]


def parse(text: str) -> list[spec.Range]:
    """Reads an `--all_reduce_spec`.

    Raises:
      ValueError: it is none; the sentence gives the position.
    """
    inside = [name for name, row in REDUCTIONS.items() if row.one_host]
    return spec.parse(text, REDUCTIONS, inside_hosts=inside)


def check(text: str, *, kind: str, hosts: Sequence[str]) -> None:
    """Refuses what the towers' devices cannot do.

    Args:
      text: an `--all_reduce_spec`.
      kind: of the towers' devices, cpu or gpu.
      hosts: the CPU device beside each tower.

    Raises:
      ValueError: it is no spec, or not one for these devices.
    """
    for chosen in parse(text):
        for algorithm in (chosen.within, chosen.across or chosen.within):
            row = REDUCTIONS[algorithm.name]
            if row.device not in ("", kind):
                reason = (
                    f"{algorithm.name} runs on {row.device.upper()} devices only, and "
                    f"the towers are on {kind.upper()} devices; choose from "
                    f"{', '.join(usable(kind))}"
                )
                raise spec.error(text, algorithm.start, reason)
        if REDUCTIONS[chosen.within.name].one_host and not chosen.across:
            if len(set(hosts)) > 1:
                name = chosen.within.name
                reason = (
                    f"{name} works inside a host, and the towers are on "
                    f"{len(set(hosts))}; write {name}/xring"
                )
                raise spec.error(text, chosen.within.start, reason)


def from_spec(text: str, hosts: Sequence[str], wire: Wire = WIDE) -> Reduce:
    """The reduction of float32 shares that an `--all_reduce_spec` describes.

    Args:
      text: in the grammar of `spec`.
      hosts: the CPU device beside each tower.
      wire: how shares and sums travel.

    Raises:
      ValueError: the text is no spec; the sentence gives the position.
    """
    ranges = parse(text)

    def reduce(shares, destinations):
        num_bytes = shares[0].shape.num_elements() * shares[0].dtype.size
        chosen = next(r for r in ranges if r.limit is None or num_bytes <= r.limit)
        return _two_level(chosen, shares, destinations, hosts=hosts, wire=wire)

    return reduce


def _two_level(chosen: spec.Range, shares, devices, *, hosts, wire: Wire):
    """What a range of a spec says, on one level or on two."""

    def level(algorithm: spec.Algorithm):
        def run(shares, devices, ks):
            return REDUCTIONS[algorithm.name].run(
                shares,
                devices,
                num_shards=algorithm.shards,
                hosts=[hosts[k] for k in ks],
                wire=wire,
            )

        return run

    if chosen.across is None:
        return level(chosen.within)(shares, devices, range(len(shares)))
    return _in_groups(
        shares,
        devices,
        _by_host(hosts),
        within=level(chosen.within),
        across=level(chosen.across),
        wire=wire,
    )


def _by_host(hosts: Sequence[str]) -> list[list[int]]:
    """The towers of each host."""
    groups: dict[str, list[int]] = {}
    for k, host in enumerate(hosts):
        groups.setdefault(host, []).append(k)
    return list(groups.values())


def _in_groups(shares, devices, groups, *, within, across, wire: Wire):
    """Inside each group first, then across their first towers, then down.

    Whatever `within` and `across` are, one tensor per group goes either way.
    """
    if len(groups) == 1:
        return within(shares, devices, groups[0])
    sums = [
        within([shares[k] for k in ks], [devices[k] for k in ks], ks)[0]
        for ks in groups
    ]
    first = [ks[0] for ks in groups]
    totals = across(sums, [devices[k] for k in first], first)
    found: list[tf.Tensor] = [None] * len(shares)
    for total, ks in zip(totals, groups):
        # Fetched to the group once, and from there by its other towers.
        with tf.device(devices[ks[0]]):
            found[ks[0]] = tf.identity(total)
        for k in ks[1:]:
            found[k] = wire.copy(found[ks[0]], devices[ks[0]], devices[k])
    return found


def host_by_host(hosts: Sequence[str] = (), dtype: tf.DType | None = None) -> ReduceAll:
    """Adds the shares of each gradient, of any float dtype, in tower order.

    The sum is on the first of its destinations.

    Args:
      hosts: the CPU device beside each tower.  Where a network is between, shares are
        added on each host first, so that one tensor per host crosses it, and small ones
        cross it together.
      dtype: in which shares leave their tower, and sums their host; that of the shares
        when None, and float32 for the sums.
    """
    groups = _by_host(hosts)

    def reduce_all(shares, destinations):
        shares = [[_leaving(share, dtype) for share in own] for own in shares]
        ends = [devices[0] for devices in destinations]
        apart = len({task_of(device) for device in [*hosts, *ends]}) > 1
        if groups and (apart or len(groups) > 1):
            by_host = []
            for ks in groups:
                host = hosts[ks[0]]
                sums = [_add([own[k] for k in ks], host) for own in shares]
                sums = [_leaving(part, dtype) for part in sums]
                by_host.append(bring(sums, ends))
            shares = list(zip(*by_host))
        totals = [_add(own, device) for own, device in zip(shares, ends)]
        return [[total] * len(d) for total, d in zip(totals, destinations)]

    return reduce_all


def _leaving(share: tf.Tensor, dtype: tf.DType | None) -> tf.Tensor:
    """The share in the dtype in which it is to leave its device."""
    with tf.device(share.device):
        return share if dtype is None else tf.cast(share, dtype)


def _add(shares: Sequence[tf.Tensor], device: str) -> tf.Tensor:
    """The sum in float32, of shares widened where they arrive."""
    wide = precision.widen(shares, [device])
    with tf.device(device):
        return addition.in_order(wide)


def in_float32(reduce_all: ReduceAll) -> ReduceAll:
    """Widens 16-bit shares on their own devices before they are reduced."""

    def run(shares, destinations):
        wide = [precision.widen(s, d) for s, d in zip(shares, destinations)]
        return reduce_all(wide, destinations)

    return run


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
    dtype: tf.DType | None = None,
    reduce_all: ReduceAll | None = None,
) -> list[list[Gradient]]:
    """The mean gradient of every variable, on every device that wants it.

    Args:
      tower_gradients: [towers][variables], shares as `tower.Tower` has them.
      destinations: [variables][copies] devices.
      names: of the variables, for errors.
      hosts, dtype: as `host_by_host` and `sparse.mean` have them.
      reduce_all: for the dense gradients, in any float dtype; `host_by_host` when None.

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
            rows = sparse.mean(shares, devices[0], hosts=hosts, dtype=dtype)
            means[index] = [rows] * len(devices)
        elif shares[0] is not None:
            dense.append(index)
    found = (reduce_all or host_by_host(hosts, dtype))(
        [by_variable[i] for i in dense], [destinations[i] for i in dense]
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
