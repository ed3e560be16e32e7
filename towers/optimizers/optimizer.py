"""Optimizers by name, and how an update is chosen: optimizer, decay, clipping."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from flags.problem import wrong_setting
from towers.errors.explain import first_few
from towers.layout import parts
from towers.optimizers import adamw_lars_lamb, sparse_updates
from towers.optimizers.adamw_lars_lamb import DecayPlace, WeightDecay
from towers.optimizers.copy_optimizer import (
    GradientRules,
    Rate,
    RatesByVariable,
    model_name,
)
from towers.optimizers.learning_rate import AdjustableRate, ScaledRate


@dataclasses.dataclass(frozen=True)
class Hyperparameters:
    """The optimizers' hyperparameters; each has a flag of the same name.

    Attributes:
      decay: the weight decay, for the optimizers that apply it themselves; `Update`
        fills it in.
    """

    momentum: float = 0.9
    nesterov: bool = True
    rmsprop_decay: float = 0.9
    rmsprop_momentum: float = 0.9
    rmsprop_epsilon: float = 1.0
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    adam_epsilon: float = 1e-8
    lamb_epsilon: float = 1e-6
    lars_eeta: float = 0.001
    lars_epsilon: float = 0.0
    decay: WeightDecay = WeightDecay()  # noqa: RUF009 - frozen


def sgd(rate: Rate, settings: Hyperparameters) -> RatesByVariable:
    """value -= rate x gradient."""
    del settings
    return sparse_updates.GradientDescent(rate)


def momentum(rate: Rate, settings: Hyperparameters) -> RatesByVariable:
    """TensorFlow's momentum, with Nesterov's by default.

    slot = momentum x slot + gradient; value -= rate x slot, or with Nesterov
    value -= rate x (gradient + momentum x slot) (Sutskever et al. 2013), which is what
    tf_cnn_benchmarks means by momentum.
    """
    return sparse_updates.Momentum(rate, settings.momentum, nesterov=settings.nesterov)


def rmsprop(rate: Rate, settings: Hyperparameters) -> RatesByVariable:
    """RMSProp with momentum (Hinton, lecture 6e)."""
    return sparse_updates.RmsProp(
        rate,
        settings.rmsprop_decay,
        momentum=settings.rmsprop_momentum,
        epsilon=settings.rmsprop_epsilon,
    )


def adam(rate: Rate, settings: Hyperparameters) -> RatesByVariable:
    """Adam (Kingma & Ba 2015)."""
    return sparse_updates.Adam(
        rate, settings.adam_beta1, settings.adam_beta2, settings.adam_epsilon
    )


def adamw(rate: Rate, settings: Hyperparameters) -> RatesByVariable:
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019)."""
    return adamw_lars_lamb.AdamW(
        rate,
        settings.adam_beta1,
        settings.adam_beta2,
        settings.adam_epsilon,
        decay=settings.decay,
    )


def lars(rate: Rate, settings: Hyperparameters) -> RatesByVariable:
    """Layer-wise adaptive rate scaling (You et al. 2017), with plain momentum."""
    return adamw_lars_lamb.Lars(
        rate,
        settings.momentum,
        eeta=settings.lars_eeta,
        epsilon=settings.lars_epsilon,
        decay=settings.decay,
    )


def lamb(rate: Rate, settings: Hyperparameters) -> RatesByVariable:
    """Layer-wise adaptive moments (You et al. 2020)."""
    return adamw_lars_lamb.Lamb(
        rate,
        settings.adam_beta1,
        settings.adam_beta2,
        settings.lamb_epsilon,
        decay=settings.decay,
    )


class OptimizerRow(NamedTuple):
    """An optimizer.

    Attributes:
      make: (rate, settings) -> optimizer.  The rate is a float32 scalar, or a callable
        without arguments that returns one and is called by each `apply_gradients`.
      reads: the settings that it reads; others have no effect.
      decay: where weight decay is applied.
    """

    make: Callable[[Rate, Hyperparameters], RatesByVariable]
    reads: tuple[str, ...]
    decay: DecayPlace = adamw_lars_lamb.IN_GRADIENT


_ADAM = ("adam_beta1", "adam_beta2", "adam_epsilon")

# name -> optimizer.  A new one is one function and one row.
OPTIMIZERS: dict[str, OptimizerRow] = {
    "sgd": OptimizerRow(sgd, ()),
    "momentum": OptimizerRow(momentum, ("momentum", "nesterov")),
    "rmsprop": OptimizerRow(
        rmsprop, ("rmsprop_decay", "rmsprop_momentum", "rmsprop_epsilon")
    ),
    "adam": OptimizerRow(adam, _ADAM),
    "adamw": OptimizerRow(adamw, _ADAM, adamw_lars_lamb.DECOUPLED),
    "lars": OptimizerRow(
        lars, ("momentum", "lars_eeta", "lars_epsilon"), adamw_lars_lamb.IN_LARS
    ),
    "lamb": OptimizerRow(
        lamb, ("adam_beta1", "adam_beta2", "lamb_epsilon"), adamw_lars_lamb.IN_LAMB
    ),
}


