"""The learning rates of tf_cnn_benchmarks as flags of `towers.train`.

There a rate changes at a step, which is computed from epochs and rounded; here it
changes at an epoch.  The epochs that are written begin at the same steps.
"""

import math
from collections.abc import Sequence
from typing import Any

from flags.optimizer import PiecewiseRates, parse_piecewise_rates
from flags.problem import wrong_setting
from flags.tf_cnn_run import TheirRun

_DECAY = 0.1  # of the rate that decays with `Rates.decay_epochs`

# Epochs are compared in float32, so a boundary must be that far from a step.
_ROUNDING = 2.0**-22


def rates_of(run: TheirRun) -> dict[str, Any]:
    """The learning rate: that of the flags, or the model's."""
    flags, given = run.flags, run.flags["init_learning_rate"]
    warmup = flags["num_learning_rate_warmup_epochs"]
    if flags["piecewise_learning_rate_schedule"]:
        pieces = _pieces(flags["piecewise_learning_rate_schedule"])
        steps = [int(epoch * _per_epoch(run)) for epoch in pieces.epochs]
        return _piecewise(run, pieces.rates, steps) | _warmup(run, warmup)
    if given is not None:
        settings = _warmup(run, warmup)
        if every := flags["num_epochs_per_decay"]:
            period = run.epoch(int(_per_epoch(run) * every))
            settings["num_epochs_per_decay"] = _number(period)
        return settings
    rates = run.model.rates
    if rates.decay_epochs:
        whole = int(rates.decay_epochs * run.per_epoch) // run.rate_batch
        period = _number(run.epoch(whole))
        decay = {"num_epochs_per_decay": period, "learning_rate_decay_factor": _DECAY}
        return {"init_learning_rate": rates.rates[0], **decay}
    scale = run.rate_batch / rates.per_examples if rates.per_examples else 1.0
    if rates.split:
        scale *= (flags["resnet_base_lr"] or rates.rates[0]) / rates.rates[0]
        scale /= flags["num_gpus"] if run.mode == "replicated" else 1
    values = [_number(rate * scale) for rate in rates.rates]
    per_epoch = int(_per_epoch(run)) if rates.whole_steps else _per_epoch(run)
    # TensorFlow's piecewise_constant has the old rate at the boundary itself.
    steps = [int(per_epoch * epoch) + 1 for epoch in rates.epochs]
    return _piecewise(run, values, steps) | _warmup(run, rates.warmup_epochs)


def _pieces(text: str) -> PiecewiseRates:
    """The parsed `--piecewise_learning_rate_schedule`, of whole epochs."""
    name = "piecewise_learning_rate_schedule"
    try:
        pieces = parse_piecewise_rates(text)
    except ValueError as error:
        raise wrong_setting(name, text, str(error)) from None
    for epoch in pieces.epochs:
        if epoch != int(epoch):
            raise wrong_setting(name, text, f"epoch {epoch:g} is no whole number")
    return pieces


def _per_epoch(run: TheirRun) -> float:
    """Steps of an epoch, as learning rates there count them."""
    return run.per_epoch / run.rate_batch


def _piecewise(
    run: TheirRun, rates: Sequence[float], steps: list[int]
) -> dict[str, Any]:
    """Rates that change at steps there."""
    if len(rates) == 1:
        return {"init_learning_rate": rates[0]}
    words = [f"{rate:g}" for rate in rates]
    for index, step in enumerate(steps):
        epoch = _shortest(run.epoch(step - 1), run.epoch(step))
        words.insert(2 * index + 1, epoch)
    return {"piecewise_learning_rate_schedule": ";".join(words)}


def _warmup(run: TheirRun, epochs: float) -> dict[str, Any]:
    """A linear growth from 0 over the whole steps of some epochs."""
    if steps := int(_per_epoch(run) * epochs):
        return {"num_learning_rate_warmup_epochs": _number(run.epoch(steps))}
    return {}


def _shortest(low: float, high: float) -> str:
    """The shortest decimal number above `low` and at most `high`."""
    low, high = low * (1 + _ROUNDING), high * (1 - _ROUNDING)
    for digits in range(12):
        number = math.floor(high * 10**digits) / 10**digits
        if number > low:
            return f"{number:.{digits}f}"
    return repr(high)


def _number(value: float) -> float:
    """A number in so many digits as float32 has."""
    return float(f"{value:.9g}")
