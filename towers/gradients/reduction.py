"""Reductions: from the towers' gradients to the mean gradient.

Each tower differentiates its share of the mean loss (see `tower`), so the mean gradient
of the joined batch is the plain sum of the towers' gradients: no algorithm here
divides, and none can turn a mean into a sum or back.

    reduce = from_spec("pscpu:32k:xring", hosts)
    mean(tower_gradients, destinations, reduce_all=in_float32(each(reduce)))

A reduction works on one tensor at a time,

    reduce(shares, destinations) -> one tensor per destination

with `shares[k]` the gradient from tower k, on its device, and `destinations` the
devices where the mean is wanted.  `mean` handles `None` and `IndexedSlices` once, for
all of them; `packing` wraps `each` of any.

| name         | how the towers' float32 gradients are summed                         |
|--------------|----------------------------------------------------------------------|
| pscpu        | on the CPU beside the first tower; shards on the hosts' CPUs in turn |
| psgpu        | on a tower's device; shards on the towers' devices in turn           |
| tree         | reduced in pairs up to a root, broadcast down again                  |
| xring        | by ring all-reduce, in as many chunks as there are towers            |
| rechd        | by recursive halving and doubling                                    |
| hierarchical | reduced to one tower per host, xring across hosts, broadcast back    |
| nccl         | by NCCL, on GPUs, inside one host                                    |
| collective   | by TensorFlow's own ring, inside one host                            |

`a/b` reduces by a inside each host (intra-host), by b across the hosts (inter-host),
and broadcasts the sums inside each host.  With one host, a/b is a.  `hierarchical` on
one host with four towers or more treats the two halves of the towers as two hosts.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from towers.compute import addition, precision
from towers.compute.tower import Gradient
from towers.gradients import all_reduce, collective, sparse, spec
from towers.gradients.transfer import WIDE, Wire
from towers.gradients.wire import bring, summed
from towers.layout.placement import task_of

Shares = Sequence[tf.Tensor]  # of one variable's gradient, one per tower
Devices = Sequence[str]
Reduce = Callable[[Shares, Devices], list[tf.Tensor]]
# All gradients at once: [variables][towers] -> [variables][copies].
ReduceAll = Callable[[Sequence[Shares], Sequence[Devices]], list[list[tf.Tensor]]]


class Row(NamedTuple):
    """An all-reduce algorithm and its requirements.

    Attributes:
      run: (shares, devices, num_shards=, hosts=, wire=) -> the sum on each device; the
        shares are float32.
      device: the `Placement.device_kind` that it requires; "" for any.
      one_host: whether all its devices must be on one host.
    """

    run: Callable[..., list[tf.Tensor]]
    device: str = ""
    one_host: bool = False


def _dataflow(algorithm: Callable[..., list[tf.Tensor]], **fixed) -> Row:
    """A row for an algorithm that is the same whatever the hosts."""

    def run(shares, devices, *, num_shards, hosts, wire):
        del hosts
        return algorithm(shares, devices, num_shards, wire, **fixed)

    return Row(run)


def _host_cpu(shares, devices, *, num_shards, hosts, wire):
    """`pscpu`: reduces on the first host's CPU, shards on the hosts' CPUs in turn."""
    cpus = list(dict.fromkeys(hosts))

    def reduce_shard(shares, shard, num_shards):
        del num_shards
        return all_reduce.at_one(shares, devices, cpus[shard % len(cpus)], wire)

    if num_shards == 1:  # no flattening and splitting, which would copy
        return reduce_shard(shares, 0, 1)
    return all_reduce.sharded(reduce_shard, shares, devices, num_shards)


def _hierarchical(shares, devices, *, num_shards, hosts, wire):
    """Reduces to one tower of each host, then by a ring across the hosts."""
    groups = _towers_by_host(hosts)
    if len(groups) == 1 and len(shares) >= 4:
        towers, half = range(len(shares)), len(shares) // 2
        groups = [list(towers[:half]), list(towers[half:])]
    ring = functools.partial(all_reduce.ring, num_shards=num_shards, wire=wire)
    return _two_level(
        shares,
        devices,
        groups,
        intra_host=lambda s, d, towers: all_reduce.at_one(s, d, d[0], wire),
        inter_host=lambda s, d, towers: ring(s, d),
        wire=wire,
    )


# Name -> algorithm.  To add one, write a function and a row.
REDUCTIONS: dict[str, Row] = {
    "pscpu": Row(_host_cpu),
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
    """Names of the algorithms that run on a `Placement.device_kind`."""
    return [name for name, row in REDUCTIONS.items() if row.device in ("", kind)]


def parse(text: str) -> list[spec.Range]:
    """Parses an `--all_reduce_spec`.

    Raises:
      ValueError: the text is malformed; the message gives the position.
    """
    intra_host_only = [name for name, row in REDUCTIONS.items() if row.one_host]
    return spec.parse(text, REDUCTIONS, intra_host_only=intra_host_only)


def check(text: str, *, kind: str, hosts: Sequence[str]) -> None:
    """Refuses a spec that the towers' devices cannot run.

    Args:
      text: an `--all_reduce_spec`.
      kind: of the towers' devices, a `Placement.device_kind`.
      hosts: the CPU device beside each tower.

    Raises:
      ValueError: the spec is malformed, or names an algorithm that these devices
        cannot run.
    """
    for chosen in parse(text):
        for algorithm in (chosen.intra_host, chosen.inter_host or chosen.intra_host):
            row = REDUCTIONS[algorithm.name]
            if row.device not in ("", kind):
                own = kind.replace("gpu", "GPU").replace("cpu", "CPU")
                reason = (
                    f"{algorithm.name} runs on {row.device.upper()} devices only, and "
                    f"the towers are on {own} devices; choose from "
                    f"{', '.join(usable(kind))}"
                )
                raise spec.error(text, algorithm.start, reason)
        if REDUCTIONS[chosen.intra_host.name].one_host and not chosen.inter_host:
            if len(set(hosts)) > 1:
                name = chosen.intra_host.name
                reason = (
                    f"{name} works inside a host, and the towers are on "
                    f"{len(set(hosts))}; write {name}/xring"
                )
                raise spec.error(text, chosen.intra_host.start, reason)


def from_spec(text: str, hosts: Sequence[str], wire: Wire = WIDE) -> Reduce:
    """The reduction of float32 shares that an `--all_reduce_spec` describes.

    Args:
      text: in the grammar of `spec`.
      hosts: the CPU device beside each tower.
      wire: the dtype of shares and sums between devices.

    Raises:
      ValueError: the text is malformed; the message gives the position.
    """
    ranges = parse(text)

    def reduce(shares, destinations):
        num_bytes = shares[0].shape.num_elements() * shares[0].dtype.size
        chosen = next(r for r in ranges if r.limit is None or num_bytes <= r.limit)
        return _reduce_range(chosen, shares, destinations, hosts=hosts, wire=wire)

    return reduce


def _reduce_range(chosen: spec.Range, shares, devices, *, hosts, wire: Wire):
    """All-reduces as one range of a spec says, on one level or on two."""

    def on_towers(algorithm: spec.Algorithm):
        def run(shares, devices, towers):
            return REDUCTIONS[algorithm.name].run(
                shares,
                devices,
                num_shards=algorithm.shards,
                hosts=[hosts[k] for k in towers],
                wire=wire,
            )

        return run

    if chosen.inter_host is None:
        return on_towers(chosen.intra_host)(shares, devices, range(len(shares)))
    return _two_level(
        shares,
        devices,
        _towers_by_host(hosts),
        intra_host=on_towers(chosen.intra_host),
        inter_host=on_towers(chosen.inter_host),
        wire=wire,
    )


def _towers_by_host(hosts: Sequence[str]) -> list[list[int]]:
    """The indices of the towers of each host, hosts in order of their first tower."""
    groups: dict[str, list[int]] = {}
    for k, host in enumerate(hosts):
        groups.setdefault(host, []).append(k)
    return list(groups.values())


def _two_level(shares, devices, groups, *, intra_host, inter_host, wire: Wire):
    """Reduces inside each group, all-reduces across groups, broadcasts inside each.

    Only the first tower of a group talks to other groups, so that one tensor per group
    crosses the network in each direction of `inter_host`.

    Args:
      shares: [towers] tensors, each on its tower's device.
      devices: [towers].
      groups: indices of the towers of each host.
      intra_host, inter_host: (shares, devices, indices of the towers) -> their sum on
        each of these devices.
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
    for total, (root, *others) in zip(totals, groups):
        # Fetched by the root once, and from there by the group's other towers.
        with tf.device(devices[root]):
            copies[root] = tf.identity(total)
        for k in others:
            copies[k] = wire.copy(copies[root], devices[root], devices[k])
    return copies


