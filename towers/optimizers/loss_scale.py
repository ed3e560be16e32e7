"""Loss scaling: float16 gradients that neither vanish nor overflow.

The towers differentiate the loss times a factor, the loss scale, and the mean gradient
is first divided by it, in float32.  The factor is fixed, or adapted as in Micikevicius
et al. 2018, Mixed Precision Training: if a gradient is not finite, the step changes
nothing and the factor is halved; after `grow_every` steps with finite gradients it is
doubled.  The factor and the numbers of finite and skipped steps are in the checkpoint.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from flags.sections import ModelFlags
from towers.checkpoints.contents import CARRIED
from towers.compute.precision import compute_dtype
from towers.compute.tower import Gradient
from towers.gradients import sparse
from towers.layout import graph_names

v1 = tf.compat.v1

DEFAULT_SCALE = 128.0  # of tf_cnn_benchmarks

# Below this a smaller factor does not help, because activations overflow.
_SMALLEST = 1.0
_LARGEST = 2.0**126  # that can be doubled in float32


@dataclasses.dataclass(frozen=True)
class LossScaling:
    """How the loss is scaled.

    Attributes:
      initial: the factor at the start.
      grow_every: steps in a row with finite gradients after which the factor is
        doubled; 0 for a fixed factor.
    """

    initial: float = DEFAULT_SCALE
    grow_every: int = 0

    @classmethod
    def of(cls, flags: ModelFlags) -> "LossScaling | None":
        """That which settings ask for; None unless towers compute in float16."""
        if compute_dtype(flags) != tf.float16:
            return None
        every = flags.fp16_inc_loss_scale_every_n
        return cls(
            initial=flags.fp16_loss_scale or DEFAULT_SCALE,
            grow_every=every if flags.fp16_enable_auto_loss_scale else 0,
        )


class LossScale:
    """The loss scale in the current graph.

    Args:
      settings: initial value and growth.
      device: where it is kept.

    Attributes:
      value: float32 scalar, the factor of this step.
      skipped: int64 variable, steps that changed nothing; None with a fixed factor.
    """

    def __init__(self, settings: LossScaling, device: str):
        self._every = settings.grow_every
        self._device = device
        self.skipped: tf.Variable | None = None
        with tf.device(device):
            if not self._every:
                self.value = tf.constant(settings.initial)
                return
            self._factor = _variable("value", settings.initial)
            self._good = _variable("good_steps", 0)
            self.skipped = _variable("skipped", 0)
            self.value = self._factor.read_value()

    def unscale(self, gradients: Sequence[Sequence[Gradient]]) -> list[list[Gradient]]:
        """[copies][variables] gradients of the loss itself."""

        def divide(values: tf.Tensor) -> tf.Tensor:
            with tf.device(values.device):
                return values / self.value

        return [
            [sparse.map_values(gradient, divide) for gradient in copy]
            for copy in gradients
        ]

    def gate(self, gradients: Sequence[Sequence[Gradient]]) -> "FiniteGate | None":
        """A gate that is open if these are all finite; None with a fixed factor."""
        if not self._every:
            return None
        return FiniteGate(gradients, self._device)

    def follow(self, finite: tf.Tensor) -> list[tf.Operation]:
        """Adapts the factor after a step, by whether all gradients were finite."""
        assert self.skipped is not None
        with tf.device(self._device), tf.control_dependencies([self.value]):
            good = self._good.read_value() + 1
            twice = tf.minimum(2 * self.value, _LARGEST)
            grown = tf.where(good >= self._every, twice, self.value)
            shrunk = tf.maximum(self.value / 2, _SMALLEST)
            return [
                self._factor.assign(tf.where(finite, grown, shrunk), read_value=False),
                self._good.assign(
                    tf.where(finite, good % self._every, 0), read_value=False
                ),
                self.skipped.assign_add(
                    tf.cast(tf.logical_not(finite), tf.int64), read_value=False
                ),
            ]

    def after(self, step: tf.Operation) -> tuple[tf.Tensor, tf.Tensor] | None:
        """`skipped`, int64, and the factor, float32, after an operation.

        None with a fixed factor.
        """
        if self.skipped is None:
            return None
        with tf.device(self._device), tf.control_dependencies([step]):
            return self.skipped.read_value(), self._factor.read_value()


class FiniteGate:
    """Runs the changes of a step only if all gradients are finite.

    It is made of TensorFlow's `Switch` and `Merge`: a tensor that does not pass the
    gate is dead, and no operation runs that reads it or waits for it.  `tf.cond` would
    need the operations inside its branches.

    Args:
      gradients: [copies][variables], which are to be finite.
      device: of the gate.

    Attributes:
      open: bool scalar, whether all are finite.
    """

    def __init__(self, gradients: Sequence[Sequence[Gradient]], device: str):
        fine = []
        for gradient in (g for copy in gradients for g in copy if g is not None):
            values: Any = getattr(gradient, "values", gradient)
            with tf.device(values.device):
                fine.append(tf.reduce_all(tf.math.is_finite(values)))
        self._device = device
        with tf.device(device):
            self.open = tf.reduce_all(tf.convert_to_tensor(fine, tf.bool))

    def through(self, tensor: tf.Tensor) -> tf.Tensor:
        """The tensor; dead if the gate is closed."""
        with tf.device(tensor.device):
            passed = tf.raw_ops.Switch(data=tensor, pred=self.open).output_true
            return tf.identity(passed)  # a control input from a Switch is never dead

    def gradients(
        self, gradients: Sequence[Sequence[Gradient]]
    ) -> list[list[Gradient]]:
        """The [copies][variables] gradients; dead if the gate is closed."""
        return [
            [sparse.map_values(gradient, self.through) for gradient in copy]
            for copy in gradients
        ]

    def end(self, changes: Sequence[tf.Operation]) -> tf.Operation:
        """An operation that runs after the changes; at once if the gate is closed."""
        with tf.device(self._device):
            token = tf.raw_ops.Switch(data=self.open, pred=self.open)
            with tf.control_dependencies(changes):
                done = tf.identity(token.output_true)
            branches = [tf.identity(token.output_false), done]
            return tf.raw_ops.Merge(inputs=branches).output.op


def _variable(name: str, start: float) -> tf.Variable:
    dtype = tf.float32 if isinstance(start, float) else tf.int64
    with graph_names.variable_scope():
        return v1.get_variable(
            f"{CARRIED}loss_scale/{name}",
            [],
            dtype,
            v1.constant_initializer(start),
            trainable=False,
        )
