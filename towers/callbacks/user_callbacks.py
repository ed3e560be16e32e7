"""Creates the user's callbacks, adds them to the graph and reports their errors.

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

# Callbacks, or a function that returns them, with the train graph or no argument.
CallbackSource = Callable[..., Sequence[SessionRunHook]] | Sequence[SessionRunHook]

# Interval of the steps that a plain hook sees if every tower updates by itself.
_APART = 100

_OURS = "towers.callbacks"

_FINALIZED = "Graph is finalized"  # TensorFlow's words


def callbacks_of(config: Config, given: CallbackSource = ()) -> CallbackSource:
    """The callbacks of a run; none if nothing is trained.

    Args:
      config: the settings.
      given: callbacks in place of the function named by `--callbacks`.

    Raises:
      ValueError: there is no such function.
    """
    name = config.training.callbacks
    if config.evaluation.eval or config.training.trains_nothing:
        return ()
    return given or (load_function("callbacks", name) if name else ())


class CallbackError(ValueError):
    """A user's callback failed; the message says where."""


def attach(
    source: CallbackSource, run: TrainingRun
) -> tuple[list["GuardedCallback"], TrainGraph]:
    """Creates the callbacks and lets them extend the run's graph, the current one.

    Args:
      source: the callbacks, or a function that returns them.
      run: their run.

    Returns:
      The callbacks, and the train graph with the variables they have added.

    Raises:
      CallbackError: the function or a callback fails, or a value is no callback.
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
      CallbackError: the function fails, or returns anything but callbacks.
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
    except ValueError:  # some functions written in C have no signature
        pass
    return False


def _add_saver(train: TrainGraph) -> None:
    """Adds the saver that TensorFlow's CheckpointSaverHook looks for."""
    with tf.device(train.placement.master), v1.name_scope(graph_names.CHECKPOINT):
        saver = v1.train.Saver(train.saved | train.constants)
    v1.add_to_collection(v1.GraphKeys.SAVERS, saver)


@contextlib.contextmanager
def saved_on_failure(
    checkpoints: Saving | None, train: TrainGraph, session: v1.Session
) -> Iterator[None]:
    """Saves a checkpoint if a callback fails inside the `with` statement.

    Raises:
      CallbackError: a callback failed.
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
    """A user's callback; its errors are raised as `CallbackError`.

    Its `set_up`, `begin` and `after_create_session` are called by `add_to_graph` and
    `start`, before the loop begins.

    Args:
      hook: the callback.
      run: its run.

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
        """Calls `set_up`, if it has one, and `begin`."""
        self._call("set_up", run)
        self._call("begin")

    def start(self, session: v1.Session) -> None:
        """Calls `after_create_session`."""
        self._call("after_create_session", session, None)

    def next_due(self, step: int) -> int:
        """The callback's own `next_due`; for a plain hook, every step.

        If every tower updates by itself, only the first tower takes a step that a hook
        sees; so a plain hook sees one step in a hundred.
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
        """Passes on the values of a step."""
        self._looked = True
        self._call("after_run", run_context, run_values)

    def after_steps(self, step: int, losses: np.ndarray, seconds: float) -> None:
        """Passes on the values of several steps."""
        self._looked = False
        self._call("after_steps", step, losses, seconds)

    def after_evaluation(
        self, run_context: RunContext, step: int, metrics: Mapping[str, float]
    ) -> None:
        """Passes on the results of an evaluation if the callback has the method."""
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
            raise  # a task was lost, which is no error of the callback
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
            return CallbackError(str(error))  # its message names the callback
        return CallbackError(f"{type(self.hook).__name__}.{name} failed: {words}")

    def _check(self, args: Any, graph: tf.Graph) -> None:
        """Checks what the callback's `before_run` returns for the first step.

        Raises:
          CallbackError: it is no `SessionRunArgs`, or fetches what the graph lacks.
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
