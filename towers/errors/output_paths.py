"""Folders and files that a run writes, checked before it starts."""

import contextlib
import functools
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator

from flags.config import Config
from flags.problem import SettingError, wrong_setting
from towers.errors import lock


class OutputError(RuntimeError):
    """A file could not be written; earlier files are intact."""


def checks(config: Config) -> list[Callable[[], None]]:
    """Checks of all paths that a run writes to.

    Args:
      config: of the run.

    Returns:
      functions that raise a ValueError if a path cannot be written to.
    """
    output, eval_dir = config.output, config.evaluation.eval_dir
    all_checks: list[Callable[[], None]] = []
    if output.train_dir:
        all_checks.append(functools.partial(_check_literal, output.train_dir))
    if output.train_dir and not config.evaluation.eval:
        all_checks.append(functools.partial(check, "train_dir", output.train_dir))
    elif output.train_dir and os.path.isdir(output.train_dir):
        eval_dir = eval_dir or os.path.join(output.train_dir, "eval")
    for name, path, look in (
        ("trace_file", output.trace_file, check_file),
        ("graph_file", output.graph_file, check_file),
        ("tfprof_file", output.tfprof_file, check_file),
        (
            "partitioned_graph_file_prefix",
            output.partitioned_graph_file_prefix,
            check_prefix,
        ),
        ("benchmark_log_dir", output.benchmark_log_dir, check),
        ("pipeline_report", config.stages.pipeline_report, check),
        ("eval_dir", eval_dir, check),
    ):
        if path:
            all_checks.append(functools.partial(look, name, path))
    return all_checks


def check(setting: str, path: str, directory: str | None = None) -> None:
    """Checks that a folder can be made and written to; leaves no file there.

    Args:
      setting: that names the folder.
      path: its value.
      directory: the folder, if it is another.

    Raises:
      ValueError: it cannot be written to, or the disk is full.
    """
    _check_local(setting, path)
    directory = directory or path
    missing = _missing(directory)
    try:
        os.makedirs(directory, exist_ok=True)
        # Without a name, so that it does not remain if this process is killed now.
        with tempfile.TemporaryFile(dir=directory) as probe:
            probe.write(b"\0" * 4096)
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        raise _not_written(setting, path, error) from error
    finally:
        _remove(missing)


def check_room(setting: str, directory: str, num_bytes: int) -> None:
    """Checks that the disk of a folder, which need not exist, has enough room.

    Args:
      setting: that names the folder.
      directory: the folder.
      num_bytes: to be written.

    Raises:
      ValueError: it has not.
    """
    missing = _missing(directory)
    there = os.path.dirname(missing[-1]) if missing else directory
    free = shutil.disk_usage(there).free
    if free < num_bytes:
        raise wrong_setting(
            setting,
            directory,
            f"{free / 1e6:.1f} MB are free and {num_bytes / 1e6:.1f} MB are needed",
            "make room or name another place",
        )


@contextlib.contextmanager
def held(setting: str, directory: str | None) -> Iterator[lock.Lock | None]:
    """Makes a folder and locks it for this process; removes it at the end if empty.

    Args:
      setting: that names the folder.
      directory: the folder; nothing happens without one.

    Yields:
      its lock.

    Raises:
      ValueError: another process has it, or it cannot be made.
    """
    if not directory:
        yield None
        return
    missing = _missing(directory)
    try:
        os.makedirs(directory, exist_ok=True)
        held_lock = lock.Lock(directory)
    except lock.HeldError as error:
        remedy = "wait for its end, or name another place"
        raise wrong_setting(setting, directory, str(error), remedy) from None
    except OSError as error:
        raise _not_written(setting, directory, error) from error
    try:
        yield held_lock
    finally:
        held_lock.release()
        _remove(missing)


def _missing(directory: str) -> list[str]:
    """The folders that must be made for this one, with itself first."""
    missing, path = [], os.path.abspath(directory)
    while not os.path.lexists(path):
        missing.append(path)
        path = os.path.dirname(path)
    return missing


def _remove(folders: list[str]) -> None:
    """Removes those folders that are empty."""
    for path in folders:
        with contextlib.suppress(OSError):
            os.rmdir(path)


def check_prefix(setting: str, path: str) -> None:
    """As `check`, for the prefix of files that a setting names.

    Raises:
      ValueError: they cannot be written.
    """
    check(setting, path, os.path.dirname(os.path.abspath(path)))


def check_file(setting: str, path: str) -> None:
    """As `check`, for the file that a setting names.

    Raises:
      ValueError: it cannot be written.
    """
    if os.path.isdir(path):
        raise wrong_setting(setting, path, "is a folder", "name a file")
    directory = os.path.dirname(os.path.abspath(path))
    check(setting, path, directory)
    if not os.path.isdir(directory):
        return  # it will be made
    fresh = not os.path.exists(path)
    try:
        # Without waiting for a reader, if it is a pipe.  Windows has no such pipes.
        no_wait = getattr(os, "O_NONBLOCK", 0)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | no_wait))
    except OSError as error:
        words = f"cannot be written ({error.strerror})"
        raise wrong_setting(setting, path, words, "name another file") from error
    if fresh:
        os.remove(os.path.realpath(path))


def _check_literal(path: str) -> None:
    """Refuses glob characters: TensorFlow treats a checkpoint's path as a pattern."""
    # A backslash between folders is not one.
    inside = path.replace(os.sep, "/") if os.sep == "\\" else path
    if match := re.search(r"[*?\[\\]", inside):
        words = f"TensorFlow would take the {match[0]} in it for part of a pattern"
        raise wrong_setting("train_dir", path, words, "name another place")


def _check_local(setting: str, path: str) -> None:
    if "://" in path:
        words = "is not on this machine"
        raise wrong_setting(setting, path, words, "name a place that is")


def _not_written(setting: str, path: str, error: OSError) -> SettingError:
    words = f"cannot be written to ({error.strerror})"
    return wrong_setting(setting, path, words, "name another place")
