"""Checkpoints that do not know the layout: TensorFlow's `Saver`, names as variables.

A checkpoint holds the variables, the optimizer's slots, the moving averages, the
global step and the input position; the same names whatever the number of towers.  And
what must be the same in a run that goes on with them (see `constants`).
"""

import contextlib
import glob
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from towers.errors import explain
from towers.errors.folders import OutputError
from towers.layout import parts
from towers.updates import constants

v1 = tf.compat.v1

_NAME = "model.ckpt"  # of the files, up to the step

# Variables that count, and what none of them comes to.
_COUNTS, _MOST = ("global_step", "position"), 2**62

# Variables of this prefix carry something from one step into the next.  They are in a
# checkpoint, which can be loaded without them, and where nothing is carried.
CARRIED = "carried/"

# What a session call raises when a task of its cluster is gone.
_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
)


class CheckpointError(OutputError):
    """A checkpoint was not written; the ones before it are whole."""


class NotFiniteError(CheckpointError):
    """A variable holds what no training can go on from.

    Attributes:
      step: after which it does.
    """

    def __init__(self, text: str, step: int):
        super().__init__(text)
        self.step = step


class Finite:
    """Whether variables hold numbers only, found where they lie.

    Args:
      variables: by name, of the current graph.
    """

    def __init__(self, variables: Mapping[str, tf.Variable | parts.Parts]):
        self._fine = {}
        for whole in variables.values():
            for variable in parts.each(whole):
                if variable.dtype.is_floating:
                    with tf.device(variable.device), tf.name_scope("finite"):
                        fine = tf.math.is_finite(variable.read_value())
                        self._fine[variable.op.name] = tf.reduce_all(fine)

    def broken(self, session: v1.Session) -> str | None:
        """The name of the first that does not, or None."""
        found = session.run(self._fine)
        return next((name for name, fine in found.items() if not fine), None)


