"""The mean gradient of every variable, on every device that wants it.

Each tower differentiates its share of the mean loss (see `tower`), so the mean gradient
of the joined batch is the plain sum of the towers' gradients: no algorithm divides.

    mean_of_towers(tower_gradients, destinations, reduce_all=in_float32(each(reduce)))

handles `None`, `IndexedSlices` and `Factors` once, for all ways to reduce the dense
gradients: `transfer.reduce_to_first` to a single copy of the variables, `each` to one
on every device, by a reduction of one tensor at a time,

    reduce = from_spec("pscpu:32k:xring", hosts)
    reduce(shares, destinations) -> one tensor per destination

with `shares[k]` the gradient from tower k, on its device.

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

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from towers.compute import sufficient_factors
from towers.compute.sufficient_factors import Factors
from towers.compute.tower import Gradient
from towers.gradients import all_reduce, collective, sparse, spec, transfer
from towers.gradients.transfer import (
    WIDE,
    AllDevices,
    AllShares,
    Reduce,
    ReduceAll,
    Sums,
    Wire,
    towers_by_host,
)

Shares = Sequence[tf.Tensor]  # of one variable's gradient, one per tower
Devices = Sequence[str]


class AllReduceRow(NamedTuple):
    """An all-reduce algorithm and its requirements.

    Attributes:
      run: (shares, devices, num_shards=, hosts=, wire=) -> the sum on each device; the
        shares are float32.
      device: the `Placement.device_kind` that it needs; "" for any.
      one_host: whether all its devices must be on one host.
      gpu_wires: the dtypes in which gradients can travel between GPUs.
    """

    run: Callable[..., list[tf.Tensor]]
    device: str = ""
    one_host: bool = False
    gpu_wires: tuple[tf.DType, ...] = (tf.float32, tf.bfloat16, tf.float16)

    def carries(self, dtype: tf.DType, kind: str) -> bool:
        """Whether gradients can travel in a dtype on a `Placement.device_kind`."""
        return kind == "cpu" or dtype in self.gpu_wires


def _dataflow(algorithm: Callable[..., list[tf.Tensor]], **fixed: str) -> AllReduceRow:
    """A row for an algorithm that does not depend on the hosts."""

    def run(
        shares: Shares, devices: Devices, *, num_shards: int, hosts: Devices, wire: Wire
    ) -> list[tf.Tensor]:
        del hosts
        return algorithm(shares, devices, num_shards, wire, **fixed)

    return AllReduceRow(run)


def _host_cpu(
    shares: Shares, devices: Devices, *, num_shards: int, hosts: Devices, wire: Wire
) -> list[tf.Tensor]:
    """`pscpu`: reduces on the first host's CPU, shards on the hosts' CPUs in turn."""
    cpus = list(dict.fromkeys(hosts))

    def reduce_shard(shares: Shares, shard: int, num_shards: int) -> list[tf.Tensor]:
        del num_shards
        return transfer.at_one(shares, devices, cpus[shard % len(cpus)], wire)

    if num_shards == 1:  # no flattening and splitting, which would copy
        return reduce_shard(shares, 0, 1)
    return all_reduce.sharded(reduce_shard, shares, devices, num_shards)


# TensorFlow's collectives add in the dtype that they send; on GPUs not in bfloat16.
_ADDED_ON_THE_WAY = (tf.float32, tf.float16)

# Name -> algorithm.  To add one, write a function and a row.
REDUCTIONS: dict[str, AllReduceRow] = {
    "pscpu": AllReduceRow(_host_cpu),
    "psgpu": _dataflow(all_reduce.to_one),
    "tree": _dataflow(all_reduce.tree),
    "xring": _dataflow(all_reduce.ring),
    "rechd": _dataflow(all_reduce.halving_doubling),
    "hierarchical": AllReduceRow(all_reduce.hierarchical),
    "nccl": _dataflow(collective.collective_reduce, hint="nccl")._replace(
        device="gpu", one_host=True, gpu_wires=_ADDED_ON_THE_WAY
    ),
    "collective": _dataflow(collective.collective_reduce, hint="auto")._replace(
        one_host=True, gpu_wires=_ADDED_ON_THE_WAY
    ),
}


def usable(kind: str, wire: tf.DType = tf.float32) -> list[str]:
    """Names of the algorithms that run on a `Placement.device_kind`, with gradients
    that travel in a dtype."""
    return [
        name
        for name, row in REDUCTIONS.items()
        if row.device in ("", kind) and row.carries(wire, kind)
    ]


def carries(text: str, wire: tf.DType, kind: str) -> bool:
    """Whether all algorithms of an `--all_reduce_spec` carry gradients in a dtype on a
    `Placement.device_kind`."""
    algorithms = [a for r in parse(text) for a in (r.intra_host, r.inter_host) if a]
    return all(REDUCTIONS[a.name].carries(wire, kind) for a in algorithms)


def parse(text: str) -> list[spec.SpecRange]:
    """Parses an `--all_reduce_spec`.

    Raises:
      ValueError: the text is malformed; the message gives the position.
    """
    intra_host_only = [name for name, row in REDUCTIONS.items() if row.one_host]
    return spec.parse(text, REDUCTIONS, intra_host_only=intra_host_only)


def check(
    text: str, *, kind: str, hosts: Sequence[str], wire: tf.DType = tf.float32
) -> None:
    """Refuses a spec that the towers' devices cannot run.

    Args:
      text: an `--all_reduce_spec`.
      kind: of the towers' devices, a `Placement.device_kind`.
      hosts: the CPU device beside each tower.
      wire: the dtype in which gradients travel.

    Raises:
      ValueError: the spec is malformed, or names an algorithm that these devices
        cannot run, or not in this dtype.
    """
    for chosen in parse(text):
        for algorithm in (chosen.intra_host, chosen.inter_host or chosen.intra_host):
            row = REDUCTIONS[algorithm.name]
            if row.device not in ("", kind):
                kind_name = kind.replace("gpu", "GPU").replace("cpu", "CPU")
                reason = (
                    f"{algorithm.name} runs on {row.device.upper()} devices only, and "
                    f"the towers are on {kind_name} devices; choose from "
                    f"{', '.join(usable(kind))}"
                )
                raise spec.error(text, algorithm.start, reason)
            if not row.carries(wire, kind):
                able = [d.name for d in row.gpu_wires if d != tf.float32]
                reason = (
                    f"{algorithm.name} cannot add {wire.name} on GPUs; write "
                    f"`compact_gradient_transfer={' or '.join(able)}`, or choose from "
                    f"{', '.join(usable(kind, wire))}"
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

    def reduce(shares: Shares, destinations: Devices) -> list[tf.Tensor]:
        num_bytes = shares[0].shape.num_elements() * shares[0].dtype.size
        chosen = next(r for r in ranges if r.limit is None or num_bytes <= r.limit)
        return _reduce_range(chosen, shares, destinations, hosts=hosts, wire=wire)

    return reduce


def _reduce_range(
    chosen: spec.SpecRange,
    shares: Shares,
    devices: Devices,
    *,
    hosts: Devices,
    wire: Wire,
) -> list[tf.Tensor]:
    """All-reduces as one range of a spec says, on one level or on two."""

    def on_towers(algorithm: spec.SpecAlgorithm) -> all_reduce.ReduceOf:
        def run(
            shares: Shares, devices: Devices, towers: Sequence[int]
        ) -> list[tf.Tensor]:
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
    return all_reduce.two_level(
        shares,
        devices,
        towers_by_host(hosts),
        intra_host=on_towers(chosen.intra_host),
        inter_host=on_towers(chosen.inter_host),
        wire=wire,
    )


def mean_of_towers(
    tower_gradients: Sequence[Sequence[Gradient]],
    destinations: Sequence[Sequence[str]],
    *,
    names: Sequence[str] = (),
    hosts: Sequence[str] = (),
    dtype: tf.DType | None = None,
    reduce_all: ReduceAll | None = None,
) -> list[list[Gradient]]:
    """The mean gradient of every variable, on every device that applies it.

    Args:
      tower_gradients: `[towers][variables]`, shares as `tower.Tower` has them.
      destinations: `[variables][copies]` devices.
      names: of the variables, for errors.
      hosts, dtype: as in `reduce_to_first` and `sparse.mean`.
      reduce_all: reduces the dense gradients, of any float dtype;
        `transfer.reduce_to_first` when None.

    Returns:
      `[variables][copies]` gradients, float32; None for a variable that no tower uses,
      `IndexedSlices` with unique rows for a variable whose gradients are sparse.

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
        elif isinstance(shares[0], Factors):
            product = sufficient_factors.summed(shares, devices[0], hosts)
            means[index] = [product] * len(devices)
        elif shares[0] is not None:
            dense.append(index)
    dense_means = (reduce_all or transfer.reduce_to_first(hosts, dtype))(
        [by_variable[i] for i in dense], [destinations[i] for i in dense]
    )
    for index, copies in zip(dense, dense_means):
        means[index] = copies
    return means


def _check_alike(
    by_variable: Sequence[Sequence[Gradient]], names: Sequence[str]
) -> None:
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
    if isinstance(gradient, Factors):
        return "factored"
    return "sparse" if isinstance(gradient, tf.IndexedSlices) else "dense"


def in_float32(reduce_all: ReduceAll) -> ReduceAll:
    """A reduction that first casts shares to float32 on their own devices."""

    def run(shares: AllShares, destinations: AllDevices) -> Sums:
        wide = [transfer.widen(s, d) for s, d in zip(shares, destinations)]
        return reduce_all(wide, destinations)

    return run


def each(reduce: Reduce) -> ReduceAll:
    """A reduction of all gradients that reduces them one by one."""

    def reduce_all(shares: AllShares, destinations: AllDevices) -> Sums:
        return [reduce(s, d) for s, d in zip(shares, destinations)]

    return reduce_all
