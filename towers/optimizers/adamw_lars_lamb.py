"""Optimizers that apply weight decay themselves: AdamW, LARS and LAMB.

Where weight decay is applied, and to which variables:

| optimizer                 | weight decay                            | variables    |
|---------------------------|-----------------------------------------|--------------|
| sgd momentum rmsprop adam | gradient += factor x value, by `Update` | the recipe's |
| adamw                     | value -= rate x factor x value          | the recipe's |
| lars lamb                 | + factor x value, times the trust ratio | the recipe's |
|                           |                                         | but vectors  |

In LARS and LAMB vectors have no trust ratio either, as is common practice: that of a
bias, which starts at 0, or of a batch norm's scale is noise.

Sparse gradients are made dense first, because moments and weight decay change every row
and norms are over all rows.  The norm of a partitioned variable is that of the whole:
the squares are summed on each part's device, and one scalar per part is sent.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import tensorflow as tf

from towers.compute import deterministic_sum
from towers.optimizers.copy_optimizer import Rate, RatesByVariable, model_name


class DecayPlace(NamedTuple):
    """Where weight decay is applied.

    Attributes:
      words: a description, printed at the start of a run.
      in_gradient: whether `optimizer.Update` adds it to the gradient; if not, the
        optimizer applies it.
      in_loss: whether it is the gradient of a penalty, which the total loss includes.
      vectors: whether variables of fewer than two dimensions are decayed.
    """

    words: str
    in_gradient: bool = False
    in_loss: bool = False
    vectors: bool = True


IN_GRADIENT = DecayPlace("at the update", in_gradient=True, in_loss=True)
DECOUPLED = DecayPlace("at the update, decoupled from the gradient")
IN_LARS = DecayPlace(
    "at the update, inside the trust ratio, not on vectors", in_loss=True, vectors=False
)
IN_LAMB = DecayPlace(
    "at the update, decoupled, inside the trust ratio, not on vectors", vectors=False
)


class WeightDecay(NamedTuple):
    """Weight decay: its factor, and which variables are decayed, by name."""

    factor: float = 0.0
    touches: Callable[[str], bool] = lambda name: True

    def of(self, variable: tf.Variable) -> float:
        """The factor for a variable: 0 if it is not decayed."""
        return self.factor if self.touches(model_name(variable)) else 0.0


_Pair = tuple[tf.Tensor, tf.Variable]  # (dense gradient, variable)


class _Optimizer(RatesByVariable):
    """Base class: makes sparse gradients dense; groups the parts of each variable."""

    def __init__(self, rate: Rate, decay: WeightDecay, name: str):
        super().__init__(use_locking=False, name=name)
        self.rate = rate
        self._decay = decay
        self._pairs: list[_Pair] = []

    def apply_gradients(
        self,
        grads_and_vars: Iterable[
            tuple[tf.Tensor | tf.IndexedSlices | None, tf.Variable]
        ],
        global_step: tf.Variable | None = None,
        name: str | None = None,
    ) -> tf.Operation:
        """The method of `tf.compat.v1.train.Optimizer`."""
        self._pairs = [
            (dense(gradient, variable), variable)
            for gradient, variable in grads_and_vars
            if gradient is not None
        ]
        return super().apply_gradients(self._pairs, global_step, name)

    def _adapting(self) -> Iterator[list[_Pair]]:
        """The pairs that share a trust ratio: one variable, or all parts of one."""
        wholes: dict[str, list[_Pair]] = {}
        for gradient, variable in self._pairs:
            if _adapts(variable):
                wholes.setdefault(model_name(variable), []).append((gradient, variable))
        yield from wholes.values()


def dense(gradient: tf.Tensor | tf.IndexedSlices, variable: tf.Variable) -> tf.Tensor:
    """The gradient as a dense tensor, on the variable's device."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    with tf.device(variable.device):
        return tf.math.unsorted_segment_sum(
            gradient.values, gradient.indices, variable.shape[0]
        )


