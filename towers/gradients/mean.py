"""The mean gradient of every variable, on every device that applies it.

The loss of each tower is its share of the mean loss (see `compute.tower`), so the mean
gradient of the joined batch is the sum of the towers' gradients.

    of_towers(tower_gradients, destinations, reduce_all=in_float32(each(reduce)))

handles gradients that are `None`, `IndexedSlices` or `Factors`.  `reduce_all` reduces
the dense ones: `reduce_to_first` for a single copy of the variables; `each` for a copy
on every device, one tensor at a time; or packs, see `transfer`.
"""

from collections.abc import Sequence

import tensorflow as tf

from towers.compute import deterministic_sum, sufficient_factors
from towers.compute.sufficient_factors import Factors
from towers.compute.tower import Gradient
from towers.gradients import sparse, transfer
from towers.gradients.reduction import Reduce, towers_by_host
from towers.gradients.transfer import (
    AllDevices,
    AllShares,
    ReduceAll,
    Sums,
    bring,
    summed,
)
from towers.layout.placement import task_of


def of_towers(
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
      tower_gradients: [towers][variables], shares as `tower.Tower` has them.
      destinations: [variables][copies] devices.
      names: of the variables, for errors.
      hosts, dtype: as in `reduce_to_first` and `sparse.mean`.
      reduce_all: reduces the dense gradients, of any float dtype; `reduce_to_first`
        when None.

    Returns:
      [variables][copies] gradients, float32; None for a variable that no tower uses,
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
    dense_means = (reduce_all or reduce_to_first(hosts, dtype))(
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
    wide = transfer.widen(shares, [device])
    with tf.device(device):
        return deterministic_sum.sum_in_order(wide)


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
