"""Checks that the fields of a dataclass have the declared types, at construction.

@dataclasses.dataclass(frozen=True)
class Recipe:
    batch_size: int

    def __post_init__(self) -> None:
        check(self, batch_size=COUNT)
"""

import collections.abc
import dataclasses
import inspect
import numbers
import reprlib
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from models.user_errors import SignatureError


class Bound(NamedTuple):
    """A condition on a value, with the words that follow "must be"."""

    words: str
    holds: Callable[[Any], bool]


AT_LEAST_0 = Bound("at least 0", lambda number: number >= 0)
# TensorFlow counts examples, and the dimensions of some operations, in an int32.
COUNT = Bound(f"at least 1 and below {2**31}", lambda number: 1 <= number < 2**31)
# So that examples, which are counted over all epochs, fit into an int64.
EPOCHS = Bound("above 0 and at most 1e9", lambda number: 0 < number <= 1e9)
BELOW_1 = Bound("at least 0 and below 1", lambda number: 0 <= number < 1)


def one_of(names: Iterable[str]) -> Bound:
    """The condition on a name that is chosen from a table."""
    choices = tuple(names)
    return Bound(f"one of {', '.join(choices)}", lambda name: name in choices)


_WORDS = {int: "a whole number", float: "a finite float32", str: "a text"}
_FLOAT_LIMIT = 3e38  # near that of a float32


def check(instance: Any, **bounds: Bound) -> None:
    """Compares the fields of a dataclass's instance with their annotations.

    Lists count as tuples, and NumPy's numbers as Python's.

    Args:
      instance: of a dataclass.
      **bounds: field -> condition on its value, or on each of its values.

    Raises:
      ValueError: a field has a wrong value; the sentence names class and field.
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


def check_takes(
    what: str, function: Callable[..., Any], *args: str, **kwargs: Any
) -> None:
    """Checks that a function takes the arguments it will be called with.

    Args:
      what: describes the function, at the start of the sentence.
      function: to check.
      *args: the names of its positional arguments, in order.
      **kwargs: its keyword arguments; the values do not matter.

    Raises:
      SignatureError: it does not take them; the sentence lists them.
    """
    try:
        # What a decorator wraps may take something else.
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):  # some that are written in C do not say
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        names = ", ".join([*args, *(f"{name}=" for name in kwargs)])
        raise SignatureError(f"{what} must take ({names}): {error}", function) from None


def _fits(value: Any, kind: Any) -> bool:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return True
    if origin is types.UnionType:
        return any(_fits(value, member) for member in args)
    if origin is collections.abc.Callable:
        return callable(value)
    if origin in (tuple, collections.abc.Sequence):
        if not isinstance(value, tuple | list):
            return False
        if origin is tuple and args[-1] is not Ellipsis:
            return len(value) == len(args) and all(map(_fits, value, args))
        return all(_fits(item, args[0]) for item in value)
    if origin is collections.abc.Mapping:
        return isinstance(value, collections.abc.Mapping) and all(
            _fits(part, kind)
            for item in value.items()
            for part, kind in zip(item, args)
        )
    if kind is int:
        return isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if kind is float:
        real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        return real and abs(value) <= _FLOAT_LIMIT
    return isinstance(value, kind)


def _words(kind: Any) -> str:
    """A type, in words."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return " or ".join(map(_words, args))
    if origin is collections.abc.Callable:
        return "a function"
    if origin is tuple and args[-1] is not Ellipsis:
        return f"({', '.join(map(_words, args))})"
    if origin in (tuple, collections.abc.Sequence):
        return f"({_words(args[0])}, ...)"
    if origin is collections.abc.Mapping:
        return f"{{{': '.join(map(_words, args))}}}"
    package = "models." if kind.__module__.startswith("models.") else ""
    return _WORDS.get(kind) or f"{package}{kind.__qualname__}"


def _items(value: Any) -> Any:
    if isinstance(value, collections.abc.Mapping):
        return value.values()
    return value if isinstance(value, tuple | list) else (value,)
