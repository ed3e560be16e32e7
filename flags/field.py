"""A flag is a dataclass field with a help text and conditions on its value.

    @dataclasses.dataclass(frozen=True)
    class Devices:
        num_gpus: int = field(1, "towers, one per GPU", must=AT_LEAST_1)

The sections of `flags.config.Config` declare all flags in this way.  `Flag` describes
one to `flags.config`, which checks values, and to `flags.parse`, which reads them.
"""

import dataclasses
import difflib
import math
import shlex
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

# TensorFlow keeps numbers of threads, devices and buffers as int32; a larger number
# would end in its traceback.
_INT_LIMIT = 2**31
_FLOAT_LIMIT = 3e38  # near that of a float32

# How a value names a user's own function.
OWN = "path/to/file.py:function or package.module:function"

_KIND_WORDS = {
    int: ("a whole number", "whole numbers separated by commas"),
    float: ("a number", "numbers separated by commas"),
    bool: ("true or false", ""),
    str: ("text", ""),
}


class ValueRange(NamedTuple):
    """A condition on a number, with the words that follow "must be"."""

    words: str
    holds: Callable[[float], bool]


AT_LEAST_0 = ValueRange("at least 0", lambda number: number >= 0)
AT_LEAST_1 = ValueRange("at least 1", lambda number: number >= 1)
ABOVE_0 = ValueRange("above 0", lambda number: number > 0)
BELOW_1 = ValueRange("at least 0 and below 1", lambda number: 0 <= number < 1)
FROM_0_TO_1 = ValueRange("at least 0 and at most 1", lambda number: 0 <= number <= 1)
ABOVE_0_UP_TO_1 = ValueRange("above 0 and at most 1", lambda number: 0 < number <= 1)
# More devices, threads or parts than any machine or graph has are a typing error, which
# would otherwise take minutes or all memory to show.
FROM_0_TO_256 = ValueRange("at least 0 and at most 256", lambda n: 0 <= n <= 256)
FROM_0_TO_4096 = ValueRange("at least 0 and at most 4096", lambda n: 0 <= n <= 4096)
FROM_1_TO_1024 = ValueRange("at least 1 and at most 1024", lambda n: 1 <= n <= 1024)
FROM_2_TO_1024 = ValueRange("at least 2 and at most 1024", lambda n: 2 <= n <= 1024)
# So that examples, which are counted over all epochs, fit into an int64.
EPOCHS = ValueRange("above 0 and at most 1e9", lambda number: 0 < number <= 1e9)
UP_TO_3 = ValueRange("0, 1, 2 or 3", lambda number: number in (0, 1, 2, 3))


def field(
    default: Any,
    text: str,
    *,
    unset: str = "",
    must: ValueRange | None = None,
    choices: tuple[str, ...] = (),
    user_defined: bool = False,
) -> Any:
    """Declares a flag as a dataclass field.

    Args:
      default: the value if the user sets none; None if it is decided later.
      text: what it sets, in a phrase with the unit.
      unset: what a default of None or () means, in words.
      must: the condition on the number, or on each of the numbers.
      choices: the legal names.  Names of tables outside `flags` are arguments of
        `check` and `parse` instead.
      user_defined: whether `path/to/file.py:function` and `package.module:function`
        are legal, too.
    """
    metadata = {"text": text, "unset": unset, "must": must}
    return dataclasses.field(
        default=default,
        metadata=metadata | {"choices": choices, "user_defined": user_defined},
    )


