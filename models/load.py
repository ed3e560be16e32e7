"""Loads a user's function: `package.module:function` or `path/to/file.py:function`.

    build = load.load_function("model", "~/work/mine.py:tiny")

A file may import other files of its folder, as a program may.
"""

import difflib
import importlib
import importlib.util
import os
import sys
import types
from collections.abc import Callable
from typing import Any

from models.user_errors import ChoiceError, sentence

# The forms of names of a user's functions.
FORMS = "path/to/file.py:function or package.module:function"

# A user's package of such a name cannot be imported.
_OURS = ("flags", "models", "towers")


def load_function(setting: str, name: str) -> Callable[..., Any]:
    """The user's function that a setting names.

    Args:
      setting: for errors.
      name: `package.module:function`, in the current folder or on Python's path, or
        `path/to/file.py:function`, relative to the current folder; `~` is the user's
        home.  A file is run once in a process.

    Raises:
      ChoiceError: there is no such module, file or function, or running it fails; the
        sentence has the file and line, or the nearest names.
    """
    place, _, function_name = name.rpartition(":")
    try:
        module = _module(place if function_name.isidentifier() else "")
    except ValueError as error:
        raise ChoiceError(setting, name, str(error)) from error.__cause__
    value = getattr(module, function_name, None)
    if callable(value):
        return value
    near = difflib.get_close_matches(function_name, _functions(module), n=3)
    offer = f"; did you mean {', '.join(near)}?" if near else ""
    words = f"{place!r} has no function {function_name!r}{offer or _ours(place)}"
    raise ChoiceError(setting, name, words)


def _module(place: str) -> types.ModuleType:
    """The module that a function is in."""
    if place.endswith(".py") or "/" in place or os.sep in place:
        return _of_file(os.path.abspath(os.path.expanduser(place)))
    if all(map(str.isidentifier, place.split("."))):
        return _imported(place, lambda: importlib.import_module(place))
    raise ValueError(f"write {FORMS}")


def _functions(module: types.ModuleType) -> list[str]:
    public = {n: v for n, v in vars(module).items() if not n.startswith("_")}
    return [n for n, v in public.items() if isinstance(v, types.FunctionType)]


def _of_file(path: str) -> types.ModuleType:
    """The module of a file, which is run if it was not run yet."""
    if not path.endswith(".py"):
        raise ValueError(f"{path} is no file of Python's; write {FORMS}")
    if not os.path.isfile(path):
        raise ValueError(f"there is no file {path}")
    folder, file = os.path.split(path)
    for name in (file.removesuffix(".py"), path):  # the first may be another module's
        module = sys.modules.get(name)
        if module is None:
            break
        if getattr(module, "__file__", None) == path:
            return module
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return _imported(file, lambda: _run(name, path))


def _run(name: str, path: str) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # a file's always is there
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look for their module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _imported(place: str, act: Callable[[], types.ModuleType]) -> types.ModuleType:
    """The module that `act` imports; any error of it becomes one sentence."""
    try:
        return act()
    # A user's code may raise anything; a file that exits is a program, not a module.
    except (Exception, SystemExit) as error:
        if isinstance(error, SyntaxError) and error.filename:
            reason = f"{error.msg} ({error.filename}:{error.lineno})"
        else:
            reason = sentence(error)
        if isinstance(error, ImportError):
            reason += _ours(error.name or "")
        raise ValueError(f"cannot import {place!r}: {reason}") from error


def _ours(module_name: str) -> str:
    """The end of the error if a user's module is not found because of its name."""
    top = module_name.partition(".")[0]
    if top not in _OURS:
        return ""
    return f"; {top!r} is a package of this project: give yours another name"