class Checkpoints:
    """The checkpoints of one directory.

    Args:
      directory: made if there is none.
      variables: checkpoint name -> variable.
      max_to_keep: older checkpoints are deleted; 0 keeps all.
      partial: whether a checkpoint may hold more than `variables`.
      finite: of the variables: no checkpoint is written while one is broken.
      log: takes lines for the user.
    """

    def __init__(
        self,
        directory: str,
        variables: Mapping[str, tf.Variable | parts.Parts],
        *,
        max_to_keep: int = 5,
        partial: bool = False,
        finite: Finite | None = None,
        log: Callable[[str], None] = print,
    ):
        self._directory = os.fspath(directory)
        self._variables = dict(variables)
        self._constants = constants.values(variables)
        self._partial = partial
        self._log = log
        self._saver = v1.train.Saver(
            self._variables, max_to_keep=max_to_keep, save_relative_paths=True
        )
        self._loaders = [
            (set(group), v1.train.Saver(group)) for group in _groups(self._variables)
        ]
        self._finite = finite
        self._saved_step = -1
        self._cleared = False

    def needed(self) -> int:
        """The bytes that are to be free when a run starts.

        They are those of two checkpoints, as one is deleted when the next is whole, or
        of one where another run has left the first.
        """
        kinds = [v for whole in self._variables.values() for v in parts.each(whole)]
        size = sum(kind.dtype.size * kind.shape.num_elements() for kind in kinds)
        return size if latest(self._directory) else 2 * size

    def save(self, session: v1.Session, step: int) -> str:
        """Writes the checkpoint of this global step, unless it was the last one.

        Raises:
          CheckpointError: the disk is full or the directory is gone.
          NotFiniteError: a variable holds what is no number.
        """
        path = os.path.join(self._directory, _NAME)
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
            os.makedirs(self._directory, exist_ok=True)
            if not self._cleared:
                _clear(self._directory, step)
                self._cleared = True
            with session.graph.as_default():
                path = self._saver.save(
                    session, path, global_step=step, write_meta_graph=False
                )
        except (tf.errors.OpError, OSError, ValueError) as error:
            raise CheckpointError(
                f"the checkpoint of step {step} could not be written to "
                f"{self._directory} ({explain.cause(error)}); {self._last_whole()}"
            ) from error
        self._saved_step = step
        return path

    def restore(self, session: v1.Session) -> str | None:
        """Loads the newest checkpoint that can be read.

        Returns:
          its path, or None when the directory holds no checkpoint.

        Raises:
          ValueError: the checkpoint is of another model or has other constants (the
            sentence names what differs), or none of several can be read.
        """
        while True:
            paths = all_paths(self._directory)
            if path := self._restore_one_of(paths, session):
                return path
            # Meanwhile a run may have replaced them.
            if paths == all_paths(self._directory):
                break
        if paths:
            raise ValueError(
                f"none of the {len(paths)} checkpoints in {self._directory} can be "
                "read; move them away to start anew"
            )
        return None

    def _restore_one_of(self, paths: list[str], session: v1.Session) -> str | None:
        """Loads the last of these that can be read; returns its path, or None."""
        for path in reversed(paths):
            try:
                self._check_same(path)
                with session.graph.as_default():
                    self._load(session, path)
            except _LOST:
                raise  # it says nothing about the file
            except tf.errors.OpError as error:
                if not os.path.exists(path + ".index"):
                    continue  # a run has deleted it meanwhile
                # Names and shapes were compared before: the file itself is broken.
                self._log(
                    f"Checkpoint {path} cannot be read ({explain.cause(error)}); "
                    "falling back to the one before."
                )
                continue
            step = self._saved_step = _step_of(path)
            self._saver.set_last_checkpoints_with_time(
                [
                    (path, time)
                    for path, time in _listed(self._directory)
                    if _step_of(path) <= step
                ]
            )
            return path
        return None

    def _load(self, session: v1.Session, path: str) -> None:
        known = set(contents(path))
        for names, loader in self._loaders:
            if names <= known:
                loader.restore(session, path)
        # Of what was loaded, which therefore can be read.
        _check_counts(path, known & self._variables.keys() & set(_COUNTS))

    def _last_whole(self) -> str:
        last = latest(self._directory)
        return f"the last whole one is {last}" if last else "there is none before"

    def _check_same(self, path: str) -> None:
        names = contents(path)
        constants.check(path, self._constants, names, partial=self._partial)
        shapes = {name: v.shape.as_list() for name, v in self._variables.items()}
        check_same(path, shapes, partial=self._partial)


