"""Whether other machines see the folder in which the controller saves.

The controller makes a file there.  Its name is new, so that no cache of a network file
system knows it.  Ps tasks and workers are asked for the file; an evaluator asks the
controller for its name.
"""

import contextlib
import glob
import os
import pathlib
import socket
import time
from collections.abc import Callable, Iterator

import tensorflow as tf

from flags.problem import wrong_setting
from towers.cluster import messages
from towers.cluster.health_check import ANSWER_SECONDS, in_parallel
from towers.layout.cluster_spec import ClusterSpec, Task

_PREFIX = "seen_by_all_"
_PAUSE_SECONDS = 5.0  # between an evaluator's attempts
# The controller may end between its answer and the look for its file.
_MISSES = 2


@contextlib.contextmanager
def marked(directory: str | None) -> Iterator[str]:
    """Makes a file with a new name, removed at the end.

    Args:
      directory: in which nobody else saves, or None.

    Yields:
      its path; "" if there is no folder, or the file cannot be made.
    """
    if directory is None:
        yield ""
        return
    with contextlib.suppress(OSError):
        for stale in pathlib.Path(directory).glob(f"{_PREFIX}*"):
            stale.unlink()
    path = pathlib.Path(os.path.abspath(directory), _PREFIX + os.urandom(8).hex())
    try:
        path.touch()
    except OSError:
        yield ""  # the saver will say more, for example that the disk is full
        return
    try:
        yield str(path)
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def check(spec: ClusterSpec, mark: str) -> None:
    """Refuses a folder that not every task sees.

    Args:
      spec: with this task, the controller, as `me`.
      mark: the path that `marked` yields; nothing is checked if it is empty.

    Raises:
      ValueError: a ps or worker does not see it.
    """
    lacking: list[Task] = []

    def files() -> tf.Tensor:
        return tf.size(tf.io.matching_files(glob.escape(mark)))

    def ask(task: Task) -> None:
        # A task that does not answer will be waited for.
        with contextlib.suppress(messages.NoAnswerError):
            if not messages.fetch(spec, task, files, ANSWER_SECONDS):
                lacking.append(task)

    if mark:
        in_parallel(ask, spec.servers)
    if lacking:
        tasks = ", ".join(f"{task} at {spec.address(task)}" for task in sorted(lacking))
        raise wrong_setting(
            "train_dir",
            os.path.dirname(mark),
            f"this folder of {socket.gethostname()} is not seen by {tasks}",
            "name one on a disk that all machines share, or write "
            "`shared_train_dir=False` if the controller always runs here",
        )


class EvaluatorsView:
    """As `server.Absence`; also refuses a folder that is not the controller's.

    Args:
      spec: with the evaluator as `me`.
      directory: its `--train_dir`.
      absence: returns why the controller is given up, or "".
    """

    def __init__(self, spec: ClusterSpec, directory: str, absence: Callable[[], str]):
        self._spec, self._directory, self._absence = spec, directory, absence
        self._misses_left: int = _MISSES
        self._next_at = 0.0  # time of the next attempt

    def __call__(self) -> str:
        """Why the controller is given up; empty while it is not.

        Raises:
          ValueError: the controller saves in another folder.
        """
        reason, now = self._absence(), time.monotonic()
        if self._misses_left and not reason and now >= self._next_at:
            self._next_at = now + _PAUSE_SECONDS
            self._look()
        return reason

    def _look(self) -> None:
        controller = self._spec.controller
        try:
            mark = messages.fetch_info(
                self._spec, controller, seconds=ANSWER_SECONDS
            ).mark
        except messages.NoAnswerError:
            return
        if not mark or os.path.exists(os.path.join(self._directory, mark)):
            self._misses_left = 0  # it is the same, or will not be known
            return
        self._misses_left -= 1
        if not self._misses_left:
            raise wrong_setting(
                "train_dir",
                self._directory,
                f"on {socket.gethostname()} this is not the folder in which the "
                f"controller at {self._spec.address(controller)} saves",
                "name one on a disk that both machines share",
            )
