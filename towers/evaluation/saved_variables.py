"""Variables with a checkpoint's values, in a graph that does not train."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import tensorflow as tf

from flags.problem import wrong_setting
from towers.checkpoints import checkpoint, constants, contents
from towers.cluster.sessions import Local, session_config
from towers.layout.parts import joined
from towers.planning import Plan
from towers.session.progress import Console
from towers.variable_update.modes import DEFAULT, VARIABLE_UPDATES

v1 = tf.compat.v1

Attached = TypeVar("Attached")

_AVERAGE = f"/{contents.AVERAGE}"  # after the name of a variable


class SavedVariables:
    """Creates variables in the current graph, and gives them a checkpoint's values.

    Args:
      plan: of the run.

    Attributes:
      mode: creates the variables that towers read.
      counters: `global_step` and `position`, int64 scalars.
    """

    def __init__(self, plan: Plan):
        directory = plan.config.output.train_dir
        assert directory is not None  # of the program that evaluates
        self._plan, self._directory = plan, directory
        self._checkpoints: checkpoint.Checkpoints | None = None
        self.mode = VARIABLE_UPDATES[DEFAULT](plan.placement)
        self.counters: dict[str, tf.Variable] = {}

    def made(self, console: Console) -> None:
        """Must be called after the towers are made."""
        plan, mode = self._plan, self.mode
        with tf.device(plan.placement.master):  # whose disk holds the files
            self.counters = {
                name: v1.get_variable(name, [], tf.int64, use_resource=True)
                for name in ("global_step", "position")
            }
            held = constants.of(plan.source, plan.placement.master)
            names = _names(mode.variables, plan.update.ema_decay)
            self._checkpoints = checkpoint.Checkpoints(
                self._directory,
                joined(names, mode.wholes) | self.counters | held,
                partial=True,
                log=console,
            )

    def restore(self, session: v1.Session) -> str | None:
        """Gives the variables the values of the newest whole checkpoint.

        Returns:
          its path; None if there is none.

        Raises:
          ValueError: it is of another model, or holds moving averages that no flag
            asks for.
        """
        assert self._checkpoints is not None  # `made` was called
        path = self._checkpoints.restore(session)
        if path:
            self._check_averages(path)
        return path

    def _check_averages(self, path: str) -> None:
        """Refuses to ignore a checkpoint's moving averages unless `ema_decay` is set.

        Training evaluated them, so the reported accuracy is theirs.
        """
        ema_decay = self._plan.config.optimizer.ema_decay
        if ema_decay is not None or self._plan.update.ema_decay:
            return
        names: dict[str, list[int]] = {}
        with contextlib.suppress(tf.errors.OpError, ValueError):  # deleted meanwhile
            names = contents.of(path)
        if any(name.endswith(_AVERAGE) for name in names):
            raise wrong_setting(
                "ema_decay",
                None,
                f"{path} holds moving averages",
                "give the value of the training to evaluate them, or `ema_decay=0` to "
                "evaluate the variables themselves",
            )


@contextlib.contextmanager
def restored(
    plan: Plan,
    console: Console,
    attach: Callable[[SavedVariables], Attached],
) -> Iterator[tuple[v1.Session, Attached]]:
    """A session in which the variables have the values of the newest checkpoint.

    Args:
      plan: of a run with a `train_dir`.
      console: takes lines for the user.
      attach: adds the towers to the graph.

    Yields:
      the session, and what `attach` returned.

    Raises:
      ValueError: there is no checkpoint, or it is of another model.
    """
    with tf.Graph().as_default() as graph:
        variables = SavedVariables(plan)
        attached = attach(variables)
        variables.made(console)
    config = session_config(plan.placement, plan.config.devices)
    with Local().open(graph, config) as session:
        if variables.restore(session) is None:
            directory = plan.config.output.train_dir
            raise wrong_setting("train_dir", directory, "there is no checkpoint in it")
        yield session, attached


def _names(variables: dict[str, tf.Variable], ema_decay: float) -> dict[str, Any]:
    """Checkpoint name -> variable; with `ema_decay`, the names of moving averages."""
    if not ema_decay:
        return variables
    return {
        f"{name}{_AVERAGE}" if variable.trainable else name: variable
        for name, variable in variables.items()
    }
