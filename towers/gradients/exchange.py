"""How the towers' gradients meet the variables, where a mode leaves a choice."""

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from towers.compute.tower import Gradient, Tower
from towers.gradients import packing, reduction, sparse
from towers.gradients.transfer import Wire
from towers.layout.placement import Placement


@dataclasses.dataclass(frozen=True)
class Exchange:
    """The settings of the modes; each mode says which of them it reads.

    Attributes:
      all_reduce_spec: in the grammar of `spec`.
      gradient_repacking: 0, or the number of equal packs for all gradients.
      small_bytes: gradients up to this size are reduced in groups.
      small_group: most gradients in one group.
      sparse_to_dense: sparse gradients become dense ones on their tower.
      transfer: dtype in which gradients travel, see `transfer`; None for that of the
        tower's compute on the way to one copy, and for float32 between replicas.
      max_staleness: None, or the most updates that others may apply between a tower's
        reading and its writing.
      staleness_lr: whether an update's learning rate is divided by its staleness.
      variable_placement: where a variable goes if there are several devices for it, a
        row of `variables.VARIABLE_PLACEMENTS`.
      partition_bytes: 0, or the size beyond which a variable is cut into parts.
    """

    all_reduce_spec: str = "pscpu"
    gradient_repacking: int = 0
    small_bytes: int = 0
    small_group: int = 10
    sparse_to_dense: bool = False
    transfer: tf.DType | None = None
    max_staleness: int | None = None
    staleness_lr: bool = False
    variable_placement: str = "least_loaded"
    partition_bytes: int = 0

    def changed(self) -> list[str]:
        """Names of the settings that are not the defaults."""
        return [
            field.name
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        ]

    def check_devices(self, where: Placement) -> None:
        """Refuses to spread variables where there are no two devices for them.

        Raises:
          ValueError: the sentence says what offers two.
        """
        remedy = "use a cluster with two ps tasks"
        if where.kind == "gpu" and not where.is_cluster:
            remedy = "write --local_parameter_device=gpu with --num_gpus=2 or more"
        for name in ("variable_placement", "partition_bytes"):
            if name in self.changed() and len(where.parameters) < 2:
                raise ValueError(
                    f"--{name}={getattr(self, name)}: there are no two devices to "
                    f"spread variables over; {remedy}, or leave it out"
                )

    def gradients(self, towers: Sequence[Tower]) -> list[list[Gradient]]:
        """The towers' gradients, [towers][variables], as they are to be reduced.

        Raises:
          ValueError: sparse ones are to become dense, and there are none.
        """
        found = [tower.gradients for tower in towers]
        if not self.sparse_to_dense:
            return found
        if not any(isinstance(gradient, tf.IndexedSlices) for gradient in found[0]):
            raise ValueError(
                "--sparse_to_dense_grads: no gradient of this model is sparse; leave "
                "it out"
            )
        return [sparse.densify(gradients) for gradients in found]

    def reduce_all(self, hosts: Sequence[str]) -> reduction.ReduceAll:
        """The reduction of all gradients that these settings describe."""
        wire = Wire(self.transfer or tf.float32)
        reduce = reduction.from_spec(self.all_reduce_spec, hosts, wire)
        if self.gradient_repacking:
            reduce_all = packing.equal(self.gradient_repacking, reduce)
        elif self.small_bytes:
            reduce_all = packing.small(self.small_bytes, self.small_group, reduce)
        else:
            reduce_all = reduction.each(reduce)
        return reduction.in_float32(reduce_all)


DEFAULT = Exchange()
