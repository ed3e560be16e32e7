"""What is wrong with a setting, as data.

    raise wrong_setting("num_stages", 3, "does not divide `num_gpus=4`", "write 2")

A message names other settings in backquotes, as above (`mention` does it).  The command
line shows them as flags, `--num_gpus=4` (`with_flags`); Python shows `num_gpus=4`
(`in_python`).
"""

import dataclasses
import re
import types
from collections.abc import Callable, Mapping
from typing import Any

from flags.field import spell, typed

_MENTION = re.compile(r"`(\w+)(?:=([^`]*))?`")


def mention(name: str, value: Any = None) -> str:
    """A setting in backquotes, with its value unless that is None."""
    return f"`{name}`" if value is None else f"`{name}={typed(value)}`"


def with_flags(text: str, names: Mapping[str, str] = types.MappingProxyType({})) -> str:
    """A message with each setting in backquotes as a flag.

    Args:
      text: the message.
      names: setting -> name of its flag, where they differ.
    """

    def flag(match: re.Match[str]) -> str:
        name, value = names.get(match[1], match[1]), match[2]
        if value in ("True", "False"):
            return spell(name, value == "True")
        return f"--{name}" if value is None else f"--{name}={value}"

    return _MENTION.sub(flag, text)


def in_python(text: str) -> str:
    """A message with each setting in backquotes as Python names it."""
    return _MENTION.sub(lambda match: match[0].strip("`"), text)


@dataclasses.dataclass(frozen=True)
class Problem:
    """What is wrong with a setting.

    Attributes:
      setting: its name; empty where no setting is at fault.  Then the message may be
        any text, and only the remedy names settings.
      value: what it is set to; None if that does not matter.
      message: what is wrong; the sentence goes on after the setting.
      remedy: what to do instead; the sentence goes on after the message.  May be empty.
    """

    setting: str
    value: Any
    message: str
    remedy: str = ""

    def of_program(self, setting: str, program: str) -> "Problem":
        """The problem with a program's name for a switch that the program sets."""
        words = self.message.replace(mention(setting, True), program)
        if self.setting == setting:
            return Problem(program, None, words, self.remedy)
        return dataclasses.replace(self, message=words)

    @property
    def settings(self) -> frozenset[str]:
        """All settings that the problem names."""
        named = [match[1] for match in _MENTION.finditer(self.text)]
        return frozenset([self.setting, *named]) if self.setting else frozenset()

    def sentence(self, names: Mapping[str, str] = types.MappingProxyType({})) -> str:
        """The problem as one sentence, with settings as flags (`with_flags`)."""

        def show(text: str) -> str:
            return with_flags(text, names)

        begin = f"{show(mention(self.setting, self.value))}: " if self.setting else ""
        return begin + self._words(show)

    def __str__(self) -> str:
        """The problem as one sentence, with settings as Python names them."""
        words, value = self._words(in_python), str(self.value)
        if not self.setting:
            return words
        shown = value if value.isprintable() else repr(value)
        first = self.setting if self.value is None else f"{self.setting}={shown}"
        return f"{first}: {words}"

    @property
    def text(self) -> str:
        """The problem as one sentence, with settings in backquotes."""
        begin = f"{mention(self.setting, self.value)}: " if self.setting else ""
        return begin + self._words(str, others=lambda text: text.replace("`", "'"))

    def _words(
        self, show: Callable[[str], str], others: Callable[[str], str] = str
    ) -> str:
        """Message and remedy; `others` shows a message that names no settings."""
        message = (show if self.setting else others)(self.message)
        return f"{message}; {show(self.remedy)}" if self.remedy else message


class SettingError(ValueError):
    """Settings that cannot be used.

    Attributes:
      problems: everything that is wrong.
    """

    def __init__(self, *problems: Problem):
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems

    @property
    def errors(self) -> list[str]:
        """`Problem.sentence` of each problem."""
        return [problem.sentence() for problem in self.problems]


def wrong_setting(
    setting: str, value: Any, message: str, remedy: str = ""
) -> SettingError:
    """The error of one problem; the arguments are `Problem`'s attributes."""
    return SettingError(Problem(setting, value, message, remedy))


def problems_of(error: ValueError) -> tuple[Problem, ...]:
    """The problems of an error; an error without them is one problem with its text."""
    if isinstance(error, SettingError):
        return error.problems
    return (Problem(*getattr(error, "problem", ("", None, str(error)))),)
