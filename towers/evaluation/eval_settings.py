"""Whether a run evaluates, and which settings have no effect if it does not."""

from collections.abc import Iterator

from flags.problem import Problem
from flags.sections import EvaluationFlags
from towers.errors.collected import PlanError

_SETTINGS = (
    "eval_batch_size",
    "num_eval_batches",
    "num_eval_epochs",
    "eval_split",
    "eval_dir",
)

_DURING = "eval_during_training_"  # prefix of flags


def wanted(flags: EvaluationFlags, in_epochs: bool) -> bool:
    """Whether a run on real data evaluates.

    Args:
      flags: of evaluation.
      in_epochs: whether the length of the run is in epochs, or the recipe's.
    """
    at_end = in_epochs if flags.eval_at_end is None else flags.eval_at_end
    return bool(at_end or _asked(flags))


def during_training(flags: EvaluationFlags) -> bool:
    """Whether training pauses for evaluations."""
    return any(name.startswith(_DURING) for name in _asked(flags))


def _asked(flags: EvaluationFlags) -> list[str]:
    """Names of the flags that are set and lead to evaluations."""
    return [name for name in vars(flags) if _asks(name) and getattr(flags, name)]


def check(
    flags: EvaluationFlags, *, real: bool, in_epochs: bool, shared: bool = False
) -> None:
    """Refuses settings of evaluations if there are no evaluations.

    Args:
      flags: of evaluation.
      real: whether the data set has a split to evaluate on.
      in_epochs: whether the length of the run is in epochs, or the recipe's.
      shared: whether another task, such as an evaluator, has the same command line.

    Raises:
      PlanError: there are such settings.
    """
    if problems := list(_problems(flags, real, in_epochs, shared)):
        raise PlanError(*problems)


def _problems(
    flags: EvaluationFlags, real: bool, in_epochs: bool, shared: bool
) -> Iterator[Problem]:
    names = _asked(flags)
    if (seconds := flags.eval_interval_secs) and not (flags.eval or shared):
        needed = "needs `eval`, or a cluster, whose evaluator reads it"
        yield Problem("eval_interval_secs", seconds, needed)
    if names and not real:
        yield Problem(
            names[0],
            None,
            "synthetic data has nothing to evaluate on",
            "name a data set with `data_name`",
        )
    if names or shared or (real and wanted(flags, in_epochs)):
        return
    why, remedy = "synthetic data has none", "`data_name=...`"
    if real:
        why = "this run evaluates nothing"
        remedy = "`eval_at_end`"
    for name in _SETTINGS:
        if (value := getattr(flags, name)) is not None:
            yield Problem(
                name,
                value,
                f"is about evaluation, and {why}",
                f"write {remedy}, or leave out `{name}`",
            )


def _asks(name: str) -> bool:
    """Whether a flag leads to evaluations."""
    return name in ("eval", "eval_at_end") or name.startswith(_DURING)
