"""Saves a run, also if its folder is removed or the disk is full."""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from flags.sections import OutputFlags
from towers.checkpoints.checkpoint import CheckpointError, Checkpoints, FiniteCheck
from towers.errors.collected import warn
from towers.errors.lock import HeldError, Lock
from towers.errors.output_paths import OutputError, check_room

v1 = tf.compat.v1


class TakenError(OutputError):
    """Another run uses the folder now; nothing was written to it."""


class Saving:
    """The checkpoints of a run.

    Args:
      checkpoints: of its folder.
      lock: of that folder, or None.
      retry_secs: how long `attempt` may fail; None for no limit.
      log: takes lines for the user.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        lock: Lock | None = None,
        *,
        retry_secs: float | None = None,
        log: Callable[[str], None] = print,
    ):
        self._checkpoints = checkpoints
        self._lock = lock
        self._retry_secs = math.inf if retry_secs is None else retry_secs
        self._log = log
        self._failing_since: float | None = None

    def restore(self, session: v1.Session) -> str | None:
        """As in `Checkpoints`."""
        return self._checkpoints.restore(session)

    def save(self, session: v1.Session, step: int) -> str:
        """Writes the checkpoint of this global step, unless it was the last one.

        On a full disk the oldest are deleted, which later ones would have replaced, but
        not the last complete one.

        Raises:
          CheckpointError: it was not written.
          NotFiniteError: a variable is not finite.
          TakenError: another run uses the folder, or has used it.
        """
        self._follow()
        while True:
            try:
                return self._checkpoints.save(session, step)
            except CheckpointError as error:
                path = self._checkpoints.make_room(step) if error.is_full else None
                if path is None:
                    raise
                self._log(f"The disk is full: {path} is deleted to make room.")

    def attempt(self, session: v1.Session, step: int) -> bool:
        """As `save`, but an error of writing does not end the run at once.

        Returns:
          whether the checkpoint was written.

        Raises:
          CheckpointError: for `retry_secs` no checkpoint could be written.
          NotFiniteError, TakenError: as from `save`.
        """
        try:
            self.save(session, step)
        except CheckpointError as error:
            now = time.monotonic()
            if self._failing_since is None:
                self._failing_since = now
                warn(f"{error}; training goes on, and it is tried again")
            if now - self._failing_since >= self._retry_secs:
                raise
            return False
        if self._failing_since is not None:
            warn(f"checkpoints can be written again: that of step {step} is")
            self._failing_since = None
        return True

    def _follow(self) -> None:
        """Continues in the folder at the path, if that is another folder now."""
        directory = self._checkpoints.directory
        try:
            moved = self._lock is not None and self._lock.renew()
        except HeldError as error:
            raise TakenError(_taken(directory, str(error))) from error
        except OSError as error:
            raise CheckpointError(
                f"{directory} is gone and cannot be made again ({error.strerror})"
            ) from error
        if not moved:
            return
        if not self._checkpoints.begin_anew():
            raise TakenError(_taken(directory, "it holds checkpoints of another run"))
        self._log(
            f"{directory} was moved away or removed; it is made again, and the run "
            "goes on there."
        )


def set_up(
    output: OutputFlags,
    variables: Mapping[str, Any],
    num_steps: int,
    *,
    finite: FiniteCheck,
    lock: Lock | None,
    log: Callable[[str], None],
) -> Saving | None:
    """The checkpoints of a run; adds their operations to the graph.

    Args:
      output: the section of the settings.
      variables: to save, by name in a checkpoint.
      num_steps: global step at which an uninterrupted run ends.
      finite: finds variables that are not finite.
      lock: of the folder.
      log: takes lines for the user.

    Raises:
      ValueError: the disk has no room for the checkpoints that will be kept.
    """
    if not output.train_dir:
        return None
    checkpoints = Checkpoints(
        output.train_dir,
        variables,
        max_to_keep=output.max_ckpts_to_keep,
        finite=finite,
        log=log,
    )
    # With --save_model_secs the number is unknown, but at most one per step.
    every = output.save_model_steps or (1 if output.save_model_secs else 0)
    if output.save_model_secs and not output.max_ckpts_to_keep:
        every = num_steps
    check_room("train_dir", output.train_dir, checkpoints.needed(num_steps, every))
    return Saving(checkpoints, lock, retry_secs=output.save_retry_secs, log=log)


def _taken(directory: str, why: str) -> str:
    return (
        f"{directory} was moved away or removed, and in its place {why}; nothing is "
        "overwritten, and what was not saved before is lost"
    )
