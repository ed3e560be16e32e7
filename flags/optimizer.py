"""The flags of the optimizer: a section of `Config`.

Also the parser of `--piecewise_learning_rate_schedule`, which `flags.config` checks a
command line with.
"""

import dataclasses
import math
from typing import ClassVar, NamedTuple

from flags.field import ABOVE_0, AT_LEAST_0, AT_LEAST_1, BELOW_1, field


class PiecewiseRates(NamedTuple):
    """Learning rates that are constant between epochs.

    Attributes:
      rates: the learning rates, in order.
      epochs: where each rate but the first begins, in epochs counted from 0.
    """

    rates: tuple[float, ...]
    epochs: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class OptimizerFlags:
    """How a gradient becomes an update."""

    common: ClassVar[tuple[str, ...]] = ("optimizer", "init_learning_rate")

    optimizer: str | None = field(None, "the optimizer", unset="the recipe's")
    init_learning_rate: float | None = field(
        None,
        "learning rate at the start, in place of the recipe's schedule",
        unset="the recipe's",
        must=AT_LEAST_0,
    )
    piecewise_learning_rate_schedule: str | None = field(
        None,
        "LR0;E1;LR1;...;En;LRn: learning rate LRi from epoch Ei on, counted from 0",
        unset="the recipe's",
    )
    learning_rate_schedule: str | None = field(
        None,
        "how the learning rate falls from the end of its warm-up to the end of the "
        "training",
        unset="the recipe's",
    )
    learning_rate_power: float = field(
        1.0, "power of the polynomial schedule; 1 is linear", must=ABOVE_0
    )
    learning_rate_cycle_growth: float = field(
        1.0,
        "a cycle of cosine_restarts is so many times as long as the one before",
        must=AT_LEAST_1,
    )
    num_epochs_per_decay: float = field(
        0.0,
        "epochs between two decays of the learning rate, or of the first cycle of "
        "cosine_restarts",
        must=AT_LEAST_0,
    )
    learning_rate_decay_factor: float = field(
        0.0, "what each decay multiplies the learning rate by", must=AT_LEAST_0
    )
    minimum_learning_rate: float = field(
        0.0, "where the decay of the learning rate ends", must=AT_LEAST_0
    )
    num_learning_rate_warmup_epochs: float | None = field(
        None,
        "epochs over which the learning rate grows linearly from 0",
        unset="the recipe's",
        must=AT_LEAST_0,
    )
    resnet_base_lr: float | None = field(
        None,
        "learning rate per 256 images of the global batch, in a recipe that grows "
        "with it",
        unset="the recipe's",
        must=AT_LEAST_0,
    )
    momentum: float = field(0.9, "decay of the mean in momentum and lars", must=BELOW_1)
    nesterov: bool = field(True, "look ahead, as Nesterov does, in momentum")
    rmsprop_decay: float = field(0.9, "decay of RMSProp's mean square", must=BELOW_1)
    rmsprop_momentum: float = field(0.9, "momentum in RMSProp", must=BELOW_1)
    rmsprop_epsilon: float = field(1.0, "added to RMSProp's mean square", must=ABOVE_0)
    adam_beta1: float = field(
        0.9, "decay of the mean in adam, adamw and lamb", must=BELOW_1
    )
    adam_beta2: float = field(
        0.999, "decay of the mean square in adam, adamw and lamb", must=BELOW_1
    )
    adam_epsilon: float = field(
        1e-8, "added to the denominator of adam and adamw", must=ABOVE_0
    )
    lamb_epsilon: float = field(1e-6, "added to the denominator of lamb", must=ABOVE_0)
    lars_eeta: float = field(
        0.001,
        "trust coefficient of lars, which scales every layer's rate",
        must=ABOVE_0,
    )
    lars_epsilon: float = field(
        0.0, "added to the denominator of the trust ratio of lars", must=AT_LEAST_0
    )
    gradient_clip: float | None = field(
        None,
        "size that no element of the mean gradient exceeds, weight decay included "
        "where it is added to the gradient",
        unset="none",
        must=ABOVE_0,
    )
    gradient_clip_norm: float | None = field(
        None,
        "size that the norm of all mean gradients together does not exceed; 0 sets no "
        "bound",
        unset="the recipe's",
        must=AT_LEAST_0,
    )
    weight_decay: float | None = field(
        None,
        "factor times variable added to the gradient, once, at the update; adamw takes "
        "it from the variable, lars and lamb put it inside the trust ratio",
        unset="the recipe's",
        must=AT_LEAST_0,
    )
    ema_decay: float | None = field(
        None,
        "decay of the moving averages of variables that evaluation reads; 0 keeps none",
        unset="the recipe's",
        must=BELOW_1,
    )

    @property
    def piecewise(self) -> PiecewiseRates | None:
        """`piecewise_learning_rate_schedule` parsed; None if it is not given."""
        text = self.piecewise_learning_rate_schedule
        return None if text is None else parse_piecewise_rates(text)


def parse_piecewise_rates(text: str) -> PiecewiseRates:
    """Parses a `piecewise_learning_rate_schedule`.

    Args:
      text: `LR0;E1;LR1;...;En;LRn`.

    Raises:
      ValueError: the text is not of that form; the message says where.
    """
    words = text.split(";")
    if len(words) % 2 == 0:
        raise ValueError(
            f"has {len(words)} parts; write LR0;E1;LR1;...;En;LRn, an odd number"
        )
    numbers = []
    for word in words:
        try:
            numbers.append(float(word))
        except ValueError:
            raise ValueError(f"{word!r} is not a number") from None
    rates, epochs = tuple(numbers[::2]), tuple(numbers[1::2])
    for rate in rates:
        if not (math.isfinite(rate) and rate >= 0):
            raise ValueError(f"learning rate {rate:g} must be at least 0")
    for before, epoch in zip((0.0, *epochs), epochs):
        if not (math.isfinite(epoch) and epoch > before):
            raise ValueError(f"epoch {epoch:g} must come after {before:g}")
    return PiecewiseRates(rates, epochs)
