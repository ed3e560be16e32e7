"""The rows of a stateful model: contiguous parts of the data, side by side.

Each step has one example of each row: index i of the stream is in row i % count.  So
the number of towers makes no difference, and the position says where all rows are.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from flags.config import Config
from flags.problem import wrong_setting
from models.language import NO_TOKEN
from models.layers import Rows
from models.model import Model
from towers.layout import batch_sizes
from towers.layout.placement import Placement


def in_rows(source: Any, model: Model, count: int) -> Any:
    """The source with its examples in rows, if the model is stateful.

    Args:
      source: of examples.
      model: that reads them.
      count: of rows, the examples of a step of all towers.

    Raises:
      ValueError: the source has no such order, or fewer examples than rows.
    """
    if not model.stateful:
        return source
    if not hasattr(source, "in_rows"):
        raise ValueError(
            f"{model.name} passes a state from step to step, and "
            f"{type(source).__name__} has no in_rows(count), which puts its examples "
            "in rows; use one of towers.data, or write the method"
        )
    source = source.in_rows(count)
    if not source.num_examples:
        raise wrong_setting(
            "batch_size",
            None,
            f"{model.name} reads the data in as many parts as a step has examples, "
            f"{count}, and {getattr(source, 'name', 'it')} has too few for a window "
            "of each",
            "write a smaller one, fewer towers, or name more data",
        )
    return source


def find_in_rows(
    find: Callable[[Any, Any], tuple[Any, Any]],
    where: Placement | None,
    config: Config,
    model: Model,
) -> tuple[Any, Any]:
    """The sources of training and evaluation (or None), `in_rows`.

    Args:
      find: (settings, model) -> the sources.
      where: the devices; None if they are not known, as something is wrong.
      config: the settings.
      model: that reads them.
    """
    train, evaluation = find(config, model)
    if where and model.stateful:
        default = model.recipe.batch_size
        count = where.num_towers
        sizes = batch_sizes.of_towers(config, default, count, trains=False)
        if not config.evaluation.eval:
            count = sum(sizes) * config.variables.accumulate_steps
            train = in_rows(train, model, count)
        if evaluation:
            size = config.evaluation.eval_batch_size or sum(sizes) // len(sizes)
            evaluation = in_rows(evaluation, model, size * len(where.towers))
    return train, evaluation


def whole_steps(limit: int, source: Any) -> int:
    """A number of examples, rounded up to whole steps of the source's rows."""
    rows = getattr(source, "rows", None)
    return limit + -limit % rows.count if rows else limit


def of(source: Any, model: Model, count: int) -> Rows | None:
    """The rows of a source from `in_rows`; None if the model is not stateful."""
    return Rows(count, source.num_examples // count) if model.stateful else None


def check_joined(model: Model, variable_update: str, *, joined: bool) -> None:
    """Refuses modes whose towers do not train one model in common steps.

    Args:
      model: a stateful one.
      variable_update: the mode.
      joined: as `VariableUpdate.joined`.

    Raises:
      ValueError: the towers are not joined.
    """
    if not joined:
        raise wrong_setting(
            "variable_update",
            variable_update,
            f"{model.name} passes a state from step to step, and each of these towers "
            "takes steps of its own",
            "write parameter_server or replicated",
        )


def check_elastic(model: Model, elastic: str) -> None:
    """Refuses an elastic run in which the number of rows would change.

    Args:
      model: of the run.
      elastic: `--elastic`.

    Raises:
      ValueError: the model is stateful, and the batch of a step changes.
    """
    if model.stateful and elastic == "scale_lr":
        raise wrong_setting(
            "elastic",
            elastic,
            f"{model.name} reads the data in as many parts as a step has examples, "
            "and these change with the workers",
            "write keep_towers",
        )


def numbers(indices: tf.Tensor, rows: Rows) -> tf.Tensor:
    """The numbers of the examples at these indices of the stream, int64 like these."""
    return indices % rows.count * rows.steps + indices // rows.count % rows.steps


def windows(
    tokens: np.ndarray, length: int, count: int, *, every: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The windows of a text in `count` rows, in the order of the stream.

    Args:
      tokens: integers [tokens].
      length: of a window.
      count: of rows.
      every: whether every token but the first is a label once: the last windows are
        then filled up, and a label of these is `NO_TOKEN`.  If not, rows are equally
        long and the rest is left out, as in ptb_word_lm.

    Returns:
      the tokens and the labels, [steps x count, length] each.
    """
    size = -(-(len(tokens) - 1) // count) if every else len(tokens) // count - 1
    steps = -(-size // length) if every else max(0, size) // length
    begins = np.arange(count)[:, None] * (size if every else size + 1)
    places = np.arange(steps * length)
    index = begins + places + 1  # of the labels
    label = tokens[np.minimum(index, len(tokens) - 1)]
    if every:
        there = (places < size) & (index < len(tokens))
        label = np.where(there, label.astype(np.int32), NO_TOKEN)
    token = tokens[np.minimum(index, len(tokens)) - 1]
    tokens_in_rows, labels = (
        part.reshape(count, steps, length).swapaxes(0, 1).reshape(-1, length)
        for part in (token, label)
    )
    return tokens_in_rows, labels
