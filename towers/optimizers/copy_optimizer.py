"""The optimizer of one copy of the variables.

It adds weight decay to the gradients, clips them, and applies them with a learning rate
for each variable: the step's rate, times the variable's factor.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from towers.layout import graph_names, parts

v1 = tf.compat.v1

MeanGradient: TypeAlias = tf.Tensor | tf.IndexedSlices | None

# The learning rate of a step, or a callable for it: called once in `apply_gradients`.
Rate: TypeAlias = tf.Tensor | float | Callable[[], tf.Tensor]

# Variable -> what its learning rate is multiplied by.
FactorOf: TypeAlias = Callable[[tf.Variable], float]


def model_name(variable: tf.Variable) -> str:
    """The name by which rules know a variable: of a part, that of the whole."""
    return parts.whole_name(graph_names.checkpoint_name(variable))


def no_factor(variable: tf.Variable) -> float:
    """The learning rate as it is."""
    del variable
    return 1.0


@dataclasses.dataclass(frozen=True)
class GradientRules:
    """What is done to mean gradients before an optimizer applies them.

    Attributes:
      weight_decay: the factor of weight decay; 0 where the optimizer has it.
      decays: name of a variable -> whether its gradient gets weight decay.
      clip_value: bound on the size of each element of a gradient; None for no bound.
      clip_norm: bound on the global norm of all gradients; None for no bound.
      factor: what gradients are multiplied by after weight decay and before clipping.
    """

    weight_decay: float
    decays: Callable[[str], bool]
    clip_value: float | None
    clip_norm: float | None
    factor: float = 1.0

    def decay(
        self, gradients: Sequence[MeanGradient], variables: Sequence[tf.Variable]
    ) -> list[MeanGradient]:
        """Adds weight decay to the gradients, on their variables' devices."""
        if not self.weight_decay:
            return list(gradients)
        with tf.name_scope("weight_decay"):
            return [
                self._decayed(gradient, variable)
                for gradient, variable in zip(gradients, variables)
            ]

    def _decayed(self, gradient: MeanGradient, variable: tf.Variable) -> MeanGradient:
        name = model_name(variable)
        if gradient is None or not self.decays(name):
            return gradient
        with tf.device(variable.device):
            gradient = tf.convert_to_tensor(gradient)
            # Otherwise the product could be computed early and take memory all step.
            with tf.control_dependencies([gradient]):
                return gradient + self.weight_decay * variable

    def scale(self, gradients: Sequence[MeanGradient]) -> list[MeanGradient]:
        """Multiplies the gradients by the factor, each on its device."""
        if self.factor == 1.0:
            return list(gradients)
        return [_map_values(g, lambda values: values * self.factor) for g in gradients]

    def clip(self, gradients: Sequence[MeanGradient]) -> list[MeanGradient]:
        """Clips the mean gradients, weight decay included: by value, then by norm.

        Args:
          gradients: one per variable: tensor, `IndexedSlices` or None.

        Returns:
          the clipped gradients.  By norm, all are scaled by one factor, so that their
          global norm (Pascanu et al. 2013) is at most `clip_norm`.
        """
        if self.clip_value is not None:
            low, high = -self.clip_value, self.clip_value
            gradients = [
                _map_values(g, lambda values: tf.clip_by_value(values, low, high))
                for g in gradients
            ]
        if self.clip_norm is None:
            return list(gradients)
        norm = tf.linalg.global_norm([g for g in gradients if g is not None])
        scale = self.clip_norm / tf.maximum(norm, self.clip_norm)
        return [_map_values(g, lambda values: values * scale) for g in gradients]


def _map_values(
    gradient: MeanGradient, change: Callable[[tf.Tensor], tf.Tensor]
) -> MeanGradient:
    """The gradient with a function applied to its values, on their device."""
    if gradient is None:
        return None
    if isinstance(gradient, tf.IndexedSlices):
        values = _map_values(gradient.values, change)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    with tf.device(gradient.device):
        return change(gradient)


