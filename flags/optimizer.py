"""The flags of the optimizer: a section of `Config`.

Also the parsers of `--piecewise_learning_rate_schedule`, `--learning_rate_factors` and
`--trainable`.
"""

import dataclasses
import math
import re
from typing import ClassVar, NamedTuple

from flags.field import ABOVE_0, AT_LEAST_0, AT_LEAST_1, BELOW_1, field

_FACTOR_LIMIT = 3e38  # near that of a float32


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
        "learning rates as LR0;E1;LR1;...;En;LRn: LRi from the start of epoch Ei, "
        "counted from 0",
        unset="the recipe's",
    )
    learning_rate_schedule: str | None = field(
        None,
        "how the learning rate falls after its warm-up until training ends",
        unset="the recipe's",
    )
    learning_rate_power: float = field(
        1.0, "power of the polynomial schedule; 1 is linear", must=ABOVE_0
    )
    learning_rate_cycle_growth: float = field(
        1.0,
        "how many times as long each cycle of cosine_restarts is as the one before",
        must=AT_LEAST_1,
    )
    num_epochs_per_decay: float = field(
        0.0,
        "epochs between two decays of the learning rate; with cosine_restarts those of "
        "the first cycle",
        must=AT_LEAST_0,
    )
    learning_rate_decay_factor: float = field(
        0.0, "factor of the learning rate at each decay", must=AT_LEAST_0
    )
    minimum_learning_rate: float = field(
        0.0, "the learning rate does not decay below this", must=AT_LEAST_0
    )
    num_learning_rate_warmup_epochs: float | None = field(
        None,
        "epochs over which the learning rate grows linearly from 0",
        unset="the recipe's",
        must=AT_LEAST_0,
    )
    resnet_base_lr: float | None = field(
        None,
        "learning rate per 256 images of the global batch, in recipes whose rate is "
        "proportional to it",
        unset="the recipe's",
        must=AT_LEAST_0,
    )
    learning_rate_factors: str | None = field(
        None,
        "REGEX1=F1,...,REGEXn=Fn: the learning rate of a variable is multiplied by the "
        "factor of the first expression that matches in its name",
        unset="the recipe's",
    )
    trainable: str | None = field(
        None,
        "regular expression: only variables in whose name it matches are trained, the "
        "others are frozen",
        unset="all are",
    )
    momentum: float = field(0.9, "momentum of momentum and lars", must=BELOW_1)
    nesterov: bool = field(True, "Nesterov's form of momentum")
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
        "trust coefficient of lars, a factor of every layer's learning rate",
        must=ABOVE_0,
    )
    lars_epsilon: float = field(
        0.0, "added to the denominator of the trust ratio of lars", must=AT_LEAST_0
    )
    gradient_factor: float = field(
        1.0,
        "multiply the mean gradient, weight decay that is added to it included, by "
        "this before it is clipped; the number of towers makes it their sum",
        must=ABOVE_0,
    )
    gradient_clip: float | None = field(
        None,
        "clip each element of the mean gradient to at most this size; weight decay "
        "that is added to the gradient is included",
        unset="none",
        must=ABOVE_0,
    )
    gradient_clip_norm: float | None = field(
        None,
        "scale all mean gradients together so that their norm is at most this; 0 does "
        "not",
        unset="the recipe's",
        must=AT_LEAST_0,
    )
    weight_decay: float | None = field(
        None,
        "this times the variable is added to the mean gradient; adamw subtracts it "
        "from the variable, lars and lamb include it in the trust ratio",
        unset="the recipe's",
        must=AT_LEAST_0,
    )
    ema_decay: float | None = field(
        None,
        "decay of the moving averages of the variables, which evaluation uses; 0 keeps "
        "none",
        unset="the recipe's",
        must=BELOW_1,
    )

    @property
    def piecewise(self) -> PiecewiseRates | None:
        """`piecewise_learning_rate_schedule` parsed; None if it is not given."""
        text = self.piecewise_learning_rate_schedule
        return None if text is None else parse_piecewise_rates(text)

    @property
    def factors(self) -> dict[str, float] | None:
        """`learning_rate_factors` parsed; None if it is not given."""
        text = self.learning_rate_factors
        return None if text is None else parse_factors(text)


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


def parse_factors(text: str) -> dict[str, float]:
    """Parses `learning_rate_factors`: regular expression -> factor.

    Args:
      text: `REGEX1=F1,...,REGEXn=Fn`; an expression may contain `,` and `=`.

    Raises:
      ValueError: the text is not of that form; the message says where.
    """
    *words, rest = re.split(r"=([^=,]*)(?:,|$)", text)
    if rest or not words:
        raise ValueError("does not end in a factor; write REGEX1=F1,...,REGEXn=Fn")
    factors: dict[str, float] = {}
    for regex, word in zip(words[::2], words[1::2]):
        check_regex(regex)
        try:
            factor = float(word)
        except ValueError:
            raise ValueError(f"factor {word!r} of {regex!r} is not a number") from None
        if not 0 <= factor <= _FACTOR_LIMIT:
            raise ValueError(f"factor {word} of {regex!r} must be finite, at least 0")
        if regex in factors:
            raise ValueError(f"has {regex!r} twice")
        factors[regex] = factor
    return factors


def check_regex(text: str) -> None:
    """Raises ValueError if a text is no regular expression, or an empty one."""
    if not text:
        raise ValueError("has an empty regular expression; a dot matches every name")
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from None
