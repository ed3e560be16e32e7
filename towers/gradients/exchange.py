"""The settings of gradient exchange: reduction, packing, transfer dtype, staleness.

**Packs.**  On request, gradients are concatenated, reduced together and split again, by
any reduction.  With four gradients a b c d of which a and c are small,

    small_packs(...)   reduces  [a c]  b  d
    equal_packs(2)     reduces  [a b | b c d]: one vector, split into two halves

and returns the means of a, b, c, d.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import fields

import tensorflow as tf

from flags.problem import wrong_setting
from flags.variables import VariablesFlags
from towers.gradients import reduction
from towers.gradients.transfer import (
    AllDevices,
    AllShares,
    Reduce,
    ReduceAll,
    Sums,
    Wire,
    cut,
    join,
)
from towers.layout.placement import Placement


@dataclasses.dataclass(frozen=True)
class GradientExchange:
    """The settings that modes share; `VariableUpdate.reads` names those a mode uses.

    Attributes:
      all_reduce_spec: in the grammar of `spec`.
      gradient_repacking: 0, or the number of equal packs for all gradients.
      agg_small_grads_max_bytes: gradients up to this size are reduced in groups.
      agg_small_grads_max_group: most gradients in one group.
      sparse_to_dense_grads: sparse gradients are made dense on their tower.
      compact_gradient_transfer: dtype of gradients between devices, see `transfer`.
        None is the compute dtype if variables have a single copy, and float32 if they
        have replicas.
      max_staleness: largest number of updates by others between a tower's read of the
        variables and its own update; None for no bound.
      staleness_lr: whether an update's learning rate is divided by its staleness.
      variable_placement: how a variable's device is chosen among several, a row of
        `variable_store.VARIABLE_PLACEMENTS`.
      partition_bytes: variables larger than this are partitioned; 0 partitions none.
      sufficient_factors: if variables have a single copy, a gradient that is a product
        of two smaller matrices is sent as these, see `compute.sufficient_factors`.
    """

    all_reduce_spec: str = "pscpu"
    gradient_repacking: int = 0
    agg_small_grads_max_bytes: int = 0
    agg_small_grads_max_group: int = 10
    sparse_to_dense_grads: bool = False
    compact_gradient_transfer: tf.DType | None = None
    max_staleness: int | None = None
    staleness_lr: bool = False
    variable_placement: str = "least_loaded"
    partition_bytes: int = 0
    sufficient_factors: bool = True

    @classmethod
    def of(cls, flags: VariablesFlags, compute_dtype: tf.DType) -> "GradientExchange":
        """The settings that flags ask for.

        Args:
          flags: the section of the settings.
          compute_dtype: of the towers.
        """
        chosen = {field.name: getattr(flags, field.name) for field in fields(cls)}
        chosen["all_reduce_spec"] = flags.all_reduce_spec or cls.all_reduce_spec
        if name := flags.compact_gradient_transfer:
            names = {"true": compute_dtype, "false": "float32"}
            chosen["compact_gradient_transfer"] = tf.as_dtype(names.get(name, name))
        return cls(**chosen)

    def changed(self) -> list[str]:
        """Names of the settings that are not the defaults."""
        return [
            field.name
            for field in fields(self)
            if getattr(self, field.name) != field.default
        ]

    @property
    def wire(self) -> Wire:
        """The transfers of gradients between replicas."""
        return Wire(self.compact_gradient_transfer or tf.float32)

    def check_devices(self, where: Placement) -> None:
        """Refuses a reduction that the towers' devices cannot run.

        Raises:
          ValueError: they cannot, or the spec is malformed.
        """
        reduction.check(
            self.all_reduce_spec,
            kind=where.device_kind,
            hosts=where.hosts,
            wire=self.wire.dtype,
        )

    def check_effects(self, where: Placement) -> None:
        """Refuses settings that spread variables over a single parameter device.

        Raises:
          ValueError: there is only one; the message says how to get two.
        """
        remedy = "use a cluster with two ps tasks"
        if where.kind == "gpu" and not where.is_cluster:
            remedy = "write `local_parameter_device=gpu` with `num_gpus=2` or more"
        for name in ("variable_placement", "partition_bytes"):
            if name in self.changed() and len(where.parameters) < 2:
                raise wrong_setting(
                    name,
                    getattr(self, name),
                    "there are no two devices to spread variables over",
                    f"{remedy}, or leave it out",
                )

    def reduce_all(self, hosts: Sequence[str]) -> ReduceAll:
        """The reduction of all gradients that these settings describe."""
        reduce = reduction.from_spec(self.all_reduce_spec, hosts, self.wire)
        if self.gradient_repacking:
            reduce_all = equal_packs(self.gradient_repacking, reduce)
        elif self.agg_small_grads_max_bytes:
            reduce_all = small_packs(
                self.agg_small_grads_max_bytes, self.agg_small_grads_max_group, reduce
            )
        else:
            reduce_all = reduction.each(reduce)
        return reduction.in_float32(reduce_all)


DEFAULT = GradientExchange()


def equal_packs(num_packs: int, reduce: Reduce) -> ReduceAll:
    """`--gradient_repacking=N`: all gradients as one vector, cut into N equal packs.

    Args:
      num_packs: how many packs.
      reduce: of `reduction`, for each pack.

    Returns:
      a reduction of all gradients, as `reduction.mean_of_towers` takes it.
    """

    def reduce_all(shares: AllShares, destinations: AllDevices) -> Sums:
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


def small_packs(max_bytes: int, max_group: int, reduce: Reduce) -> ReduceAll:
    """`--agg_small_grads_max_bytes`: small gradients are reduced in groups.

    Args:
      max_bytes: a gradient up to this size is small.
      max_group: most gradients in one group.
      reduce: of `reduction`, for each group and each large gradient.
    """

    def reduce_all(shares: AllShares, destinations: AllDevices) -> Sums:
        means: Sums = [[]] * len(shares)
        for group in _groups(shares, max_bytes, max_group):
            devices = destinations[group[0]]
            members = [shares[index] for index in group]
            if len(group) == 1:
                group_means = [reduce(members[0], devices)]
            else:
                totals = reduce(_join(members, devices), devices)
                group_means = _cut(totals, members, devices)
            for index, copies in zip(group, group_means):
                means[index] = copies
        return means

    return reduce_all


def _groups(shares: AllShares, max_bytes: int, max_group: int) -> list[list[int]]:
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


def _join(shares: AllShares, devices: Sequence[str]) -> list[tf.Tensor]:
    """Concatenates [variables][towers] gradients to one vector per tower."""
    return [
        join([gradient[tower] for gradient in shares], device)
        for tower, device in enumerate(devices)
    ]


def _join_pieces(totals: AllShares, devices: Sequence[str]) -> list[tf.Tensor]:
    """Concatenates [packs][towers] to one vector per tower."""
    return [join(pieces, device) for pieces, device in zip(zip(*totals), devices)]


def _cut(
    vectors: Sequence[tf.Tensor], shares: AllShares, devices: Sequence[str]
) -> Sums:
    """Splits one vector per tower to [variables][towers], shaped as `shares`."""
    like = [gradient[0] for gradient in shares]
    by_tower = [cut(vector, like, device) for vector, device in zip(vectors, devices)]
    return [list(copies) for copies in zip(*by_tower)]
