"""Checkpoints that are independent of the layout, written by TensorFlow's `Saver`.

A checkpoint contains the variables, the optimizer's slots, the moving averages, the
global step and the input position.  The names do not depend on the number of towers.
It also contains constants that must be equal in a run that continues from it (see
`constants`).
"""

import contextlib
import errno
import glob
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf

from towers.checkpoints import constants, contents
from towers.checkpoints.held_values import HeldValues
from towers.checkpoints.loading import Loaders
from towers.errors import explain
from towers.errors.output_paths import OutputError
from towers.layout import graph_names, parts
from towers.layout.graph_names import checkpoint_name

v1 = tf.compat.v1

_NAME = "model.ckpt"  # of the files, up to the step

# Errors of a session call when a task of its cluster is lost.
LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
)


class CheckpointError(OutputError):
    """A checkpoint was not written; the ones before it are whole.

    Attributes:
      is_full: whether the disk, or the user's quota, is full.
    """

    def __init__(self, text: str, *, is_full: bool = False):
        super().__init__(text)
        self.is_full = is_full


class NotFiniteError(OutputError):
    """A variable has values that are not finite.

    Attributes:
      step: after which it has them.
    """

    def __init__(self, text: str, step: int):
        super().__init__(text)
        self.step = step


class FiniteCheck:
    """A check, on the variables' own devices, that their values are finite.

    Args:
      variables: by name, of the current graph.
    """

    def __init__(self, variables: Mapping[str, tf.Variable | parts.Parts]):
        self._fine, scope = {}, f"{graph_names.CHECKPOINT}finite/"
        for whole in variables.values():
            for variable in parts.each(whole):
                if variable.dtype.is_floating:
                    with tf.device(variable.device), v1.name_scope(scope):
                        fine = tf.math.is_finite(variable.read_value())
                        self._fine[checkpoint_name(variable)] = tf.reduce_all(fine)

    def broken(self, session: v1.Session) -> str | None:
        """The name of the first variable that is not finite, or None."""
        finite = session.run(self._fine)
        return next((name for name, fine in finite.items() if not fine), None)


