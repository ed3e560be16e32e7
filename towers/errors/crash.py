"""The stacks after a crash of native code, with a sentence in them.

A kernel that cannot allocate memory may end the process by a segmentation fault; then
no Python code runs.  `faulthandler` writes the threads' Python stacks to stderr.
`during` adds a frame to them whose name says what the program was doing:

    Fatal Python error: Segmentation fault
    ...
      File "towers", line 0 in training from step 0 on; if memory ran out, lower ...
"""

import faulthandler
import functools
import types
from collections.abc import Callable
from typing import TypeVar

_Result = TypeVar("_Result")


def show_stacks() -> None:
    """Makes crashes of native code write the stacks to stderr."""
    faulthandler.enable(2)


def during(what: str) -> Callable[[Callable[[], _Result]], _Result]:
    """A function that calls another one; the stacks of a crash then say "in WHAT".

    Args:
      what: the program is doing, in at most 400 ASCII characters.
    """
    return types.FunctionType(_code(what), {})


# TensorFlow keeps the stack of each operation, and never frees it: a new code object
# for each call would keep 0.2 MB of every graph.
@functools.cache
def _code(what: str) -> types.CodeType:
    return _call.__code__.replace(co_name=what, co_filename="towers")


def _call(act: Callable[[], _Result]) -> _Result:
    return act()
