"""The settings of gradient exchange: reduction, packing, transfer dtype, staleness."""

import dataclasses
from collections.abc import Sequence
from dataclasses import fields

import tensorflow as tf

from flags.problem import wrong_setting
from flags.variables import VariablesFlags
from towers.gradients import mean, reduction, transfer
from towers.gradients.transfer import ReduceAll, Wire
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
            reduce_all = transfer.equal_packs(self.gradient_repacking, reduce)
        elif self.agg_small_grads_max_bytes:
            reduce_all = transfer.small_packs(
                self.agg_small_grads_max_bytes, self.agg_small_grads_max_group, reduce
            )
        else:
            reduce_all = mean.each(reduce)
        return mean.in_float32(reduce_all)


DEFAULT = GradientExchange()
