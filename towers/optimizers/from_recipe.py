"""Makes the optimizer and the learning rate from a model's recipe and the flags."""

import dataclasses

import models
from flags.optimizer import OptimizerFlags
from flags.problem import Problem, wrong_setting
from towers.errors.collected import CollectedErrors
from towers.optimizers.learning_rate import (
    PIECEWISE,
    SCHEDULES,
    LearningRate,
    Piecewise,
    Scheduled,
    Staircase,
)
from towers.optimizers.optimizer import OPTIMIZERS, Hyperparameters, Update

# A setting of `Scheduled` -> its flag.
_FLAGS = {
    "minimum": "minimum_learning_rate",
    "power": "learning_rate_power",
    "factor": "learning_rate_decay_factor",
    "period": "num_epochs_per_decay",
    "growth": "learning_rate_cycle_growth",
}


def update_from_recipe(
    flags: OptimizerFlags, model: models.Model, global_batch: int, *, epochs: float
) -> Update:
    """The recipe's optimizer and learning rate; flags that are set replace parts of it.

    Args:
      flags: the section of the optimizer.
      model: has the recipe.
      global_batch: examples of a step.
      epochs: length of the training, at which schedules end.

    Raises:
      ValueError: the recipe names an optimizer that does not exist.
      PlanError: flags would have no effect.
    """
    recipe = model.recipe
    name = flags.optimizer or recipe.optimizer
    if name not in OPTIMIZERS:
        raise ValueError(
            f"model {model.name!r}: Recipe.optimizer is {name!r}, and must be one of "
            f"{', '.join(OPTIMIZERS)}"
        )
    reads, default = OPTIMIZERS[name].reads, Hyperparameters()
    numbers = [
        f.name for f in dataclasses.fields(Hyperparameters) if hasattr(flags, f.name)
    ]
    settings = Hyperparameters(**{number: getattr(flags, number) for number in numbers})
    checks = CollectedErrors()
    for number in numbers:
        value = getattr(settings, number)
        if number not in reads and value != getattr(default, number):
            words = f"`optimizer={name}` does not read it"
            checks.problems.append(Problem(number, value, words))
    rates = checks.get(lambda: _rates(flags, recipe.schedule, global_batch))
    rate = rates and checks.get(
        lambda: _learning_rate(flags, recipe.schedule, rates, epochs)
    )
    checks.check()
    decay, ema, norm = flags.weight_decay, flags.ema_decay, flags.gradient_clip_norm
    return Update(
        optimizer=name,
        learning_rate=rate,
        settings=settings,
        weight_decay=recipe.weight_decay if decay is None else decay,
        decayed=recipe.decays,
        learning_rate_factors=(
            recipe.learning_rate_factors if flags.factors is None else flags.factors
        ),
        ema_decay=recipe.ema_decay if ema is None else ema,
        clip_value=flags.gradient_clip,
        gradient_factor=flags.gradient_factor,
        clip_norm=(recipe.clip_norm if norm is None else norm) or None,
    )


def _rates(
    flags: OptimizerFlags, schedule: models.Schedule, global_batch: int
) -> tuple[float, ...]:
    """The rates of the flag or of the recipe, proportional to the batch if they are."""
    if flags.init_learning_rate is not None:
        return (flags.init_learning_rate,)
    scale = global_batch / schedule.per_examples if schedule.per_examples else 1.0
    if flags.resnet_base_lr is not None:
        if not schedule.per_examples:
            raise wrong_setting(
                "resnet_base_lr",
                flags.resnet_base_lr,
                "the model's learning rate does not grow with the batch",
                "use `init_learning_rate`",
            )
        if not schedule.rates[0]:
            raise wrong_setting(
                "resnet_base_lr",
                flags.resnet_base_lr,
                "the model's learning rate begins with 0, which cannot be scaled",
                "use `init_learning_rate`",
            )
        scale = flags.resnet_base_lr / schedule.rates[0] * global_batch / 256
    return tuple(rate * scale for rate in schedule.rates)


def _learning_rate(
    flags: OptimizerFlags,
    schedule: models.Schedule,
    rates: tuple[float, ...],
    epochs: float,
) -> LearningRate:
    """The schedule that the flags describe, or else the recipe's."""
    given = flags.num_learning_rate_warmup_epochs
    warmup = schedule.warmup_epochs if given is None else given
    if flags.learning_rate_schedule:
        name = flags.learning_rate_schedule
        return _scheduled(name, flags, rates[0], epochs=epochs, warmup=warmup)
    if flags.init_learning_rate is not None:
        if flags.num_epochs_per_decay:
            return Staircase(
                flags.init_learning_rate,
                flags.learning_rate_decay_factor,
                flags.num_epochs_per_decay,
                given or 0.0,
                flags.minimum_learning_rate,
            )
        return Piecewise(rates, (), given or 0.0)
    if flags.piecewise:
        return Piecewise(*flags.piecewise, given or 0.0)
    if schedule.name == PIECEWISE:
        return Piecewise(rates, schedule.epochs, warmup)
    settings = {setting: getattr(schedule, setting) for setting in _FLAGS}
    return Scheduled(schedule.name, rates[0], epochs, warmup, **settings)


def _scheduled(
    name: str, flags: OptimizerFlags, rate: float, *, epochs: float, warmup: float
) -> Scheduled:
    """The schedule of this name, with the settings of flags.

    Raises:
      PlanError: it does not read a flag that is given, or lacks one.
    """
    row, defaults = SCHEDULES[name], OptimizerFlags()
    checks, settings = CollectedErrors(), {}
    schedule = "learning_rate_schedule"
    for setting, flag in _FLAGS.items():
        value = getattr(flags, flag)
        if value != getattr(defaults, flag):
            settings[setting] = value
            if setting not in ("minimum", *row.reads):
                words = f"`{schedule}={name}` does not read it"
                checks.problems.append(Problem(flag, value, words))
        elif setting in row.needs and not value:
            checks.problems.append(Problem(schedule, name, f"needs `{flag}`"))
    if "warmup_epochs" in row.needs and not warmup:
        words = "needs `num_learning_rate_warmup_epochs`"
        checks.problems.append(Problem(schedule, name, words))
    if (lowest := flags.minimum_learning_rate) > rate:
        words = f"is above the learning rate at the start, {rate:g}"
        checks.problems.append(Problem("minimum_learning_rate", lowest, words))
    checks.check()
    return Scheduled(name, rate, epochs, warmup, **settings)
