"""Saves a run, also if its folder is removed or the disk is full."""

import concurrent.futures
import contextlib
import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from flags.output import OutputFlags
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
      in_thread: whether a thread writes the checkpoints of `attempt`.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        lock: Lock | None = None,
        *,
        retry_secs: float | None = None,
        log: Callable[[str], None] = print,
        in_thread: bool = False,
    ):
        self._checkpoints = checkpoints
        self._in_thread = in_thread
        self._writing: concurrent.futures.Future[str] | None = None
        self._step = 0  # whose checkpoint is being written
        self._lines: list[str] = []  # of the thread, for the user
        if in_thread:
            checkpoints.hold_values()
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
        with contextlib.suppress(CheckpointError):  # this one takes its place
            self._wait()
        self._checkpoints.hold(session)
        try:
            return self._write(session, step)
        finally:
            self._tell()

    def _write(self, session: v1.Session, step: int) -> str:
        """Writes the held values, or the variables where none are held."""
        self._follow()
        while True:
            try:
                path = self._checkpoints.save(session, step)
                self._checkpoints.release(session)
                return path
            except CheckpointError as error:
                removed = self._checkpoints.make_room(step) if error.is_full else None
                if removed is None:
                    raise
                words = f"The disk is full: {removed} is deleted to make room."
                self._lines.append(words)

    def _tell(self) -> None:
        """Logs what was done while a checkpoint was written."""
        lines, self._lines = self._lines, []
        for line in lines:
            self._log(line)

    def attempt(self, session: v1.Session, step: int) -> bool:
        """As `save`, but an error of writing does not end the run at once.

        With `in_thread`, it waits for the thread's last checkpoint, and starts the
        thread of this one.

        Returns:
          whether the checkpoint was written; with `in_thread`, whether it was begun.

        Raises:
          CheckpointError: for `retry_secs` no checkpoint could be written.
          NotFiniteError, TakenError: as from `save`, or of the thread's last one.
        """
        if not self._in_thread:
            return self._tried(lambda: self.save(session, step), step)
        if self._writing and not self._tried(self._wait, self._step):
            return False
        self._checkpoints.hold(session)
        writing: concurrent.futures.Future[str] = concurrent.futures.Future()
        self._writing, self._step = writing, step

        def write() -> None:
            try:
                writing.set_result(self._write(session, step))
            except BaseException as error:  # it is raised where the result is read
                writing.set_exception(error)

        threading.Thread(target=write, name="checkpoint", daemon=True).start()
        return True

    def has_failed(self) -> bool:
        """Whether the thread has ended, and could not write its checkpoint.

        Raises:
          CheckpointError, NotFiniteError, TakenError: as from `attempt`.
        """
        ended = self._writing is not None and self._writing.done()
        return ended and not self._tried(self._wait, self._step)

    def __enter__(self) -> "Saving":
        """The end of the `with` block waits for the thread."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # An error of the block is to be raised, rather than one of the thread.  Without
        # any, the last checkpoint of the run takes the place of one that failed.
        with contextlib.suppress(CheckpointError if kind is None else Exception):
            self._wait()

    def _wait(self) -> None:
        """Waits for the thread; raises its error."""
        if self._writing is None:
            return
        try:
            self._writing.result()
        finally:
            if self._writing.done():
                self._writing = None
                self._tell()

    def _tried(self, act: Callable[[], object], step: int) -> bool:
        """Whether an act that writes the checkpoint of a step has done so."""
        try:
            act()
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
    return Saving(
        checkpoints,
        lock,
        retry_secs=output.save_retry_secs,
        log=log,
        in_thread=output.async_checkpoint,
    )


def _taken(directory: str, why: str) -> str:
    return (
        f"{directory} was moved away or removed, and in its place {why}; nothing is "
        "overwritten, and what was not saved before is lost"
    )
