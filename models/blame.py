"""Whose error it is: that of a user's own code is told with its place there."""

import contextlib
import functools
import os
import re
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

_LENGTH = 200  # characters of what an error says

# What TensorFlow's assignments and scatters ask of a variable.
_OF_RESOURCES = {"handle", "_lazy_read"}

# Packages whose errors are about what they were given.
_NOT_THE_USERS = {"keras", "models", "numpy", "tensorflow", "towers"}
_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_FOLDERS = (
    *(os.path.join(_ROOT, name, "") for name in ("models", "towers")),
    os.path.join(sysconfig.get_path("stdlib"), ""),
)


class SignatureError(ValueError):
    """A user's function that cannot be called with what it is to be given.

    Attributes:
      place: `file:line` where it is defined, or "" if that is not the user's code.
    """

    def __init__(self, words: str, function: Any):
        super().__init__(words)
        self.place = defined(function)


def _nearness(file: str) -> int:
    """2 for a user's file, 1 for one in a package that may be, 0 for the others."""
    if package := re.search(r"[/\\](?:site|dist)-packages[/\\](\w+)", file):
        return 0 if package[1] in _NOT_THE_USERS else 1
    return 2 if os.path.isabs(file) and not file.startswith(_FOLDERS) else 0


def place(error: BaseException) -> str:
    """`file:line` where an error left the user's own code, or "" if it never did."""
    near, found = 1, ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if (nearness := _nearness(file)) >= near:
            near, found = nearness, f"{file}:{line}"
    return found


def defined(function: Any) -> str:
    """`file:line` where a function or class is defined, or "" if not in user's code."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, type):
        function = function.__init__
    function = getattr(function, "__func__", function)
    if not hasattr(function, "__code__"):  # an object that can be called
        function = vars(type(function)).get("__call__")
    code = getattr(function, "__code__", None)
    if code is None or not _nearness(code.co_filename):
        return ""
    return f"{code.co_filename}:{code.co_firstlineno}"


def sentence(error: BaseException, whose: Any = None) -> str:
    """What an error says, on one line, with its place in the user's code.

    Args:
      error: that code inside or below the user's raised.
      whose: a function of the user's, for its place when the error never was in any.
    """
    first, _, more = str(error).strip().partition("\n")
    # What ends so says nothing yet.
    words = " ".join(f"{first} {more}".split()) if first.endswith(":") else first
    words = words.strip()[:_LENGTH]
    if variable := _of_a_variable(error):
        words = variable
    elif not isinstance(error, ValueError) or not words:
        words = f"{type(error).__name__}: {words}" if words else type(error).__name__
    where = getattr(error, "place", "") or place(error) or defined(whose)
    return f"{words} ({where})" if where else words


def _of_a_variable(error: BaseException) -> str:
    """What to do where a tensor is taken for the variable that it was read from."""
    if not isinstance(error, AttributeError) or not isinstance(error.obj, tf.Tensor):
        return ""
    if not hasattr(tf.Variable, error.name) and error.name not in _OF_RESOURCES:
        return ""
    return (
        "get_variable returns what the tower reads, a tensor without "
        f"{error.name!r}; training changes variables, and moving averages follow what "
        "is appended to nn.statistics"
    )


@contextlib.contextmanager
def blamed(what: Callable[[], str], whose: Any = None) -> Iterator[None]:
    """Makes one sentence of whatever a user's code inside fails with.

    Args:
      what: says what it is that fails; the sentence begins with it.
      whose: the function, as `sentence` has it.

    Raises:
      ValueError: it failed.
    """
    try:
        yield
    except Exception as error:  # whatever a user's code may raise
        raise ValueError(f"{what()}: {sentence(error, whose)}") from error
