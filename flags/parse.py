"""The command line as a `Config`.

    config = parse(sys.argv, {"optimizer": OPTIMIZERS})

absl parses the values.  Words are paired with flags here, because absl stops at the
first error and a user should see all errors at once.
"""

import collections
import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, overload

from absl import flags as absl_flags

from flags import config, field, help_text, rules, tf_cnn_benchmarks
from flags.problem import Problem, SettingError, mention

_PARSERS = {
    int: absl_flags.IntegerParser,
    float: absl_flags.FloatParser,
    bool: absl_flags.BooleanParser,
    str: absl_flags.ArgumentParser,
}

_Flags = Mapping[str, field.Flag]

_HELP = ("help", "helpshort", "helpfull", "h", "?")


class UsageError(SettingError):
    """A command line that cannot be run.

    Attributes:
      problems: all that is wrong with it.
      config: the settings that could be read, with defaults for those that are wrong,
        so that a caller can check them further; or None.
    """

    def __init__(self, *problems: Problem, partial: config.Settings | None = None):
        super().__init__(*problems)
        self.config = partial

    def __str__(self) -> str:
        return "\n".join(self.errors)


@overload
def parse(argv: Sequence[str], choices: rules.Choices) -> config.Config:
    """Reads a run's command line."""


@overload
def parse(
    argv: Sequence[str], choices: rules.Choices, kind: type[config.OfProgram]
) -> config.OfProgram:
    """Reads the command line of another program."""


def parse(
    argv: Sequence[str],
    choices: rules.Choices,
    kind: type[Any] = config.Config,
) -> Any:
    """Reads a command line.

    Prints the help and exits with status 0 if the command line asks for it.

    Args:
      argv: the program's name and its arguments, as in `sys.argv`.
      choices: flag -> the names that it can have.
      kind: the program's class of settings.

    Raises:
      UsageError: the command line is wrong; it has every problem.
    """
    flags = config.all_flags(kind)
    words = list(_split(_with_flagfiles(argv[1:]), flags))
    if (group := _help_group(words)) is not None:
        _print_help(group, choices, kind)
    values: dict[str, Any] = {}
    pairs = zip([None, *words], words)
    read = [_read(word, before, flags, values) for before, word in pairs]
    problems = [problem for problem in read if problem]
    unread = {problem.setting for problem in problems}
    for name, value in values.items():
        if flags[name].path and value:
            values[name] = os.path.expanduser(value)
    parsed = config.make(kind, **values)
    problems += config.check(parsed, choices, unread=unread)
    if problems:
        for problem in problems:
            values.pop(problem.setting, None)
        raise UsageError(*problems, partial=config.make(kind, **values))
    return parsed


def parser(flag: field.Flag) -> absl_flags.ArgumentParser[Any]:
    """The parser of a flag's value; it raises ValueError."""
    item = _PARSERS[flag.kind]()
    if flag.many:
        return _TupleParser(item)
    return _NameParser(flag.choices) if flag.choices else item


def arguments(config_: config.Settings, *, without: Collection[str] = ()) -> list[str]:
    """The arguments that `parse` reads as these settings.

    Args:
      config_: the settings.
      without: flags to leave out.
    """
    flags = config.all_flags(type(config_))
    return [
        f"--{name}={','.join(map(str, value)) if flags[name].many else value}"
        for name, value in config.flat(config_).items()
        if value != flags[name].default and name not in without
    ]


class _TupleParser(absl_flags.ArgumentParser):
    """Values separated by commas; spaces around them are allowed."""

    def __init__(self, item: absl_flags.ArgumentParser):
        super().__init__()
        self._item = item

    def parse(self, argument: str) -> tuple[Any, ...]:
        return tuple(self._item.parse(part.strip()) for part in argument.split(","))


class _NameParser(absl_flags.ArgumentParser):
    """A listed name, in any case as in tf_cnn_benchmarks; `check` refuses others."""

    def __init__(self, names: tuple[str, ...]):
        super().__init__()
        self._names = {name.lower(): name for name in names}

    def parse(self, argument: str) -> str:
        return self._names.get(argument.lower(), argument)


class _Word(NamedTuple):
    """One flag with its value, or one stray argument, of a command line."""

    typed: str
    name: str | None  # None for a stray argument
    value: str | None  # None for a flag without one