@dataclasses.dataclass(frozen=True)
class Update:
    """How a gradient updates a variable: weight decay, clipping, optimizer, averages.

    Attributes:
      optimizer: a row of `OPTIMIZERS`.
      settings: its hyperparameters.
      learning_rate: epoch (float32 scalar) -> rate (float32 scalar).
      weight_decay: the factor of weight decay; see the table of `adamw_lars_lamb`.
      decayed: model's name of a variable -> whether it is decayed.
      learning_rate_factors: regular expression -> what the learning rate of a variable
        is multiplied by; the first that matches in the model's name counts.
      ema_decay: decay of the moving averages of trainable variables; 0 keeps none.
      clip_value: bound on the size of each element of a gradient; None for no bound.
      clip_norm: bound on the global norm of all gradients; None for no bound.
      gradient_factor: what gradients are multiplied by before they are clipped.
      prefix: of the variables' names in the graph, which the model's lack.
    """

    optimizer: str
    learning_rate: Callable[[tf.Tensor], tf.Tensor]
    settings: Hyperparameters = Hyperparameters()
    weight_decay: float = 0.0
    decayed: Callable[[str], bool] = lambda name: True
    learning_rate_factors: Mapping[str, float] = dataclasses.field(
        default_factory=dict, hash=False
    )
    ema_decay: float = 0.0
    clip_value: float | None = None
    clip_norm: float | None = None
    gradient_factor: float = 1.0
    prefix: str = ""

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(
                f"Update.optimizer is {self.optimizer!r}, and must be one of "
                f"{', '.join(OPTIMIZERS)}"
            )

    @property
    def place(self) -> DecayPlace:
        """Where weight decay is applied."""
        return OPTIMIZERS[self.optimizer].decay

    def adjustable(self) -> "Update":
        """The same, with a learning rate that callbacks can change."""
        rate = AdjustableRate(self.learning_rate)
        return dataclasses.replace(self, learning_rate=rate)

    def scaled(self, factor: float) -> "Update":
        """The same, with a learning rate that is multiplied by a factor."""
        rate = ScaledRate(self.learning_rate, factor)
        return dataclasses.replace(self, learning_rate=rate)

    def make(self, rate: Rate) -> RatesByVariable:
        """The optimizer; the rate is as in `OptimizerRow.make`."""
        decay = WeightDecay(self.weight_decay, self._decays)
        settings = dataclasses.replace(self.settings, decay=decay)
        optimizer = OPTIMIZERS[self.optimizer].make(rate, settings)
        optimizer.factor_of = lambda variable: self.factor(model_name(variable))
        return optimizer

    def factor(self, name: str) -> float:
        """What the learning rate of a variable of this name is multiplied by."""
        regex = first_match(self.learning_rate_factors, name.removeprefix(self.prefix))
        return 1.0 if regex is None else self.learning_rate_factors[regex]

    def factors(self, names: Iterable[str]) -> dict[str, list[str]]:
        """Regular expression of `learning_rate_factors` -> variables that it decides.

        Args:
          names: of the trained variables, those of parts included.

        Raises:
          SettingError: one decides about no variable.
        """
        matched: dict[str, list[str]] = {
            regex: [] for regex in self.learning_rate_factors
        }
        names = list(dict.fromkeys(map(parts.whole_name, names)))
        for name in names:
            if (regex := first_match(matched, name)) is not None:
                matched[regex].append(name)
        for regex, decided in matched.items():
            if not decided:
                raise wrong_setting(
                    "learning_rate_factors",
                    None,
                    f"{regex!r} is the first to match in no trained variable",
                    f"these are {first_few(names)}",
                )
        return matched

    def _decays(self, name: str) -> bool:
        return self.decayed(name.removeprefix(self.prefix))

    @property
    def rules(self) -> GradientRules:
        """What is done to the mean gradients before the optimizer."""
        decay = self.weight_decay if self.place.in_gradient else 0.0
        return GradientRules(
            decay, self._decays, self.clip_value, self.clip_norm, self.gradient_factor
        )

    def penalty(self, values: Mapping[str, Any]) -> tf.Tensor:
        """Weight decay's term of the loss: factor / 2 x sum of squares, float32 scalar.

        0 if the decay is decoupled, as that is not the gradient of a penalty.

        Args:
          values: name -> float32 value of each trained variable, or `Parts` of values.
        """
        decayed = [
            piece
            for name, value in values.items()
            for piece in parts.each(value)
            if self.decayed(parts.whole_name(name))
            and (self.place.vectors or piece.shape.rank > 1)
        ]
        if not self.place.in_loss or not self.weight_decay or not decayed:
            return tf.constant(0.0)
        losses = []
        for piece in decayed:
            with tf.device(piece.device):
                losses.append(tf.nn.l2_loss(piece))
        return self.weight_decay * tf.add_n(losses)


def first_match(regexes: Iterable[str], name: str) -> str | None:
    """The first regular expression that matches in a name; None if none does."""
    return next((regex for regex in regexes if re.search(regex, name)), None)
