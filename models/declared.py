"""Fields that hold what their class declares: a slip is found where it is written.

@dataclasses.dataclass(frozen=True)
class Recipe:
    batch_size: int

    def __post_init__(self):
        check(self, batch_size=AT_LEAST_1)
"""

import collections.abc
import dataclasses
import math
import numbers
import reprlib
import types
import typing
from collections.abc import Callable
from typing import Any, NamedTuple


class Bound(NamedTuple):
    """A condition on a number, with the words that follow "must be"."""

    words: str
    holds: Callable[[float], bool]


AT_LEAST_0 = Bound("at least 0", lambda number: number >= 0)
AT_LEAST_1 = Bound("at least 1", lambda number: number >= 1)
ABOVE_0 = Bound("above 0", lambda number: number > 0)
BELOW_1 = Bound("at least 0 and below 1", lambda number: 0 <= number < 1)

_WORDS = {int: "a whole number", float: "a finite number", str: "a text"}


def check(instance: Any, **bounds: Bound) -> None:
    """Compares the fields of a dataclass's instance with their annotations.

    Lists pass for tuples, and NumPy's numbers for Python's.

    Args:
      instance: of a dataclass.
      **bounds: field -> what its number, or each of its numbers, must be.

    Raises:
      ValueError: a field holds something else; the sentence names class and field.
    """
    hints = typing.get_type_hints(type(instance))
    for field in dataclasses.fields(instance):
        value, bound = getattr(instance, field.name), bounds.get(field.name)
        wrong = None
        if not _fits(value, hints[field.name]):
            wrong = _words(hints[field.name])
        elif bound and not all(map(bound.holds, _items(value))):
            wrong = bound.words
        if wrong:
            raise ValueError(
                f"{type(instance).__name__}.{field.name} is {reprlib.repr(value)}, and "
                f"must be {wrong}"
            )


def _fits(value: Any, kind: Any) -> bool:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return any(_fits(value, one) for one in args)
    if origin is collections.abc.Callable:
        return callable(value)
    if origin in (tuple, collections.abc.Sequence):
        if not isinstance(value, tuple | list):
            return False
        if origin is tuple and args[-1] is not Ellipsis:
            return len(value) == len(args) and all(map(_fits, value, args))
        return all(_fits(item, args[0]) for item in value)
    if kind is int:
        return isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if kind is float:
        real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        return real and math.isfinite(value)
    return isinstance(value, kind)


def _words(kind: Any) -> str:
    """What a value of this kind is."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return " or ".join(map(_words, args))
    if origin is collections.abc.Callable:
        return "a function"
    if origin is tuple and args[-1] is not Ellipsis:
        return f"({', '.join(map(_words, args))})"
    if origin in (tuple, collections.abc.Sequence):
        return f"({_words(args[0])}, ...)"
    return _WORDS.get(kind) or f"models.{kind.__name__}"


def _items(value: Any) -> Any:
    return value if isinstance(value, tuple | list) else (value,)