@dataclasses.dataclass(frozen=True)
class Flag:
    """One flag; attributes that are not listed here are arguments of `field`.

    Attributes:
      name: of the dataclass field and on the command line.
      section: name of the section, an attribute of `Config`.
      kind: type of the value, or of each element of a tuple: int, float, bool or str.
      many: whether the value is a tuple.
    """

    name: str
    section: str
    kind: type
    many: bool
    default: Any
    text: str
    unset: str
    must: ValueRange | None
    choices: tuple[str, ...]
    user_defined: bool

    @property
    def switch(self) -> bool:
        """Whether `--name` and `--noname` set it: true and false are legal values."""
        return self.kind is bool or {"true", "false"} <= set(self.choices)

    @property
    def path(self) -> bool:
        """Whether the value is a path, in which `~` is the user's home.

        (A shell does not replace `~` after `=`.)
        """
        return self.kind is str and self.name.endswith(
            (
                "_dir",
                "_file",
                "init_checkpoint",
                "_file_prefix",
                "pipeline_report",
                "replay_membership",
                "out",
            )
        )

    @property
    def kind_words(self) -> str:
        """What a value is, in words."""
        return _KIND_WORDS[self.kind][self.many]

    def problem(self, value: Any, names: Iterable[str] = ()) -> str:
        """Says what is wrong with a value.

        Args:
          value: as a `Config` holds it.
          names: the legal names, if they come from a table.

        Returns:
          What is wrong, in words that follow the flag's name; empty if nothing is.
        """
        if value is self.default:
            return ""
        if self.many is not isinstance(value, tuple):
            return f"must be {self.kind_words}"
        for place, item in enumerate(value if self.many else (value,), 1):
            if item == "" and self.many and len(value) > 1:
                return f"entry {place} of {len(value)} is empty; take out the comma"
            if problem := self._problem(item, tuple(names) or self.choices):
                return problem
        return ""

    def _problem(self, item: Any, names: tuple[str, ...]) -> str:
        # A bool is an int to Python, and an int is a float to us.
        fits = isinstance(item, (int, float) if self.kind is float else self.kind)
        if not fits or isinstance(item, bool) != (self.kind is bool):
            return f"must be {self.kind_words}"
        if self.kind is str:
            return self._name_problem(item, names)
        if self.kind is int and item >= _INT_LIMIT:
            return f"must be below {_INT_LIMIT}"
        if self.kind is float and not math.isfinite(item):
            return "must be finite"
        if self.kind is float and abs(item) > _FLOAT_LIMIT:
            return f"must be at most {_FLOAT_LIMIT:g}"
        if self.must and not self.must.holds(item):
            return f"must be {self.must.words}"
        return ""

    def _name_problem(self, name: str, names: tuple[str, ...]) -> str:
        if not name:
            return "must not be empty; leave the flag out instead"
        if "\0" in name or name != name.encode(errors="ignore").decode():
            return "must be text, in UTF-8"
        if not names or name in names or (self.user_defined and ":" in name):
            return ""
        alternative = f", or {OWN}" if self.user_defined else ""
        every = f"choose from {', '.join(names)}{alternative}"
        return f"no such {self.name}; {did_you_mean(name, names) or every}"


def flags_of(section: str, declared: type) -> Iterator[Flag]:
    """The flags that a section's dataclass declares, in order."""
    for item in dataclasses.fields(declared):
        # `int | None` and `tuple[int, ...]` both hold the kind as their only type.
        parts = set(typing.get_args(item.type)) - {types.NoneType, Ellipsis}
        yield Flag(
            name=item.name,
            section=section,
            kind=typing.cast(type, parts.pop() if parts else item.type),
            many=typing.get_origin(item.type) is tuple,
            default=item.default,
            **item.metadata,
        )


def did_you_mean(name: str, names: Iterable[str], *, prefix: str = "") -> str:
    """A question with the most similar names; empty if no name is similar."""
    near = difflib.get_close_matches(name, list(names), n=3)
    offer = ", ".join(prefix + candidate for candidate in near)
    return f"did you mean {offer}?" if near else ""


def listing(words: Iterable[str], last: str) -> str:
    """The words as "a, b and c", where `last` is "and"."""
    *leading, final = words
    return f"{', '.join(leading)} {last} {final}" if leading else final


def quote(text: str) -> str:
    """Text as it is typed in a shell, always on one line."""
    return shlex.quote(text) if text.isprintable() else repr(text)


def spell(name: str, value: Any) -> str:
    """A flag and its value as they are typed."""
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no{name}"
    return f"--{name}={typed(value)}"


def typed(value: Any) -> str:
    """A value as it is typed."""
    text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return quote(text) if text else ""
