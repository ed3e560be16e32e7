"""Checks of settings that a user makes in Python: a slip is found where it is written.

Each raises ValueError with a sentence that names the class and the field.
"""

import numbers
from collections.abc import Iterable
from typing import Any


def check_counts(settings: Any, *names: str) -> None:
    """Checks that fields are whole numbers of at least 1.

    Args:
      settings: an instance of the class that has them.
      *names: of the fields.
    """
    for name in names:
        count = getattr(settings, name)
        if not isinstance(count, numbers.Integral) or count < 1:
            raise ValueError(
                f"{_field(settings, name)} is {count!r}, and must be a whole number "
                "from 1 on"
            )


def check_one_of(settings: Any, name: str, choices: Iterable[str]) -> None:
    """Checks that a field is one of the values that there are.

    Args:
      settings: an instance of the class that has it.
      name: of the field.
      choices: that there are.
    """
    choices, value = list(choices), getattr(settings, name)
    if value not in choices:
        raise ValueError(
            f"{_field(settings, name)} is {value!r}, and must be one of "
            f"{', '.join(choices)}"
        )


def _field(settings: Any, name: str) -> str:
    return f"{type(settings).__name__}.{name}"
