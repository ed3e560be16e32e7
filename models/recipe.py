"""The settings with which a model reaches its published result, as plain data."""

import dataclasses
import itertools
import re
from collections.abc import Callable, Mapping

from models.user_errors import blamed
from models.validation import (
    AT_LEAST_0,
    BELOW_1,
    COUNT,
    EPOCHS,
    check,
    check_takes,
)


def decay_all(name: str) -> bool:
    """Weight decay on every trainable variable but those of normalization layers."""
    return "/batch_norm" not in name and "/layer_norm" not in name


@dataclasses.dataclass(frozen=True)
class Schedule:
    """A learning rate over epochs, as plain data.

    Attributes:
      rates: the rates, one more than `epochs`.
      epochs: where the rate changes; the rate is `rates[i]` before `epochs[i]`.
      per_examples: 0, or the global batch size for which the rates are meant: the rate
        is then proportional to the global batch (Goyal et al. 2017).
      warmup_epochs: the rate grows linearly from 0 over these epochs.
      name: `piecewise`, constant between epochs; or a row of
        `towers.optimizers.learning_rate.SCHEDULES`, which takes one rate from the end
        of the warm-up to the end of the training.
      minimum, power, factor, period, growth: as in `Scheduled` there.
    """

    rates: tuple[float, ...]
    epochs: tuple[float, ...] = ()
    per_examples: int = 0
    warmup_epochs: float = 0.0
    name: str = "piecewise"
    minimum: float = 0.0
    power: float = 1.0
    factor: float = 1.0
    period: float = 0.0
    growth: float = 1.0

    def __post_init__(self) -> None:
        numbers = [f.name for f in dataclasses.fields(self) if f.name != "name"]
        check(self, **dict.fromkeys(numbers, AT_LEAST_0))
        if len(self.rates) != len(self.epochs) + 1:
            raise ValueError(
                f"Schedule has {len(self.rates)} rates and {len(self.epochs)} epochs "
                "at which they change; give one rate more than epochs"
            )
        if any(b <= a for a, b in itertools.pairwise(self.epochs)):
            raise ValueError(f"Schedule.epochs is {self.epochs}, and must be ascending")
        if self.name != "piecewise" and self.epochs:
            raise ValueError(
                f"Schedule.epochs is {self.epochs}, and {self.name} has one rate; "
                "leave it out"
            )


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How the model is trained to its published result; every field has a flag.

    Attributes:
      batch_size: examples per tower.
      schedule: the learning rate.
      num_epochs: length of a full training.
      optimizer: a row of `towers.optimizers.optimizer.OPTIMIZERS`.
      weight_decay: L2 factor, applied once at the update: gradient += factor x value.
      decayed: name of a variable -> whether weight decay applies to it.
      learning_rate_factors: regular expression -> factor of the learning rate of
        variables whose name matches (`re.search`); the first match counts.
      ema_decay: decay of the moving averages that evaluation reads; 0 for none.
      clip_norm: upper limit of the norm of all mean gradients together; 0 for none.
      published: the published result and its source, in words.
    """

    batch_size: int
    schedule: Schedule
    num_epochs: float = 90.0
    optimizer: str = "momentum"
    weight_decay: float = 0.0
    decayed: Callable[[str], bool] = decay_all
    learning_rate_factors: Mapping[str, float] = dataclasses.field(default_factory=dict)
    ema_decay: float = 0.0
    clip_norm: float = 0.0
    published: str = ""

    def __post_init__(self) -> None:
        check(
            self,
            batch_size=COUNT,
            num_epochs=EPOCHS,
            weight_decay=AT_LEAST_0,
            learning_rate_factors=AT_LEAST_0,
            ema_decay=BELOW_1,
            clip_norm=AT_LEAST_0,
        )
        check_takes("decayed of the recipe", self.decayed, "name")
        for regex in self.learning_rate_factors:
            try:
                re.compile(regex)
            except re.error as error:
                raise ValueError(
                    f"Recipe.learning_rate_factors has {regex!r}, which is no regular "
                    f"expression: {error}"
                ) from None

    def decays(self, name: str) -> bool:
        """Whether a variable is decayed.

        Raises:
          ValueError: `decayed` fails.
        """
        with blamed(lambda: f"decayed({name!r}) of the recipe"):
            return bool(self.decayed(name))
