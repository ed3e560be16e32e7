"""Training, evaluation and prediction in one call from Python.

    images, labels = ...  # arrays [examples, 28, 28, 1] and [examples]
    data = towers.data.from_arrays(images, labels)
    towers.fit("lenet", data, num_gpus=4, num_epochs=5.0, train_dir="run")
    towers.evaluate("lenet", data, train_dir="run")["top_1_accuracy"]
    towers.predict("lenet", data, train_dir="run")  # [examples, classes]

Every flag of `python -m towers.train` is a setting of the same name; see `--help` and
docs/flags.md.  A call does the same as the command, except for what TensorFlow sets
once for a whole process, such as its threads: the caller decides that.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

import models
from flags import config as flags_config
from flags.config import Config
from flags.problem import SettingError, in_python
from models import Model
from towers import choices, planning, run
from towers.callbacks.user_callbacks import CallbackSource
from towers.checkpoints import checkpoint
from towers.data import inputs
from towers.data.example_source import ExampleSource
from towers.data.examples import Examples
from towers.data.inputs import NamedSource
from towers.data.source import Request
from towers.errors import explain, output_paths
from towers.errors.interrupts import Interrupted
from towers.evaluation import eval_graph, evaluator, predictions
from towers.evaluation.saved_variables import restored
from towers.planning import Plan
from towers.run import RunResult
from towers.session.progress import Console

# What functions of `towers.data` return, or the name of a data set.
Data = Examples | str


def fit(
    model: Model | str,
    data: Data | None = None,
    *,
    validation_data: Data | None = None,
    callbacks: CallbackSource | str = (),
    **settings: Any,
) -> RunResult:
    """Trains a model.

    With `train_dir`, the run continues from the newest checkpoint there and saves one
    at its end.  An interrupt (Ctrl-C, a notebook's stop button) saves one, too, before
    KeyboardInterrupt is raised; the same call then continues the run.

    Args:
      model: the model, or its name as in `--model`.
      data: the data to train on, or its name; None for the model's own data set.
      validation_data: the data to evaluate on, or its name.
      callbacks: TensorFlow's `SessionRunHook`s, among them those of
        `towers.callbacks`; or a function that returns them, or its name as in
        `--callbacks`.
      **settings: flags of `towers.train`, by their names.

    Raises:
      ValueError: a setting is wrong, model and data do not fit, or a callback failed.
      towers.callbacks.base.TrainingError: the run had to stop.
      KeyboardInterrupt: SIGINT came; what `train_dir` has is whole.
      SystemExit: another signal came, as SIGTERM; with 128 + its number.
    """
    if isinstance(callbacks, str):
        settings, callbacks = {**settings, "callbacks": callbacks}, ()
    plan = _plan(model, settings, data, validation_data, callbacks=callbacks)
    directory = plan.config.output.train_dir
    results: list[RunResult] = []
    with (
        _explained(plan, saves=True),
        output_paths.held(f"train_dir={directory}", directory) as lock,
    ):
        console = Console(sys.stdout, in_python)
        if status := run.train(plan, console, lock=lock, ended=results.append):
            raise Interrupted(status - 128)
    return results[-1]


def evaluate(
    model: Model | str, data: Data, *, train_dir: str, **settings: Any
) -> dict[str, Any]:
    """Evaluates the newest checkpoint of a run.

    Args:
      model: or its name, as `--model` has it.
      data: to evaluate on, or its name.
      train_dir: of the run.
      **settings: flags of `towers.train`, by their names.

    Returns:
      means over all examples, by name: `loss`, the metrics (of wider ones the sums, in
      arrays), and what the model derives from them.

    Raises:
      ValueError: a setting is wrong, model and data do not fit, or there is no
        checkpoint.
    """
    settings = {**settings, "train_dir": train_dir, "eval": True}
    plan = _plan(model, settings, data, data, call="towers.evaluate")
    console = Console(sys.stdout, in_python)

    attached = restored(plan, console, lambda v: evaluator.attach_to(plan, v.mode))
    with _explained(plan), attached as (session, graph):
        result = eval_graph.run(graph, session, step=0)
    assert result is not None  # nobody stopped it
    return plan.model.with_derived(result.values)


def predict(model: Model | str, data: Data, *, train_dir: str, **settings: Any) -> Any:
    """What the last block returns for each example, by the newest checkpoint of a run.

    Args:
      model: or its name, as `--model` has it.
      data: to predict, or its name; its labels and weights are not looked at.
      train_dir: of the run.
      **settings: flags of `towers.train`, by their names.

    Returns:
      a nest of arrays [examples, ...] in the order of the data, floats as float32.

    Raises:
      ValueError: a setting is wrong, model and data do not fit, or there is no
        checkpoint.
    """
    settings = {**settings, "train_dir": train_dir, "eval": True}
    plan = _plan(model, settings, data, data, call="towers.predict")
    with _explained(plan):
        return predictions.predict(plan, Console(sys.stdout, in_python))


def _plan(
    model: Model | str,
    settings: dict[str, Any],
    data: Data | None,
    validation_data: Data | None,
    *,
    call: str = "towers.fit",
    callbacks: CallbackSource = (),
) -> Plan:
    """The plan of a run with these settings.

    Raises:
      ValueError: it cannot be made; the sentences name settings as Python has them.
    """
    # Each session has threads of its own.  Otherwise those of the first in the process
    # would be for all, and calls that follow would differ by rounding from a command.
    os.environ.setdefault("TF_OVERRIDE_GLOBAL_THREADPOOL", "1")
    wanted = "the result of a function of towers.data, such as from_arrays, or a name"
    _check_kind("model", model, Model | str, "a models.Model, or a name")
    _check_kind("data", data, Examples | str | None, wanted)
    _check_kind("validation_data", validation_data, Examples | str | None, wanted)
    if isinstance(data, str):
        settings = {**settings, "data_name": data}
    if isinstance(model, str):
        settings = {**settings, "model": model}
    plain = {name: _plain(value) for name, value in settings.items()}
    config = flags_config.make(**plain)
    if problems := flags_config.check(config, choices.CHOICES):
        raise SettingError(*(problem.of_program("eval", call) for problem in problems))

    def find_sources(
        config: Config, model: Model
    ) -> tuple[NamedSource, NamedSource | None]:
        if not isinstance(data, Examples):
            source, eval_source = planning.sources_of(config, model)
            if not isinstance(validation_data, Examples):
                return source, eval_source
        request = Request.of(config, model)
        if isinstance(data, Examples):
            source = ExampleSource(data, request, training=True)
        if validation_data is None:
            return source, None
        if isinstance(validation_data, str):
            return source, inputs.get(validation_data, request, training=False)
        return source, ExampleSource(validation_data, request, training=False)

    return planning.make(
        config,
        models.get if isinstance(model, str) else lambda _: model,
        find_sources=find_sources,
        callbacks=callbacks,
    )


def _check_kind(name: str, value: object, kinds: Any, wanted: str) -> None:
    """Checks the type of an argument.

    Raises:
      ValueError: it is another one.
    """
    if not isinstance(value, kinds):
        raise ValueError(f"{name} is a {type(value).__name__}; give {wanted}")


def _plain(value: Any) -> Any:
    """A setting as flags have it: Python's numbers and text, tuples for sequences."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.generic | np.ndarray):
        return _plain(value.tolist())
    return tuple(map(_plain, value)) if isinstance(value, tuple | list) else value


@contextlib.contextmanager
def _explained(plan: Plan, *, saves: bool = False) -> Iterator[None]:
    """Turns errors of TensorFlow that users can mend into a sentence.

    A signal ends a program that does not catch it as in other programs, with 128 + its
    number.  Python does that for KeyboardInterrupt only if it is no subclass.

    Raises:
      ValueError: there was such an error.
      KeyboardInterrupt, SystemExit: as in `fit`.
    """
    try:
        yield
    except Interrupted as stopped:
        if stopped.status == 128 + signal.SIGINT:
            raise KeyboardInterrupt(*stopped.args) from None
        raise SystemExit(stopped.status) from None
    except tf.errors.OpError as error:
        sources = [s for s in (plan.source, plan.eval_source) if s is not None]
        if damage := inputs.explain(error, *sources):
            if saves:
                damage += f"; {checkpoint.left(plan.config.output.train_dir)}"
            raise ValueError(damage) from error
        if problem := explain.operation_error(error):
            raise SettingError(problem) from error
        raise
