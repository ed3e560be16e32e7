"""Files of the user's cache folder, with results of measurements as JSON."""

import json
import os
from collections.abc import Mapping
from typing import Any


def folder(environment: Mapping[str, str] = os.environ) -> str:
    """The user's cache folder, by the XDG base directory specification."""
    home = environment.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(home):  # relative paths are to be ignored
        home = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(home, "towers")


class CacheFile:
    """A value in a file of its own.

    Args:
      *names: of the folder and the file, in the cache folder.

    Attributes:
      path: of the file.
    """

    def __init__(self, *names: str):
        self.path = os.path.join(folder(), *names)

    def read(self) -> Any:
        """The value; None if the file is missing or damaged."""
        try:
            with open(self.path, encoding="utf-8") as file:
                return json.load(file)
        except (OSError, ValueError, RecursionError):
            return None

    def write(self, value: Any) -> str:
        """Writes the file atomically; returns why it could not, or ""."""
        part = f"{self.path}.{os.getpid()}.part"
        try:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            with open(part, "w", encoding="utf-8") as file:
                json.dump(value, file, indent=1)
            os.replace(part, self.path)
        except OSError as error:
            return error.strerror or str(error)
        return ""
