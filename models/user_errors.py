"""Errors of a user's code in one sentence, with the file and line they came from."""

import contextlib
import functools
import os
import re
import sysconfig
import textwrap
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf

_LENGTH = 800  # characters of an error's message, which may have long paths

# Attributes of a variable that TensorFlow's assignments and scatters read.
_OF_RESOURCES = {"handle", "_lazy_read"}

# Packages that are never the user's own, but raise errors about their arguments.
_NOT_THE_USERS = {"keras", "models", "numpy", "tensorflow", "towers"}
# TensorFlow's error if an operation of one tensor gets a nest.
_NO_TENSOR = "Expected any non-tensor type"
_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_FOLDERS = (
    *(os.path.join(_ROOT, name, "") for name in ("models", "towers")),
    # TensorFlow may be installed outside of site-packages.
    os.path.join(os.path.dirname(tf.__file__), ""),
    os.path.join(sysconfig.get_path("stdlib"), ""),
)


class SignatureError(ValueError):
    """A user's function does not take the arguments that it gets.

    Attributes:
      place: `file:line` of its definition, or "" if that is not in the user's code.
    """

    def __init__(self, words: str, function: Callable[..., Any]):
        super().__init__(words)
        self.place = defined(function)


class ChoiceError(ValueError):
    """A setting names something that does not exist or fails.

    Attributes:
      problem: (setting, value, message), as in `flags.problem.Problem`.
    """

    def __init__(self, setting: str, name: str, message: str):
        super().__init__(f"{setting}={name}: {message}")
        self.problem = setting, name, message


def _nearness(file: str) -> int:
    """2 if a file is the user's, 1 if of another package, 0 if of Python or this."""
    if package := re.search(r"[/\\](?:site|dist)-packages[/\\](\w+)", file):
        return 0 if package[1] in _NOT_THE_USERS else 1
    return 2 if os.path.isabs(file) and not file.startswith(_FOLDERS) else 0


def place(error: BaseException) -> str:
    """`file:line` of the innermost frame in the user's code, or "" without one."""
    frames = traceback.walk_tb(error.__traceback__)
    return _nearest((frame.f_code.co_filename, line) for frame, line in frames)


def place_in(text: str) -> str:
    """The same of a traceback that was printed."""
    lines = re.finditer(r'File "(.+)", line (\d+)', text)
    return _nearest((line[1], int(line[2])) for line in lines)


def _nearest(frames: Iterable[tuple[str, int]]) -> str:
    near, location = 1, ""
    for file, line in frames:
        if (nearness := _nearness(file)) >= near:
            near, location = nearness, f"{file}:{line}"
    return location


def defined(function: Any) -> str:
    """`file:line` of a function or class, or "" if it is not in the user's code."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, type):
        function = function.__init__  # type: ignore[misc]
    function = getattr(function, "__func__", function)
    if not hasattr(function, "__code__"):  # a callable object
        function = vars(type(function)).get("__call__")
    code = getattr(function, "__code__", None)
    if code is None or not _nearness(code.co_filename):
        return ""
    return f"{code.co_filename}:{code.co_firstlineno}"


def sentence(error: BaseException, whose: Any = None) -> str:
    """An error's message on one line, with its place in the user's code.

    Args:
      error: raised by the user's code, or by code that it called.
      whose: the user's function whose place is given if no frame is in user code.
    """
    first, _, more = str(error).strip().partition("\n")
    # A first line that ends in a colon only introduces the next.
    words = " ".join(f"{first} {more}".split()) if first.endswith(":") else first
    beginning, *rest = textwrap.wrap(words, _LENGTH) or [""]
    words = f"{beginning} ..." if rest else beginning
    if known := _of_a_variable(error) or _of_a_nest(error):
        words = known
    elif not isinstance(error, ValueError) or not words:
        words = f"{type(error).__name__}: {words}" if words else type(error).__name__
    where = getattr(error, "place", "") or place(error) or defined(whose)
    return f"{words} ({where})" if where else words


def _of_a_variable(error: BaseException) -> str:
    """What to say if a tensor was used as the variable it was read from, or ""."""
    if not isinstance(error, AttributeError) or not isinstance(error.obj, tf.Tensor):
        return ""
    if not hasattr(tf.Variable, str(error.name)) and error.name not in _OF_RESOURCES:
        return ""
    return (
        "get_variable returns what the tower reads, a tensor without "
        f"{error.name!r}; training changes variables, and moving averages follow what "
        "is appended to nn.statistics"
    )


def _of_a_nest(error: BaseException) -> str:
    """What to say if a dict or a tuple of tensors was used as a tensor, or ""."""
    if isinstance(error, TypeError) and str(error).startswith(_NO_TENSOR):
        return (
            "an operation of TensorFlow takes a tensor and got a dict or a tuple of "
            "tensors; take a tensor out of it"
        )
    if not isinstance(error, AttributeError) or not hasattr(tf.Tensor, str(error.name)):
        return ""
    nest = error.obj
    if not isinstance(nest, dict | tuple | list):
        return ""
    parts = ", ".join(map(repr, nest)) if isinstance(nest, dict) else len(nest)
    return (
        f"a {type(nest).__name__} of {parts} has no {error.name!r}, which a tensor "
        "has; take a tensor out of it"
    )


@contextlib.contextmanager
def blamed(what: Callable[[], str], whose: Any = None) -> Iterator[None]:
    """Turns any error of the user's code in the `with` block into one sentence.

    Args:
      what: returns the beginning of the sentence: what has failed.
      whose: the user's function, as for `sentence`.

    Raises:
      ValueError: the block raised an error.
    """
    try:
        yield
    except Exception as error:  # a user's code may raise anything
        raise ValueError(f"{what()}: {sentence(error, whose)}") from error
