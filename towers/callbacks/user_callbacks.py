"""The user's own callbacks: made, added to the graph, and guarded.

`--callbacks=path/to/file.py:function` names a function that returns them:

    def function(train):  # the train graph; or no argument
        return [tf.compat.v1.train.StepCounterHook(), towers.callbacks.CsvLog()]
"""

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from flags.config import Config
from models import user_errors
from models.load import load_function
from towers.callbacks.base import (
    Callback,
    RunArgs,
    RunContext,
    RunValues,
    TrainingRun,
)
from towers.checkpoints.checkpoint import LOST
from towers.checkpoints.contents import CALLBACKS
from towers.checkpoints.saving import Saving
from towers.errors.output_paths import OutputError
from towers.graph import TrainGraph
from towers.layout import graph_names
from towers.layout.graph_names import checkpoint_name

v1 = tf.compat.v1

SessionRunHook: TypeAlias = v1.train.SessionRunHook

# Callbacks, or the function that makes them of the train graph or of nothing.
CallbackSource = Callable[..., Sequence[SessionRunHook]] | Sequence[SessionRunHook]

# Steps between two that a plain hook sees where towers step apart.
_APART = 100

_OURS = "towers.callbacks"

_FINALIZED = "Graph is finalized"  # TensorFlow's words


def callbacks_of(config: Config) -> CallbackSource:
    """The function that `--callbacks` names; none, where nothing is trained.

    Raises:
      ValueError: there is no such function.
    """
    name = config.training.callbacks
    if not name or config.evaluation.eval:
        return ()
    return load_function("callbacks", name)


class CallbackError(ValueError):
    """A callback of the user's failed; the sentence says where."""


def attach(
    source: CallbackSource, run: TrainingRun
) -> tuple[list["GuardedCallback"], TrainGraph]:
    """Makes the callbacks and lets them add to the current graph, the run's.

    Args:
      source: the callbacks, or what makes them.
      run: that they are part of.

    Returns:
      the callbacks, and the train graph with the variables that they have added.

    Raises:
      CallbackError: the function or a callback fails, or they are no callbacks.
    """
    train, before = run.train, {v.ref() for v in v1.global_variables()}
    with tf.device(train.placement.counters):
        callbacks = [GuardedCallback(hook, run) for hook in _made(source, train)]
        if any(isinstance(c.hook, v1.train.CheckpointSaverHook) for c in callbacks):
            _add_saver(train)
        for callback in callbacks:
            callback.add_to_graph(run)
        variables = [v for v in v1.global_variables() if v.ref() not in before]
        initializer = train.initializer
        if variables:
            with v1.name_scope(graph_names.VARIABLES):
                theirs = v1.variables_initializer(variables)
                initializer = tf.group(initializer, theirs)
    names = [checkpoint_name(v).removeprefix(CALLBACKS) for v in variables]
    added = {CALLBACKS + name: v for name, v in zip(names, variables)}
    saved = train.saved | added
    return callbacks, train._replace(saved=saved, initializer=initializer)


def _made(source: CallbackSource, train: TrainGraph) -> Sequence[SessionRunHook]:
    """The callbacks of a source.

    Raises:
      CallbackError: the function fails, or there are others.
    """
    hooks: Any = source
    whose = "callbacks"
    if callable(source):
        whose = getattr(source, "__name__", "the function of callbacks")
        try:
            hooks = source(train) if _takes_graph(source) else source()
        except Exception as error:  # a user's code may raise anything
            words = user_errors.sentence(error, source)
            raise CallbackError(f"{whose} of callbacks failed: {words}") from error
    if isinstance(hooks, v1.train.SessionRunHook):
        hooks = [hooks]
    if not isinstance(hooks, list | tuple):
        words = f"{whose} is {type(hooks).__name__}"
        if callable(source):
            words = f"{whose} returned {type(hooks).__name__}"
        raise CallbackError(f"{words}; it must be a callback, or a list of callbacks")
    for hook in hooks:
        if not isinstance(hook, v1.train.SessionRunHook):
            words = "is no tf.compat.v1.train.SessionRunHook"
            if isinstance(hook, type):
                words += "; write () after its name"
            raise CallbackError(f"{whose}: {hook!r:.100} {words}")
    return hooks


def _takes_graph(source: Callable[..., Any]) -> bool:
    """Whether a function takes the train graph."""
    try:
        inspect.signature(source).bind()
    except TypeError:
        return True
    except ValueError:  # some that are written in C do not say what they take
        pass
    return False


def _add_saver(train: TrainGraph) -> None:
    """Adds the one that TensorFlow's CheckpointSaverHook looks for."""
    with tf.device(train.placement.master), v1.name_scope(graph_names.CHECKPOINT):
        saver = v1.train.Saver(train.saved | train.constants)
    v1.add_to_collection(v1.GraphKeys.SAVERS, saver)


