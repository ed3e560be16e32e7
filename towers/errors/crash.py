"""What a crash of native code leaves: the stacks, and a sentence in them.

A kernel that cannot allocate may end the process by a segmentation fault, after which
no Python runs.  `faulthandler` then writes the threads' Python stacks to stderr.
`during` puts a frame into them whose name says what the program was doing:

    Fatal Python error: Segmentation fault
    ...
      File "towers", line 0 in training from step 0 on; if memory ran out, lower ...
"""

import faulthandler
import types
from collections.abc import Callable
from typing import TypeVar

_Result = TypeVar("_Result")


def show_stacks() -> None:
    """From now on, a crash of native code writes the stacks to stderr."""
    faulthandler.enable(2)


def during(what: str) -> Callable[[Callable[[], _Result]], _Result]:
    """What calls a function, and says that a crash in it is "in WHAT".

    Args:
      what: the program does, in ASCII characters, at most 400.
    """
    code = _call.__code__.replace(co_name=what, co_filename="towers")
    return types.FunctionType(code, {})


def _call(act: Callable[[], _Result]) -> _Result:
    return act()