def _groups(variables: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The variables that are loaded together: all, but of what is carried each kind.

    Constants have their values.
    """
    groups: dict[str, dict[str, Any]] = {}
    for name, variable in variables.items():
        if not constants.is_one(name):
            kind = name.split("/")[1] if _carried(name) else ""
            groups.setdefault(kind, {})[name] = variable
    return list(groups.values())


def check_same(
    path: str, shapes: Mapping[str, list[int]], *, partial: bool = False
) -> None:
    """Compares a checkpoint with the variables that are to be loaded from it.

    Args:
      path: of the checkpoint.
      shapes: variable name -> shape.
      partial: whether the checkpoint may hold more.

    Raises:
      ValueError: names or shapes differ; up to five of each are named.
    """
    found, shapes = (
        {name: shape for name, shape in every.items() if not _optional(name)}
        for every in (contents(path), shapes)
    )
    missing = sorted(set(shapes) - set(found))
    extra = [] if partial else sorted(set(found) - set(shapes))
    differ = [
        f"{name} is {found[name]} there and {shapes[name]} here"
        for name in sorted(set(found) & set(shapes))
        if list(found[name]) != list(shapes[name])
    ]
    parts = [
        f"{title}: {', '.join(names[:5])}" + (" ..." if len(names) > 5 else "")
        for title, names in (
            ("not in it", missing),
            ("only in it", extra),
            ("of another shape", differ),
        )
        if names
    ]
    if parts:
        raise ValueError(
            f"checkpoint {path} is of another model or optimizer ({'; '.join(parts)}); "
            "name the flags it was made with, or another --train_dir"
        )


def contents(path: str) -> dict[str, list[int]]:
    """Name -> shape of what is in a checkpoint."""
    return tf.train.load_checkpoint(path).get_variable_to_shape_map()


def _check_counts(path: str, names: Iterable[str]) -> None:
    """Raises an OpError if a counter has a value that no run reaches."""
    for name in sorted(names):
        count = np.asarray(tf.train.load_checkpoint(path).get_tensor(name))
        if count.dtype != np.int64 or np.any((count < 0) | (count >= _MOST)):
            raise tf.errors.DataLossError(None, None, f"its {name} is {count}")


def _carried(name: str) -> bool:
    return name.startswith(CARRIED)


def _optional(name: str) -> bool:
    """Whether a checkpoint can be loaded without it."""
    return _carried(name) or constants.is_one(name)


def all_paths(directory: str) -> list[str]:
    """Paths of the checkpoints of a directory, oldest first.

    The file `checkpoint` says which is the newest; it need not list those before it.
    """
    found = glob.glob(os.path.join(glob.escape(directory), f"{_NAME}-*.index"))
    paths = [path.removesuffix(".index") for path in found]
    state = _state(directory)
    newest = _step_of(state.model_checkpoint_path) if state else -1
    most = newest if newest >= 0 else math.inf
    return sorted((path for path in paths if 0 <= _step_of(path) <= most), key=_step_of)


def _clear(directory: str, step: int) -> None:
    """Removes what runs left that were killed while they saved, or deleted older ones.

    That is files under the names they have while they are written, and data before
    this step without an index, which alone says what is in them.
    """
    for path in glob.glob(os.path.join(glob.escape(directory), f"{_NAME}-*")):
        part = re.fullmatch(
            r"(.*-(\d+))\.(index|data-\d+-of-\d+)(\.tempstate\d+)?", path
        )
        if not part or (os.path.exists(f"{part[1]}.index") and not part[4]):
            continue
        if part[4] or int(part[2]) < step:
            os.remove(path)


def _state(directory: str):
    """What the file `checkpoint` says, or None."""
    try:
        return tf.train.get_checkpoint_state(directory)
    except (tf.errors.OpError, ValueError):  # it is malformed, and says nothing
        return None


def _listed(directory: str) -> list[tuple[str, float]]:
    """Checkpoints that the file `checkpoint` lists, and when they were written.

    It may come from elsewhere; so what it lists outside the directory is left alone.
    """
    state = _state(directory)
    paths = list(state.all_model_checkpoint_paths) if state else []
    own = os.path.join(os.path.abspath(directory), f"{_NAME}-")
    found = []
    for path in paths:
        if re.fullmatch(re.escape(own) + r"\d+", os.path.abspath(path)):
            with contextlib.suppress(OSError):  # older ones may be deleted
                found.append((path, os.stat(path + ".index").st_mtime))
    return found


def files(path: str) -> tuple[tuple[str, int, int], ...]:
    """The files of a checkpoint: name, size and when it was written, which tell whether
    it is as it was."""
    found = []
    for name in sorted(glob.glob(f"{glob.escape(path)}.*")):
        with contextlib.suppress(OSError):  # deleted meanwhile
            status = os.stat(name)
            found.append((name, status.st_size, status.st_mtime_ns))
    return tuple(found)


def latest(directory: str) -> str | None:
    """Path of the newest checkpoint of a directory."""
    paths = all_paths(directory)
    return paths[-1] if paths else None


def _step_of(path: str) -> int:
    """The global step in a checkpoint's name; -1 if there is none."""
    found = re.search(r"-(\d+)$", path)
    return int(found.group(1)) if found else -1
