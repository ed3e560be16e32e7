"""Folders of data sets, and for files that are derived from theirs."""

import importlib
import os
import pathlib
import tempfile
import urllib.parse

import tensorflow as tf

from flags.problem import wrong_setting


def listed(setting: str, folder: str) -> list[str]:
    """The names in a folder, on a disk or where TensorFlow can reach it, in order.

    Args:
      setting: that names the folder.
      folder: its path.

    Raises:
      ValueError: there is no such directory, or it cannot be reached.
    """
    try:
        _load_file_system(folder)
        return sorted(name.rstrip("/") for name in tf.io.gfile.listdir(folder))
    except tf.errors.NotFoundError as error:
        raise wrong_setting(setting, folder, "there is no such directory") from error
    except (OSError, ValueError, tf.errors.OpError) as error:
        words = str(getattr(error, "message", error)).splitlines()[0]
        raise wrong_setting(setting, folder, f"it cannot be read: {words}") from error


def _load_file_system(folder: str) -> None:
    """Makes TensorFlow read paths like that of the folder.

    Raises:
      ValueError: it needs a package that is not installed.
      tf.errors.OpError: the folder cannot be reached.
    """
    try:
        tf.io.gfile.exists(folder)  # listdir does not tell why it finds nothing
    except tf.errors.UnimplementedError as error:
        try:  # it makes TensorFlow read more kinds of paths
            importlib.import_module("tensorflow_io")
        except ImportError:
            kind = folder.partition("://")[0]
            raise ValueError(
                f"TensorFlow reads {kind}:// only with the package tensorflow-io, "
                "which is not installed"
            ) from error


def derived(folder: str | pathlib.Path, name: str = "") -> pathlib.Path:
    """A folder for files derived from those of a folder: the same, if writable.

    Args:
      folder: with the files.
      name: of the temporary folder; "" to make one of the path.
    """
    folder = pathlib.Path(folder)
    if os.access(folder, os.W_OK):
        return folder
    name = name or urllib.parse.quote(os.path.abspath(folder), safe="")
    folder = temporary_root() / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def temporary_root() -> pathlib.Path:
    """A temporary folder of this user, the same in every run unless another owns it."""
    # On Windows the temporary folder is the user's, and every file belongs to user 0.
    user = os.getuid() if hasattr(os, "getuid") else 0
    root = pathlib.Path(tempfile.gettempdir(), f"towers-{user}")
    root.mkdir(mode=0o700, exist_ok=True)
    if root.lstat().st_uid != user:  # another user made a folder of this name
        return pathlib.Path(tempfile.mkdtemp(prefix="towers-"))
    return root
