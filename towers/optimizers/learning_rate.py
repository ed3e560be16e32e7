"""Learning rates over epochs: piecewise constant, staircase, or a published schedule.

A learning rate is a function of the number of epochs that have passed, a float32 scalar
that is counted in examples and so does not depend on the number of towers.  To add a
schedule, add a function and a row of `SCHEDULES`.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from towers.checkpoints.contents import CALLBACKS
from towers.layout import graph_names

v1 = tf.compat.v1

PIECEWISE = "piecewise"

# Of one_cycle, as in PyTorch's OneCycleLR: the share of the training in which the rate
# rises, and the largest rate divided by the first.
_RISING, _FIRST = 0.3, 25.0


# The variable of an `AdjustableRate`, float32 [2]: factor and offset.
ADJUSTMENT = f"{CALLBACKS}rate"

# Epochs that have passed -> the learning rate; both float32 scalars.
LearningRate = Callable[[tf.Tensor], tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Piecewise:
    """A piecewise constant rate over epochs with a linear warm-up.

    Attributes:
      rates: one more than `epochs`; `rates[i]` holds before `epochs[i]`.
      epochs: increasing.
      warmup_epochs: the rate grows linearly from 0 to `rates[0]` over these.
    """

    rates: tuple[float, ...]
    epochs: tuple[float, ...] = ()
    warmup_epochs: float = 0.0

    def __post_init__(self) -> None:
        lists = np.ndim(self.rates) == np.ndim(self.epochs) == 1
        if not lists or len(self.rates) != len(self.epochs) + 1:
            raise ValueError(
                f"Piecewise has rates {self.rates} and epochs {self.epochs}, and must "
                "have one rate more than epochs at which they change, as in "
                "Piecewise((0.1, 0.01), (30,))"
            )
        if list(self.epochs) != sorted(self.epochs):
            raise ValueError(
                f"Piecewise.epochs is {self.epochs}, and must be ascending"
            )

    def __call__(self, epoch: tf.Tensor) -> tf.Tensor:
        """The rate at an epoch; both float32 scalars."""
        passed = tf.reduce_sum(
            tf.cast(
                epoch >= tf.constant(self.epochs, tf.float32, [len(self.epochs)]),
                tf.int32,
            )
        )
        rate = tf.gather(tf.constant(self.rates, tf.float32), passed)
        return _warmed_up(rate, epoch, self.rates[0], self.warmup_epochs)


@dataclasses.dataclass(frozen=True)
class Staircase:
    """rate x factor ^ (whole periods passed), with a warm-up and a minimum.

    The schedule of `--init_learning_rate`, `--num_epochs_per_decay` and
    `--learning_rate_decay_factor`, as in tf_cnn_benchmarks: periods are counted from
    epoch 0, so they include the warm-up.
    """

    rate: float
    factor: float
    period: float  # epochs
    warmup_epochs: float = 0.0
    minimum: float = 0.0

    def __call__(self, epoch: tf.Tensor) -> tf.Tensor:
        """The rate at an epoch; both float32 scalars."""
        # At a boundary the quotient may be rounded down; the factor corrects that.
        periods = tf.floor(epoch / self.period * (1.0 + 2.0**-21))
        rate = tf.maximum(self.rate * self.factor**periods, self.minimum)
        return _warmed_up(rate, epoch, self.rate, self.warmup_epochs)


@dataclasses.dataclass(frozen=True)
class Scheduled:
    """A rate that warms up linearly and then follows a row of `SCHEDULES`.

    Attributes:
      schedule: the row.
      rate: the largest rate.
      epochs: length of the training; afterwards the rate stays as it is.
      warmup_epochs: the rate grows linearly from 0 to `rate` over these, and then the
        schedule begins.  In one_cycle they are the rising part.
      minimum: the rate at the end; for a schedule without an end, the smallest rate.
      power: of the polynomial; 1 is linear.
      factor: the rate is multiplied by it once per period.
      period: epochs of one decay, or of the first cycle of cosine_restarts.
      growth: how many times as long each cycle of cosine_restarts is as the one before.

    Raises:
      ValueError: the schedule needs another setting.
    """

    schedule: str
    rate: float
    epochs: float
    warmup_epochs: float = 0.0
    minimum: float = 0.0
    power: float = 1.0
    factor: float = 1.0
    period: float = 0.0
    growth: float = 1.0

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            raise ValueError(
                f"Scheduled.schedule is {self.schedule!r}, and must be one of "
                f"{', '.join(SCHEDULES)}"
            )
        for setting in SCHEDULES[self.schedule].needs:
            if not getattr(self, setting) > 0:
                raise ValueError(
                    f"Scheduled.{setting} is {getattr(self, setting):g}, and "
                    f"{self.schedule} needs one above 0"
                )
        if self.minimum > self.rate:
            raise ValueError(
                f"Scheduled.minimum is {self.minimum:g}, and must not be above its "
                f"rate, {self.rate:g}"
            )

    @property
    def decay_epochs(self) -> float:
        """Epochs between the warm-up and the end; above 0."""
        return max(self.epochs - self.warmup_epochs, 1e-6)

    def __call__(self, epoch: tf.Tensor) -> tf.Tensor:
        """The rate at an epoch; both float32 scalars."""
        row = SCHEDULES[self.schedule]
        if not row.warms_up:
            return row.rate(self, epoch)
        rate = row.rate(self, tf.maximum(epoch - self.warmup_epochs, 0.0))
        return _warmed_up(rate, epoch, self.rate, self.warmup_epochs)


@dataclasses.dataclass(frozen=True)
class AdjustableRate:
    """factor x a schedule's rate + offset: what callbacks set, at first 1 and 0.

    Attributes:
      schedule: the rate at an epoch.
    """

    schedule: LearningRate

    def __call__(self, epoch: tf.Tensor) -> tf.Tensor:
        """The rate at an epoch; makes the variable, beside the global step."""
        step = v1.train.get_global_step()
        with tf.device(step.device), v1.name_scope(graph_names.VARIABLES):
            values = v1.Variable(
                [1.0, 0.0], trainable=False, use_resource=True, name=ADJUSTMENT
            ).read_value()
        return self.schedule(epoch) * values[0] + values[1]


@dataclasses.dataclass(frozen=True)
class ScaledRate:
    """A rate that is multiplied by a factor.

    Attributes:
      schedule: the rate at an epoch.
      factor: what it is multiplied by.
    """

    schedule: LearningRate
    factor: float

    def __call__(self, epoch: tf.Tensor) -> tf.Tensor:
        """The rate at an epoch; both float32 scalars."""
        return self.schedule(epoch) * self.factor


def _warmed_up(
    rate: tf.Tensor, epoch: tf.Tensor, first: float, warmup_epochs: float
) -> tf.Tensor:
    """The rate; during the warm-up one that grows linearly from 0 to `first`."""
    if not warmup_epochs:
        return rate
    return tf.where(epoch < warmup_epochs, first * epoch / warmup_epochs, rate)


# ------------------------------------------------------------------------------------
# The schedules.  Each takes the settings and the epochs since the warm-up's end.


def exponential(settings: Scheduled, epoch: tf.Tensor) -> tf.Tensor:
    """rate x factor ^ (epoch / period), as `tf.train.exponential_decay`."""
    rate = settings.rate * settings.factor ** (epoch / settings.period)
    return tf.maximum(rate, settings.minimum)


def polynomial(settings: Scheduled, epoch: tf.Tensor) -> tf.Tensor:
    """minimum + (rate - minimum) x (1 - done) ^ power, as `tf.train.polynomial_decay`.

    `done` is the share of the epochs after the warm-up that has passed.
    """
    left = 1.0 - tf.minimum(epoch / settings.decay_epochs, 1.0)
    return settings.minimum + (settings.rate - settings.minimum) * left**settings.power


def cosine(settings: Scheduled, epoch: tf.Tensor) -> tf.Tensor:
    """Half a cosine from the rate to the minimum (Loshchilov & Hutter 2017)."""
    done = tf.minimum(epoch / settings.decay_epochs, 1.0)
    return _half_cosine(settings.rate, settings.minimum, done)


def cosine_restarts(settings: Scheduled, epoch: tf.Tensor) -> tf.Tensor:
    """Cycles of half a cosine each, SGDR (Loshchilov & Hutter 2017, equation 5).

    Each cycle begins at `factor` x the rate of the cycle before, and is `growth` times
    as long.
    """
    cycles, growth = epoch / settings.period, settings.growth
    passed = cycles * (1.0 + 2.0**-21)  # as in `Staircase`
    if growth == 1.0:
        number = tf.floor(passed)
        done = cycles - number
    else:
        number = tf.floor(tf.math.log(1.0 + passed * (growth - 1.0)) / math.log(growth))
        begin = (growth**number - 1.0) / (growth - 1.0)
        done = (cycles - begin) / growth**number
    return _half_cosine(
        tf.maximum(settings.rate * settings.factor**number, settings.minimum),
        settings.minimum,
        tf.clip_by_value(done, 0.0, 1.0),
    )


def one_cycle(settings: Scheduled, epoch: tf.Tensor) -> tf.Tensor:
    """Half a cosine up from rate / 25, one down to the minimum (Smith & Topin 2018).

    The rate rises during the warm-up, or without one during 0.3 of the training, as in
    PyTorch's OneCycleLR.
    """
    rising = settings.warmup_epochs or _RISING * settings.epochs
    falling = max(settings.epochs - rising, 1e-6)
    up = _half_cosine(settings.rate / _FIRST, settings.rate, epoch / rising)
    done = tf.clip_by_value((epoch - rising) / falling, 0.0, 1.0)
    down = _half_cosine(settings.rate, settings.minimum, done)
    return tf.where(epoch < rising, up, down)


def inverse_sqrt(settings: Scheduled, epoch: tf.Tensor) -> tf.Tensor:
    """rate x sqrt(warm-up / epochs passed) (Vaswani et al. 2017, equation 3)."""
    warmup = settings.warmup_epochs
    rate = settings.rate * tf.math.rsqrt((epoch + warmup) / warmup)
    return tf.maximum(rate, settings.minimum)


def _half_cosine(begin: float | tf.Tensor, end: float, done: tf.Tensor) -> tf.Tensor:
    """From one rate to another while `done` goes from 0 to 1."""
    return end + (begin - end) * 0.5 * (1.0 + tf.cos(math.pi * done))


class ScheduleRow(NamedTuple):
    """A schedule.

    Attributes:
      rate: (settings, epochs since the warm-up's end) -> the rate.
      reads: the settings of `Scheduled` that it reads, besides those that all read.
      needs: the settings that must be above 0.
      warms_up: whether a linear warm-up may come first; if not, `rate` gets the epochs
        since the start.
    """

    rate: Callable[[Scheduled, tf.Tensor], tf.Tensor]
    reads: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    warms_up: bool = True


SCHEDULES = {
    "exponential": ScheduleRow(exponential, ("factor", "period"), ("factor", "period")),
    "polynomial": ScheduleRow(polynomial, ("power",)),
    "cosine": ScheduleRow(cosine),
    "cosine_restarts": ScheduleRow(
        cosine_restarts, ("factor", "period", "growth"), ("period",)
    ),
    "one_cycle": ScheduleRow(one_cycle, warms_up=False),
    "inverse_sqrt": ScheduleRow(inverse_sqrt, needs=("warmup_epochs",)),
}
