"""`--check_replicas_every`: whether the replicas of every variable are still equal.

Replicas start equal and apply the same mean to the same values, so they and their
optimizer slots stay equal to the bit.  This check finds a memory fault, a reduction
that gives towers different sums, or an update that skips a replica long before the loss
shows it.
"""

from collections.abc import Mapping

import tensorflow as tf

from flags.problem import mention
from towers.callbacks.base import RunContext, TrainingError
from towers.callbacks.every import Every
from towers.graph import TrainGraph
from towers.layout import graph_names
from towers.variable_update.base import VariableUpdate

v1 = tf.compat.v1

# (tower, variable) -> bool scalar, whether its replica has the first one's bits.
Same = Mapping[tuple[int, str], tf.Tensor]


class ReplicaError(TrainingError):
    """A replica differs from the others."""


def same(mode: VariableUpdate) -> Same:
    """Adds comparisons of a mode's replicas to the graph, each on its replica's device.

    Bits are compared, not numbers: a NaN equals itself, and 0.0 is not -0.0.
    """
    comparisons = {}
    with v1.name_scope(f"{graph_names.CHECKPOINT}replicas/"):
        for name, (first, *copies) in mode.replicas.items():
            with tf.device(first.device):
                wanted = _bytes(first)
            for tower, other in enumerate(copies, start=1):
                with tf.device(other.device):
                    equal = tf.equal(_bytes(other), wanted)
                    comparisons[tower, name] = tf.reduce_all(equal)
    return comparisons


def _bytes(variable: tf.Variable) -> tf.Tensor:
    """The value's bits, in a dtype that GPUs can compare."""
    return tf.bitcast(variable.read_value(), tf.uint8)


class CheckReplicas(Every):
    """Stops the run when replicas differ.

    Args:
      train: the graph.
      compared: the result of `same` for its mode.
      steps: between two checks.
    """

    def __init__(self, train: TrainGraph, compared: Same, *, steps: int):
        super().__init__(train, steps=steps)
        self._compared = dict(compared)
        self._mode = train.options.variable_update

    def act(self, run_context: RunContext, step: int) -> None:
        """Raises ReplicaError."""
        results = run_context.session.run(self._compared)
        differ = [where for where, equal in results.items() if not equal]
        if differ:
            tower, name = differ[0]
            more = f"; so do {len(differ) - 1} more" if differ[1:] else ""
            raise ReplicaError(
                f"after step {step}, the replica of {name} in tower {tower} differs "
                f"from that in tower 0{more}: a fault of the tower's device, or of "
                f"{mention('variable_update', self._mode)}"
            )