def reduce_to_first(
    hosts: Sequence[str] = (), dtype: tf.DType | None = None
) -> ReduceAll:
    """Reduces every gradient to the first of its destinations, in tower order.

    Where hosts are apart, the shares of a host are summed on its CPU first, so that one
    tensor per host crosses the network.  Small tensors go several in one transfer.

    Args:
      hosts: the CPU device beside each tower.
      dtype: to which shares are cast before they leave their tower, and sums before
        they leave their host; None leaves shares as they are and sums in float32.

    Returns:
      a reduction of shares of any float dtype to float32 sums; what it returns for the
      other destinations is the same tensor.
    """
    groups = _towers_by_host(hosts)

    def reduce_all(shares, destinations):
        shares = [[_cast(share, dtype) for share in own] for own in shares]
        roots = [devices[0] for devices in destinations]
        many_tasks = len({task_of(device) for device in [*hosts, *roots]}) > 1
        if groups and (many_tasks or len(groups) > 1):
            by_host = []
            for group in groups:
                own_shares = [[own[k] for k in group] for own in shares]
                on_host = [hosts[group[0]]] * len(shares)
                host_sums = summed(own_shares, on_host, _sum)
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
    """The float32 sum on a device, where 16-bit shares are widened as they arrive."""
    wide = precision.widen(shares, [device])
    with tf.device(device):
        return addition.in_order(wide)