class _Adam(_Optimizer):
    """Adam's two moments, and the powers of beta that correct them.

    Attributes:
      title: in the names of its slots.
    """

    title: str

    def __init__(
        self,
        rate: Rate,
        beta1: float,
        beta2: float,
        epsilon: float,
        *,
        decay: WeightDecay,
    ):
        super().__init__(rate, decay, self.title)
        self._betas = (beta1, beta2)
        self._epsilon = epsilon
        self._powers: list[tf.Variable] = []

    def _create_slots(self, var_list: Sequence[tf.Variable]) -> None:
        first = min(var_list, key=lambda variable: variable.name)
        self._powers = [
            self._create_non_slot_variable(beta, f"beta{k}_power", first)
            for k, beta in enumerate(self._betas, start=1)
        ]
        for variable in var_list:
            self._zeros_slot(variable, "m", self._name)
            self._zeros_slot(variable, "v", self._name)

    def _prepare(self) -> None:
        super()._prepare()
        self._power_tensors = []
        for power in self._powers:
            with tf.device(power.device):
                self._power_tensors.append(power.read_value())

    def _moments(self, variable: tf.Variable) -> tuple[tf.Variable, tf.Variable]:
        return self.get_slot(variable, "m"), self.get_slot(variable, "v")

    def _finish(
        self, update_ops: Sequence[tf.Operation], name_scope: str
    ) -> tf.Operation:
        after = []
        with tf.control_dependencies(update_ops):
            for power, now, beta in zip(self._powers, self._power_tensors, self._betas):
                with tf.device(power.device):
                    after.append(power.assign(now * beta, read_value=False))
        return tf.group(*update_ops, *after, name=name_scope)


class AdamW(_Adam):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2).

        m = beta1 m + (1 - beta1) g
        v = beta2 v + (1 - beta2) g^2
        value -= rate x (m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon)
                         + factor x value)

    The rate is the paper's schedule times its step size, as in PyTorch and Keras, so
    that weight decay follows the schedule.  Epsilon is the paper's; that of
    TensorFlow's `AdamOptimizer` corresponds to it times sqrt(1 - beta2^t).

    A gradient that is not much larger than epsilon is amplified with its rounding
    errors: the first step is nearly its sign times the rate.  With an epsilon of 1e-8,
    towers and one tower may then differ by more than the rounding of float32, as in
    `adam`; with 1e-6 they do not.
    """

    title = "AdamW"

    def _resource_apply_dense(
        self, grad: tf.Tensor, handle: tf.Variable
    ) -> tf.Operation:
        m, v = self._moments(handle)
        beta1_power, beta2_power = self._power_tensors
        decayed = []
        if factor := self._decay.of(handle):
            # After the gradient: before it, other clients may still read the value; and
            # a skipped step has no gradient.
            with tf.control_dependencies([grad]):
                shrink = self.rate_of(handle) * factor * handle.read_value()
                decayed = [handle.assign_sub(shrink, read_value=False)]
        # The update of Adam does not read the value, so it may come after the decay.
        with tf.control_dependencies(decayed):
            return tf.raw_ops.ResourceApplyAdam(
                var=handle.handle,
                m=m.handle,
                v=v.handle,
                beta1_power=beta1_power,
                beta2_power=beta2_power,
                lr=self.rate_of(handle),
                beta1=self._betas[0],
                beta2=self._betas[1],
                epsilon=self._epsilon * tf.sqrt(1.0 - beta2_power),
                grad=grad,
            )


class Lamb(_Adam):
    """LAMB (You et al. 2020, algorithm 2, with phi the identity).

        m = beta1 m + (1 - beta1) g
        v = beta2 v + (1 - beta2) g^2
        r = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon) + factor x value
        value -= rate x |value| / |r| x r

    The ratio |value| / |r| of 2-norms is one number per variable; 1 where either norm
    is 0, and for vectors.
    """

    title = "LAMB"

    def _prepare(self) -> None:
        super()._prepare()
        self._moved = {v.ref(): self._move(g, v) for g, v in self._pairs}
        self._ratios: dict[object, tf.Tensor] = {}
        for pairs in self._adapting():
            steps = [self._moved[variable.ref()].step for _, variable in pairs]
            with tf.device(pairs[0][1].device):
                ratio = _ratio(_norm(_values(pairs)), _norm(steps))
            self._ratios |= {variable.ref(): ratio for _, variable in pairs}

    def _move(self, gradient: tf.Tensor, variable: tf.Variable) -> "_Moved":
        m, v = self._moments(variable)
        with tf.device(variable.device):
            # As float32 tensors, so that 1 - beta and 1 - beta^t are rounded alike and
            # cancel at t = 1.
            beta1, beta2 = (tf.constant(beta, tf.float32) for beta in self._betas)
            new_m = beta1 * m.read_value() + (1.0 - beta1) * gradient
            new_v = beta2 * v.read_value() + (1.0 - beta2) * tf.square(gradient)
            beta1_power, beta2_power = self._power_tensors
            size = tf.sqrt(new_v / (1.0 - beta2_power)) + self._epsilon
            step = new_m / (1.0 - beta1_power) / size
            if _adapts(variable):
                step += self._decay.of(variable) * variable.read_value()
            return _Moved(new_m, new_v, step)

    def _resource_apply_dense(
        self, grad: tf.Tensor, handle: tf.Variable
    ) -> tf.Operation:
        m, v = self._moments(handle)
        moved = self._moved[handle.ref()]
        rate = self.rate_of(handle) * self._ratios.get(handle.ref(), 1.0)
        return tf.group(
            m.assign(moved.m, read_value=False),
            v.assign(moved.v, read_value=False),
            handle.assign_sub(rate * moved.step, read_value=False),
        )


class _Moved(NamedTuple):
    """A variable's updated moments, and the step in their direction."""

    m: tf.Tensor
    v: tf.Tensor
    step: tf.Tensor