class Checkpoints:
    """The checkpoints of one directory.

    Args:
      directory: made if there is none.
      variables: checkpoint name -> variable.
      max_to_keep: older checkpoints are deleted; 0 keeps all.
      partial: whether a checkpoint may contain more than `variables`.
      finite: of the variables; no checkpoint is written if one is not finite.
      log: takes lines for the user.

    Attributes:
      directory: as given.
    """

    def __init__(
        self,
        directory: str,
        variables: Mapping[str, tf.Variable | parts.Parts],
        *,
        max_to_keep: int = 5,
        partial: bool = False,
        finite: FiniteCheck | None = None,
        log: Callable[[str], None] = print,
    ):
        self.directory = os.fspath(directory)
        self._variables = dict(variables)
        self._constants = constants.values(variables)
        self._partial = partial
        self._log = log
        self._max_to_keep = max_to_keep
        with v1.name_scope(graph_names.CHECKPOINT):
            self._saver = v1.train.Saver(
                self._variables, max_to_keep=max_to_keep, save_relative_paths=True
            )
            self._loaders = Loaders(self._variables, log)
        self._finite: FiniteCheck | HeldValues | None = finite
        self._held: HeldValues | None = None
        self._saved_step = -1
        self._cleared = False
        self._known: set[tuple] = set()  # the files that were saved here or restored

    def hold_values(self) -> None:
        """From now on `save` writes what `hold` has held."""
        with v1.name_scope(graph_names.CHECKPOINT):
            self._finite = self._held = HeldValues(self._saver)
        self._saver = self._held.saver

    def hold(self, session: v1.Session) -> None:
        """Holds the values of this step until `release`; for `hold_values` only."""
        if self._held:
            self._held.hold(session)

    def release(self, session: v1.Session) -> None:
        """Frees the memory of what is held."""
        if self._held:
            self._held.release(session)

    def needed(self, last_step: int, every: float) -> int:
        """The bytes that must be free on the disk when a run starts.

        They are those of the checkpoints that it keeps and of the one being written,
        minus those of existing ones that will be replaced.

        Args:
          last_step: the global step at which it ends.
          every: steps between checkpoints; 0 if it saves at the end only.
        """
        kinds = [v for whole in self._variables.values() for v in parts.each(whole)]
        size = sum(kind.dtype.size * kind.shape.num_elements() for kind in kinds)
        there, newest = len(_listed(self.directory)), latest(self.directory)
        left = last_step - (_step_of(newest) if newest else 0)
        writes = 1 + (max(0, left) // every if every else 0)
        if self._max_to_keep:
            writes = min(writes, max(1, self._max_to_keep + 1 - there))
        return size * int(writes)

    def save(self, session: v1.Session, step: int) -> str:
        """Writes the checkpoint of this global step, unless it was the last one.

        Raises:
          CheckpointError: the disk is full or the directory is gone.
          NotFiniteError: a variable is not finite.
        """
        path = os.path.join(self.directory, _NAME)
        if step == self._saved_step:
            return f"{path}-{step}"
        if self._finite and (broken := self._finite.broken(session)):
            raise NotFiniteError(
                f"variable {broken} is not finite after step {step}, so no "
                f"checkpoint was written; lower the learning rate; "
                f"{self._last_whole()}",
                step,
            )
        try:
            os.makedirs(self.directory, exist_ok=True)
            if not self._cleared:
                _clear(self.directory, step)
                self._cleared = True
            with session.graph.as_default():
                path = self._saver.save(
                    session, path, global_step=step, write_meta_graph=False
                )
        except LOST:
            raise  # it says nothing about the disk
        except (tf.errors.OpError, OSError, ValueError) as error:
            self._cleared = False  # of what was begun
            raise CheckpointError(
                f"the checkpoint of step {step} could not be written to "
                f"{self.directory} ({explain.cause(error)}); {self._last_whole()}",
                is_full=_is_full(error),
            ) from error
        self._saved_step = step
        self._known.add(files(path))
        return path

    def make_room(self, step: int) -> str | None:
        """Deletes the oldest checkpoint that a later one would replace.

        Args:
          step: of the one that is being written.

        Returns:
          its path; None if only the last whole one is left, or all are to be kept.
        """
        for path in self._saver.last_checkpoints:
            if _step_of(path) not in (self._saved_step, step):
                # The index first: without it, the rest does not count as a checkpoint.
                for name in sorted(glob.glob(f"{glob.escape(path)}.*"), reverse=True):
                    os.remove(name)
                self._keep(set(self._saver.last_checkpoints) - {path})
                return path
        return None

    def begin_anew(self) -> bool:
        """Continues in another folder at the same path.

        Returns:
          whether it has only this run's checkpoints, and can be written to.
        """
        there = all_paths(self.directory)
        if any(files(path) not in self._known for path in there):
            return False
        self._keep(there)
        if self._saved_step not in map(_step_of, there):
            self._saved_step = -1
        self._cleared = False
        return True

    def adopt(self) -> None:
        """Takes those that are there for its own: the oldest will be deleted."""
        self._keep(_listed(self.directory))

    def _keep(self, paths: Iterable[str]) -> None:
        """Makes these the saved checkpoints, the oldest of which are deleted."""
        saved = []
        for path in sorted(paths, key=_step_of):
            with contextlib.suppress(OSError):  # deleted meanwhile
                saved.append((path, os.stat(path + ".index").st_mtime))
        self._saver.set_last_checkpoints_with_time(saved)

    def restore(self, session: v1.Session) -> str | None:
        """Loads the newest checkpoint that can be read.

        Returns:
          its path, or None when the directory holds no checkpoint.

        Raises:
          ValueError: the checkpoint is of another model or has other constants (the
            sentence names what differs), or none of several can be read.
        """
        while True:
            paths = all_paths(self.directory)
            if path := self._restore_one_of(paths, session):
                return path
            # A run may have replaced them meanwhile.
            if paths == all_paths(self.directory):
                break
        if paths:
            raise ValueError(
                f"none of the {len(paths)} checkpoints in {self.directory} can be "
                "read; move them away to start anew"
            )
        return None

    def _restore_one_of(self, paths: list[str], session: v1.Session) -> str | None:
        """Loads the last of these that can be read; returns its path, or None."""
        for path in reversed(paths):
            try:
                self._check_same(path)
                with session.graph.as_default():
                    self._loaders.load(session, path)
            except LOST:
                raise  # it says nothing about the file
            except tf.errors.OpError as error:
                if not os.path.exists(path + ".index"):
                    continue  # a run has deleted it meanwhile
                # Names and shapes were right, so the file itself is damaged.
                self._log(
                    f"Checkpoint {path} cannot be read ({explain.cause(error)}); "
                    "falling back to the one before."
                )
                continue
            step = self._saved_step = _step_of(path)
            self._known |= set(map(files, all_paths(self.directory)))
            self._keep(p for p in _listed(self.directory) if _step_of(p) <= step)
            return path
        return None

    def _last_whole(self) -> str:
        last = latest(self.directory)
        return f"the last whole one is {last}" if last else "there is none before"

    def _check_same(self, path: str) -> None:
        names = contents.of(path)
        constants.check(path, self._constants, names, partial=self._partial)
        shapes = {name: v.shape.as_list() for name, v in self._variables.items()}
        contents.check_same(path, shapes, partial=self._partial)
        if not self._partial:
            contents.check_offsets(path, shapes)


def all_paths(directory: str) -> list[str]:
    """Paths of the checkpoints of a directory, oldest first.

    The file `checkpoint` says which is the newest; it need not list those before it.
    """
    index_files = glob.glob(os.path.join(glob.escape(directory), f"{_NAME}-*.index"))
    paths = [path.removesuffix(".index") for path in index_files]
    state = _state(directory)
    newest = _step_of(state.model_checkpoint_path) if state else -1
    most = newest if newest >= 0 else math.inf
    return sorted((path for path in paths if 0 <= _step_of(path) <= most), key=_step_of)


def _clear(directory: str, step: int) -> None:
    """Removes files of runs that were killed while they saved or deleted checkpoints.

    These are files with temporary names, and data of earlier steps without an index,
    which cannot be read.
    """
    left = glob.glob(os.path.join(glob.escape(directory), "checkpoint.tmp*"))
    for path in glob.glob(os.path.join(glob.escape(directory), f"{_NAME}-*")):
        part = re.fullmatch(
            r"(.*-(\d+))\.(index|data-\d+-of-\d+)(\.tempstate\d+)?", path
        )
        if not part or (os.path.exists(f"{part[1]}.index") and not part[4]):
            continue
        if part[4] or int(part[2]) < step:
            left.append(path)
    for path in left:
        with contextlib.suppress(OSError):  # not a file of this project, as a folder
            os.remove(path)


def _state(directory: str) -> Any:
    """The contents of the file `checkpoint`, or None."""
    try:
        return tf.train.get_checkpoint_state(directory)
    except (tf.errors.OpError, ValueError):  # it is malformed
        return None


def _is_full(error: Exception) -> bool:
    """Whether an error of TensorFlow or Python means that the disk is full."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return isinstance(error, tf.errors.ResourceExhaustedError)


def _listed(directory: str) -> list[str]:
    """Checkpoints that the file `checkpoint` lists and that exist.

    The file may come from another folder, so paths outside this one are left out.
    """
    state = _state(directory)
    paths = list(state.all_model_checkpoint_paths) if state else []
    pattern = re.escape(os.path.join(os.path.abspath(directory), f"{_NAME}-")) + r"\d+"
    return [
        path
        for path in paths
        if re.fullmatch(pattern, os.path.abspath(path))
        and os.path.exists(f"{path}.index")
    ]


def files(path: str) -> tuple[tuple[str, int, int], ...]:
    """(name, size, time of writing) of a checkpoint's files, to see if they change."""
    entries = []
    for name in sorted(glob.glob(f"{glob.escape(path)}.*")):
        with contextlib.suppress(OSError):  # deleted meanwhile
            status = os.stat(name)
            entries.append((name, status.st_size, status.st_mtime_ns))
    return tuple(entries)


def latest(directory: str) -> str | None:
    """Path of the newest checkpoint of a directory."""
    paths = all_paths(directory)
    return paths[-1] if paths else None


def left(directory: str | None) -> str:
    """What a run that had to stop has left in its folder, in words."""
    kept = directory and latest(directory)
    return f"the last checkpoint is {kept}" if kept else "nothing was saved"


def _step_of(path: str) -> int:
    """The global step in a checkpoint's name; -1 if there is none."""
    match = re.search(r"-(\d+)$", path)
    return int(match.group(1)) if match else -1