def in_float32(reduce_all: ReduceAll) -> ReduceAll:
    """A reduction that widens 16-bit shares on their own devices first."""

    def run(shares, destinations):
        wide = [precision.widen(s, d) for s, d in zip(shares, destinations)]
        return reduce_all(wide, destinations)

    return run


def each(reduce: Reduce) -> ReduceAll:
    """A reduction of all gradients that reduces them one by one."""

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
      hosts, dtype: as `reduce_to_first` and `sparse.mean` have them.
      reduce_all: reduces the dense gradients, of any float dtype; `reduce_to_first`
        when None.

    Returns:
      [variables][copies] gradients, float32; None for a variable that no tower uses,
      `IndexedSlices` with unique rows for one whose gradients are sparse.

    Raises:
      ValueError: a variable has a gradient in some towers only, or a dense one in some
        and a sparse one in others.
    """
    by_variable = list(zip(*tower_gradients, strict=True))
    _check_alike(by_variable, names)
    means: list[list[Gradient]] = []
    dense: list[int] = []  # indices of the variables with dense gradients
    for index, (shares, devices) in enumerate(zip(by_variable, destinations)):
        means.append([None] * len(devices))
        if isinstance(shares[0], tf.IndexedSlices):
            rows = sparse.mean(shares, devices[0], hosts=hosts, dtype=dtype)
            means[index] = [rows] * len(devices)
        elif shares[0] is not None:
            dense.append(index)
    dense_means = (reduce_all or reduce_to_first(hosts, dtype))(
        [by_variable[i] for i in dense], [destinations[i] for i in dense]
    )
    for index, copies in zip(dense, dense_means):
        means[index] = copies
    return means


def _check_alike(by_variable: Sequence[Sequence[Gradient]], names: Sequence[str]):
    """Refuses gradients that are missing or sparse in some of the towers only."""
    errors = []
    for index, shares in enumerate(by_variable):
        name = repr(names[index]) if names else f"variable {index}"
        kinds = [_kind(share) for share in shares]
        odd = [k for k, kind in enumerate(kinds) if kind != kinds[0]]
        if odd:
            errors.append(
                f"{name} has a {kinds[0]} gradient in tower 0 and a {kinds[odd[0]]} "
                f"one in tower {', '.join(map(str, odd))}"
            )
    if errors:
        raise ValueError(
            f"the towers' gradients differ in kind: {'; '.join(errors)}; all towers "
            "must compute the same"
        )


def _kind(gradient: Gradient) -> str:
    if gradient is None:
        return "missing"
    return "sparse" if isinstance(gradient, tf.IndexedSlices) else "dense"