@contextlib.contextmanager
def saved_on_failure(
    checkpoints: Saving | None, train: TrainGraph, session: v1.Session
) -> Iterator[None]:
    """Where a callback inside fails, what was trained is saved.

    Raises:
      CallbackError: it failed.
    """
    try:
        yield
    except CallbackError as error:
        where = "nothing was saved"
        if checkpoints is not None:
            step = int(session.run(train.global_step))
            try:
                where = f"the run is saved in {checkpoints.save(session, step)}"
            except OutputError as failure:
                where = str(failure)
        error.args = (f"{error}; {where}",)
        raise


class GuardedCallback(Callback):
    """A callback of the user's, whose errors become one sentence.

    Its `set_up`, `begin` and `after_create_session` are called by `add_to_graph` and
    `start`, before the loop begins.

    Args:
      hook: the callback.
      run: that it is part of.

    Attributes:
      hook: the callback.
    """

    def __init__(self, hook: SessionRunHook, run: TrainingRun):
        self.hook = hook
        loop = run.train.loop
        self._steps_apart = loop is not None and loop.free
        self._looked = True  # whether a step was seen by itself since many were taken
        self._checked = False

    def add_to_graph(self, run: TrainingRun) -> None:
        """Calls `set_up`, where there is one, and `begin`."""
        self._call("set_up", run)
        self._call("begin")

    def start(self, session: v1.Session) -> None:
        """Calls `after_create_session`."""
        self._call("after_create_session", session, None)

    def next_due(self, step: int) -> int:
        """As a `Callback` says; a plain hook sees every step.

        Where towers step apart, a step that is seen is one of the first tower alone, so
        that a plain hook sees one of every hundred.
        """
        if isinstance(self.hook, Callback):
            return self._call("next_due", step)
        return step + (_APART if self._steps_apart and self._looked else 1)

    def before_run(self, run_context: RunContext) -> RunArgs | None:
        """What the callback fetches and feeds."""
        args = self._call("before_run", run_context)
        if args is not None and not self._checked:
            self._check(args, run_context.session.graph)
        return args

    def after_run(self, run_context: RunContext, run_values: RunValues) -> None:
        """Hands on what the step brought."""
        self._looked = True
        self._call("after_run", run_context, run_values)

    def after_steps(self, step: int, losses: np.ndarray, seconds: float) -> None:
        """Hands on what several steps brought."""
        self._looked = False
        self._call("after_steps", step, losses, seconds)

    def after_evaluation(
        self, run_context: RunContext, step: int, metrics: Mapping[str, float]
    ) -> None:
        """Hands on what an evaluation brought, where there is a method for it."""
        self._call("after_evaluation", run_context, step, metrics)

    def end(self, session: v1.Session) -> None:
        """Ends it."""
        self._call("end", session)

    def _call(self, name: str, *args: Any) -> Any:
        """Calls a method if there is one of this name.

        Raises:
          CallbackError: it fails.
        """
        method = getattr(self.hook, name, None)
        if method is None:
            return None
        try:
            return method(*args)
        except LOST:
            raise  # a task is gone: it says nothing about the callback
        except Exception as error:  # a user's code may raise anything
            raise self._error(name, method, error) from error

    def _error(self, name: str, method: Any, error: Exception) -> CallbackError:
        words = user_errors.sentence(error, method)
        if isinstance(error, RuntimeError) and _FINALIZED in str(error):
            where = user_errors.place(error)
            words = (
                "it adds to the graph, which is complete once training begins; make "
                "operations and variables in begin" + (f" ({where})" if where else "")
            )
        if type(self.hook).__module__.startswith(_OURS) and type(error) is ValueError:
            return CallbackError(str(error))  # it says whose it is
        return CallbackError(f"{type(self.hook).__name__}.{name} failed: {words}")

    def _check(self, args: Any, graph: tf.Graph) -> None:
        """Looks at the first arguments for a step.

        Raises:
          CallbackError: they are no `SessionRunArgs`, or fetch what is not there.
        """
        whose = f"{type(self.hook).__name__}.before_run"
        if not isinstance(args, v1.train.SessionRunArgs):
            raise CallbackError(
                f"{whose} returned {type(args).__name__}; return a "
                "tf.compat.v1.train.SessionRunArgs, or nothing"
            )
        for fetch in tf.nest.flatten(args.fetches, expand_composites=True):
            try:
                if fetch is not None:
                    graph.as_graph_element(fetch)
            except (KeyError, TypeError, ValueError) as error:
                words = f"{whose} fetches {fetch!r}, which is not in the graph"
                raise CallbackError(words) from error
        self._checked = True