def _with_flagfiles(arguments: Sequence[str]) -> list[str]:
    """Puts the lines of each --flagfile in its place."""
    try:
        return absl_flags.FlagValues().read_flags_from_files(list(arguments))
    except (absl_flags.Error, UnicodeError) as error:
        # Without the file's flags, nothing else can be checked.
        reason = error.__context__ or error  # absl hides the OSError
        raise UsageError(Problem("flagfile", None, str(reason))) from None


def _split(arguments: Sequence[str], flags: _Flags) -> Iterator[_Word]:
    """Pairs the flags with their values."""
    switches = {name for name, flag in flags.items() if flag.switch}
    switches.update(tf_cnn_benchmarks.SWITCHES, _HELP)
    switches.update([f"no{name}" for name in switches])
    rest = collections.deque(arguments)
    while rest:
        typed = rest.popleft()
        if typed == "--":
            yield from (_Word(stray, None, None) for stray in rest)
            return
        if not typed.startswith("-") or not typed.strip("-"):
            yield _Word(typed, None, None)
            continue
        body = typed[2:] if typed.startswith("--") else typed[1:]
        name, equals, value = body.partition("=")
        if equals:
            yield _Word(typed, name, value)
        elif name not in switches and rest and _is_value(rest[0]):
            yield _Word(typed, name, rest.popleft())
        else:
            yield _Word(typed, name, None)


def _is_value(argument: str) -> bool:
    """Whether an argument is a flag's value rather than the next flag: -1 is."""
    return not argument.startswith("-") or argument[1:2].isdigit()


def _read(
    word: _Word, before: _Word | None, flags: _Flags, values: dict[str, Any]
) -> Problem | None:
    """Sets the flag that a word names; returns what is wrong with the word.

    Args:
      word: of the command line.
      before: the word before it; None at the start.
      flags: of the program.
      values: where flags are set.
    """
    if word.name is None:
        return _stray(word, before, flags)
    name, value = word.name, word.value
    if name not in flags:
        positive = name.removeprefix("no")
        if positive not in flags or not flags[positive].switch:
            return _unknown(word, name, flags)
        if value is not None:
            instead = field.spell(positive, value)
            return _wrong(word, f"takes no value; use {instead}")
        name, value = positive, "false"
    elif flags[name].switch and value is None:
        value = "true"
    if value is None:
        return Problem(name, None, f"needs a value, {mention(name, '...')}")
    try:
        values[name] = parser(flags[name]).parse(value)
    except ValueError:
        return Problem(name, value, f"must be {flags[name].kind_words}")
    return None


def _wrong(word: _Word, text: str) -> Problem:
    """The problem of a word that sets no flag."""
    return Problem("", None, f"{field.quote(word.typed)}: {text}")


def _stray(word: _Word, before: _Word | None, flags: _Flags) -> Problem:
    name = before.name if before and before.value is None else None
    if name and name in flags and flags[name].switch:
        shown = field.quote(word.typed)
        return _wrong(word, f"stray argument; to set --{name}, write --{name}={shown}")
    return _wrong(word, "stray argument; settings are written --flag=value")


def _unknown(word: _Word, typed: str, flags: _Flags) -> Problem:
    """Why a flag that this program does not have is refused."""
    refused = tf_cnn_benchmarks.refused()
    for name in (typed, typed.removeprefix("no")):
        if name in refused:
            return Problem(name, None, refused[name])
        for kind in config.KINDS:
            if name in config.all_flags(kind) and name not in flags:
                where = f"python -m {kind.program}"
                return Problem(name, None, f"is a flag of {where}, not of this")
    hint = field.did_you_mean(typed, flags, prefix="--")
    return _wrong(word, f"no such flag; {hint or '--helpfull lists them'}")


def _help_group(words: Sequence[_Word]) -> str | None:
    """The group that help is asked for: "" for the common flags, None for no help."""
    for word, after in zip(words, [*words[1:], _Word("", "", None)]):
        if word.name == "helpfull":
            return help_text.FULL
        if word.name in _HELP:
            group = word.value or ("" if after.name is not None else after.typed)
            return "" if group == "true" else group
    return None


def _print_help(
    group: str, choices: rules.Choices, kind: type[config.Settings]
) -> NoReturn:
    # Longer lines than 100 characters are hard to read, whatever the terminal.
    width = min(shutil.get_terminal_size().columns, 100)
    try:
        print(help_text.text(group, choices, kind, width=width))
    except ValueError as error:
        raise UsageError(Problem("", None, str(error))) from None
    raise SystemExit(0)
