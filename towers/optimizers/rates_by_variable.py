"""A learning rate for each variable: the step's rate, times the variable's factor."""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import tensorflow as tf

from towers.layout import parts
from towers.layout.graph_names import checkpoint_name

v1 = tf.compat.v1

# The learning rate of a step, or a callable for it: called once in `apply_gradients`.
Rate: TypeAlias = tf.Tensor | float | Callable[[], tf.Tensor]

# Variable -> what its learning rate is multiplied by.
FactorOf: TypeAlias = Callable[[tf.Variable], float]


def model_name(variable: tf.Variable) -> str:
    """The name by which rules know a variable: of a part, that of the whole."""
    return parts.whole_name(checkpoint_name(variable))


def no_factor(variable: tf.Variable) -> float:
    """The learning rate as it is."""
    del variable
    return 1.0


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