class Lars(_Optimizer):
    """LARS (You et al. 2017, algorithm 1): momentum with a learning rate per layer.

        local = eeta x |value| / (|g| + factor x |value| + epsilon)
        slot = momentum x slot - rate x local x (g + factor x value)
        value += slot

    `local` is one number per variable, of 2-norms; 1 where |value| or |g| is 0, and for
    vectors.
    """

    def __init__(
        self,
        rate: Rate,
        momentum: float,
        *,
        eeta: float,
        epsilon: float,
        decay: WeightDecay,
    ):
        super().__init__(rate, decay, "LARS")
        self._momentum = momentum
        self._eeta = eeta
        self._epsilon = epsilon

    def _create_slots(self, var_list: Sequence[tf.Variable]) -> None:
        for variable in var_list:
            self._zeros_slot(variable, "momentum", self._name)

    def _prepare(self) -> None:
        super()._prepare()
        self._local: dict[object, tf.Tensor] = {}
        for pairs in self._adapting():
            factor = self._decay.of(pairs[0][1])
            with tf.device(pairs[0][1].device):
                size = _norm(_values(pairs))
                slope = _norm([gradient for gradient, _ in pairs])
                local = _ratio(
                    self._eeta * size,
                    slope + factor * size + self._epsilon,
                    unless_zero=(size, slope),
                )
            self._local |= {variable.ref(): local for _, variable in pairs}

    def _resource_apply_dense(
        self, grad: tf.Tensor, handle: tf.Variable
    ) -> tf.Operation:
        rate = self.rate_of(handle)
        if _adapts(handle):
            rate *= self._local[handle.ref()]
            grad += self._decay.of(handle) * handle.read_value()
        return tf.raw_ops.ResourceApplyKerasMomentum(
            var=handle.handle,
            accum=self.get_slot(handle, "momentum").handle,
            lr=rate,
            grad=grad,
            momentum=self._momentum,
        )


def _adapts(variable: tf.Variable) -> bool:
    """Whether LARS and LAMB give a variable a trust ratio, and decay."""
    return variable.shape.rank > 1


def _values(pairs: Sequence[_Pair]) -> list[tf.Tensor]:
    """The variables' values, each read on its device."""
    values = []
    for _, variable in pairs:
        with tf.device(variable.device):
            values.append(variable.read_value())
    return values


def _norm(pieces: Sequence[tf.Tensor]) -> tf.Tensor:
    """The 2-norm of a tensor that is given in parts."""
    squares = []
    for piece in pieces:
        with tf.device(piece.device):
            squares.append(tf.reduce_sum(tf.square(piece)))
    with tf.device(pieces[0].device):
        return tf.sqrt(deterministic_sum.sum_in_order(squares))


def _ratio(
    above: tf.Tensor, below: tf.Tensor, *, unless_zero: tuple[tf.Tensor, ...] = ()
) -> tf.Tensor:
    """above / below; 1 where one of the norms, these two by default, is 0."""
    norms = unless_zero or (above, below)
    defined = tf.logical_and(*(norm > 0 for norm in norms))
    return tf.where(defined, above / tf.where(defined, below, 1.0), 1.0)
