"""Folders for files that are derived from those of data sets."""

import os
import pathlib
import tempfile
import urllib.parse


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
