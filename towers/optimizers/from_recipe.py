"""From a model's recipe and the flags to the update: optimizer and learning rate."""

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from towers.errors.collected import CollectedErrors, PlanError
from towers.optimizers.optimizer import (
    OPTIMIZERS,
    Hyperparameters,
    Piecewise,
    Staircase,
    Update,
)


def update_from_recipe(flags: Any, model: Any, global_batch: int) -> Update:
    """The recipe's update, with what the flags put in its place.

    Raises:
      ValueError: there is no such optimizer as the recipe names.
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
            checks.errors.append(
                f"--{number}={value}: --optimizer={name} does not read it"
            )
    rate = checks.get(lambda: _learning_rate(flags, recipe.schedule, global_batch))
    if checks.errors:
        raise PlanError(checks.errors)
    decay, ema, norm = flags.weight_decay, flags.ema_decay, flags.gradient_clip_norm
    return Update(
        optimizer=name,
        learning_rate=rate,
        settings=settings,
        weight_decay=recipe.weight_decay if decay is None else decay,
        decayed=recipe.decays,
        ema_decay=recipe.ema_decay if ema is None else ema,
        clip_value=flags.gradient_clip,
        clip_norm=(recipe.clip_norm if norm is None else norm) or None,
    )


def _learning_rate(
    flags, schedule, global_batch: int
) -> Callable[[tf.Tensor], tf.Tensor]:
    warmup = flags.num_learning_rate_warmup_epochs
    if flags.init_learning_rate is not None:
        if flags.num_epochs_per_decay:
            return Staircase(
                flags.init_learning_rate,
                flags.learning_rate_decay_factor,
                flags.num_epochs_per_decay,
                warmup or 0.0,
                flags.minimum_learning_rate,
            )
        return Piecewise((flags.init_learning_rate,), (), warmup or 0.0)
    if flags.piecewise:
        rates, epochs = flags.piecewise
        return Piecewise(rates, epochs, warmup or 0.0)
    scale = global_batch / schedule.per_examples if schedule.per_examples else 1.0
    if flags.resnet_base_lr is not None:
        if not schedule.per_examples:
            raise ValueError(
                f"--resnet_base_lr={flags.resnet_base_lr}: the model's learning rate "
                "does not grow with the batch; use --init_learning_rate"
            )
        if not schedule.rates[0]:
            raise ValueError(
                f"--resnet_base_lr={flags.resnet_base_lr}: the model's learning rate "
                "begins with 0, which cannot be scaled; use --init_learning_rate"
            )
        scale = flags.resnet_base_lr / schedule.rates[0] * global_batch / 256
    return Piecewise(
        tuple(rate * scale for rate in schedule.rates),
        schedule.epochs,
        schedule.warmup_epochs if warmup is None else warmup,
    )
