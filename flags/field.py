"""What a flag is: a dataclass field with a help sentence and the values it admits.

    @dataclasses.dataclass(frozen=True)
    class Devices:
        num_gpus: int = field(1, "towers, one per GPU", must=AT_LEAST_1)

The sections of `flags.config.Config` declare all flags so; `flags.config` checks their
values and `flags.parse` reads them from a command line, both through `Flag`.
"""

import dataclasses
import difflib
import math
import shlex
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

# TensorFlow's thread counts, device counts and buffer sizes are int32 in its protocol
# buffers; a larger number would be a traceback there instead of a sentence here.
_INT_LIMIT = 2**31
_FLOAT_LIMIT = 3e38  # near that of a float32

# How the user's own functions are named, beside the names of a table.
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
# No machine has more devices or threads, and no graph so many pieces; without a limit,
# a typing error would take minutes, or all memory, to show.
FROM_0_TO_256 = ValueRange("at least 0 and at most 256", lambda n: 0 <= n <= 256)
FROM_0_TO_4096 = ValueRange("at least 0 and at most 4096", lambda n: 0 <= n <= 4096)
FROM_1_TO_1024 = ValueRange("at least 1 and at most 1024", lambda n: 1 <= n <= 1024)
FROM_2_TO_1024 = ValueRange("at least 2 and at most 1024", lambda n: 2 <= n <= 1024)
# So many epochs of so many examples can be counted in an int64.
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
      default: the value when the user says nothing; None where that is decided later.
      text: what it sets, in a phrase with the unit.
      unset: in words, what a default of None or of no numbers stands for.
      must: the condition on the number, or on each of the numbers.
      choices: the names to choose from.  Names that come from a table outside `flags`
        are not listed here but handed to `check` and `parse`.
      user_defined: besides a table's names, `path/to/file.py:function` and
        `package.module:function` name the user's own.
    """
    metadata = {"text": text, "unset": unset, "must": must}
    return dataclasses.field(
        default=default,
        metadata=metadata | {"choices": choices, "user_defined": user_defined},
    )


@dataclasses.dataclass(frozen=True)
class Flag:
    """One flag, whole; the attributes not listed here are `field`'s arguments.

    Attributes:
      name: of the dataclass field, and on the command line.
      section: the attribute of `Config` that has it.
      kind: int, float, bool or str: of the value, or of each of many.
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
        """Whether it may stand without a value: true and false are among its values."""
        return self.kind is bool or {"true", "false"} <= set(self.choices)

    @property
    def path(self) -> bool:
        """Whether it names a file or folder, whose `~` stands for the user's home: a
        shell does not replace it after `=`."""
        return self.name.endswith(("_dir", "_file", "pipeline_report", "out"))

    @property
    def kind_words(self) -> str:
        """What a value is, in words."""
        return _KIND_WORDS[self.kind][self.many]

    def problem(self, value: Any, names: Iterable[str] = ()) -> str:
        """Says what is wrong with a value.

        Args:
          value: as it would stand in a `Config`.
          names: of the table that this flag chooses from, if it does.

        Returns:
          The second half of an error message, or an empty text.
        """
        if value is None and self.default is None:
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
    """The flags that a section's dataclass declares, in its order."""
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
    """A question that offers the nearest names; empty if none is near."""
    near = difflib.get_close_matches(name, list(names), n=3)
    offer = ", ".join(prefix + candidate for candidate in near)
    return f"did you mean {offer}?" if near else ""


def listing(words: Iterable[str], last: str) -> str:
    """a, b `last` c."""
    *leading, final = words
    return f"{', '.join(leading)} {last} {final}" if leading else final


def quote(text: str) -> str:
    """Text as one would type it in a shell, always on one line."""
    return shlex.quote(text) if text.isprintable() else repr(text)


def spell(name: str, value: Any) -> str:
    """A flag and its value as one would type them."""
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no{name}"
    return f"--{name}={typed(value)}"


def typed(value: Any) -> str:
    """A value as one would type it."""
    text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return quote(text) if text else ""