class RatesByVariable(v1.train.Optimizer):
    """Base class of optimizers that multiply the learning rate by variable.

    The products are computed once per factor, in float32, beside the rate.  A factor of
    1 adds no operation.

    Attributes:
      rate: of the step.
      factor_of: variable -> factor.
    """

    rate: Rate = 0.0
    factor_of: FactorOf = staticmethod(no_factor)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, tf.Variable]],
        global_step: tf.Variable | None = None,
        name: str | None = None,
    ) -> tf.Operation:
        """As `tf.compat.v1.train.Optimizer` has it."""
        pairs = list(grads_and_vars)
        rate = tf.convert_to_tensor(
            self.rate() if callable(self.rate) else self.rate, tf.float32
        )
        factors = {self.factor_of(variable) for gradient, variable in pairs}
        self._rates = {factor: rate * factor for factor in sorted(factors - {1.0})}
        self._rates[1.0] = rate
        return super().apply_gradients(pairs, global_step, name)

    def rate_of(self, variable: tf.Variable) -> tf.Tensor:
        """The variable's learning rate in this step, float32 scalar."""
        return self._rates[self.factor_of(variable)]


class RatesOfTensorFlow(RatesByVariable):
    """Base class, too, of TensorFlow's optimizers, which know one rate at a time.

    They are given `current_rate` as their rate.
    """

    _factor = 1.0

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, tf.Variable]],
        global_step: tf.Variable | None = None,
        name: str | None = None,
    ) -> tf.Operation:
        """As `tf.compat.v1.train.Optimizer` has it."""
        self._factor = 1.0
        return super().apply_gradients(grads_and_vars, global_step, name)

    def current_rate(self) -> tf.Tensor:
        """The learning rate of the variable that is being updated."""
        return self._rates[self._factor]

    def _resource_apply_dense(
        self, grad: tf.Tensor, handle: tf.Variable
    ) -> tf.Operation:
        self._turn_to(handle)
        return super()._resource_apply_dense(grad, handle)

    def _resource_apply_sparse_duplicate_indices(
        self, grad: tf.Tensor, handle: tf.Variable, indices: tf.Tensor
    ) -> tf.Operation:
        self._turn_to(handle)
        return super()._resource_apply_sparse_duplicate_indices(grad, handle, indices)

    def _turn_to(self, variable: tf.Variable) -> None:
        """Has TensorFlow's optimizer ask for the rate again, if it is another."""
        if self._factor != self.factor_of(variable):
            self._factor = self.factor_of(variable)
            self._prepare()


class CopyOptimizer:
    """Updates one copy of the variables; all its updates share the slots."""

    def __init__(self) -> None:
        self._optimizer: RatesByVariable | None = None
        self._rate: tf.Tensor | None = None

    def apply(
        self,
        rules: GradientRules,
        make: Callable[[Rate], RatesByVariable],
        gradients: Sequence[MeanGradient],
        variables: Sequence[tf.Variable],
        *,
        rate: tf.Tensor,
        reads: Sequence[tf.Tensor] = (),
    ) -> tf.Operation:
        """Applies weight decay, factor, clipping and optimizer.

        Args:
          rules: weight decay, factor and clipping.
          make: learning rate -> the optimizer.
          gradients: one per variable: tensor, `IndexedSlices` or None.
          variables: that are updated.
          rate: float32 scalar, the learning rate.
          reads: of the variables' values in the same step.

        Raises:
          ValueError: all gradients are None.
        """
        devices = {variable.device for variable in variables}
        # Scalars for all variables are on their common device, or on that of the rate.
        # Tensors as large as a variable have their device set where they are made.
        with tf.device(devices.pop() if len(devices) == 1 else rate.device):
            gradients = rules.scale(rules.decay(gradients, variables))
            gradients = rules.clip(gradients)
            pairs = [
                p for p in zip(gradients, variables, strict=True) if p[0] is not None
            ]
            if not pairs:
                raise ValueError(
                    "no variable gets a gradient from the loss: nothing could be "
                    "trained"
                )
            self._rate = rate
            if self._optimizer is None:
                self._optimizer = make(lambda: self._rate)
            # A gradient may not depend on its variable's value; still the variable must
            # not be updated before every tower has read it.
            with tf.control_dependencies([tf.group(*reads)]):
                with v1.name_scope(self._optimizer.get_name()) as scope:
                    pass
                # Adam names its powers of beta by the current scope, and slots by
                # variables.
                with v1.name_scope(graph_names.VARIABLES):
                    return self._optimizer.apply_gradients(pairs, name=scope)
