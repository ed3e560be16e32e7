"""The command line: dataclass fields as absl flags, absl flags as a `Config`.

    config = parse(sys.argv, {"optimizer": OPTIMIZERS})

absl parses the values; the walk over the words is our own, because absl stops at the
first error, and here a user sees all of them at once.
"""

import collections
import os
import re
import shutil
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

from absl import flags as absl_flags

from flags import config, field, help_text, tf_cnn_benchmarks

_PARSERS = {
    int: absl_flags.IntegerParser,
    float: absl_flags.FloatParser,
    str: absl_flags.ArgumentParser,
}

_HELP = ("help", "helpshort", "helpfull", "h", "?")

Choices = help_text.Choices


class UsageError(ValueError):
    """A command line that cannot be run.

    Attributes:
      errors: all that is wrong with it, one sentence each.
      config: what could be read, with the defaults of the flags at fault, so that a
        caller can look for what else is wrong; or None.
      at_fault: names of those flags.
    """

    def __init__(
        self,
        errors: Sequence[str],
        partial: config.Settings | None = None,
        at_fault: Collection[str] = (),
    ):
        super().__init__("\n".join(errors))
        self.errors = list(errors)
        self.config = partial
        self.at_fault = frozenset(at_fault)


def parse(
    argv: Sequence[str], choices: Choices, kind: type[config.Settings] = config.Config
) -> config.Settings:
    """Reads a command line.

    Prints the help and exits with status 0 if the command line asks for it.

    Args:
      argv: the program's name and its arguments, as in `sys.argv`.
      choices: the names in the tables that flags choose from, by flag.
      kind: of settings, as the program has them.

    Raises:
      UsageError: with everything that is wrong.
    """
    flag_values = define(choices, kind)
    words = list(_split(_with_flagfiles(argv[1:], flag_values), flag_values))
    if (group := _help_group(words)) is not None:
        _print_help(group, choices, kind)
    errors, unread = [], set()
    for before, word in zip([None, *words], words):
        if error := _read(word, before, flag_values, kind):
            errors.append(error)
            unread.add(word.name)
    values = {name: flag_values[name].value for name in flag_values}
    for name, flag in config.all_flags(kind).items():
        if flag.path and values[name]:
            values[name] = os.path.expanduser(values[name])
    parsed = config.make(kind, **values)
    errors += config.check(parsed, choices, unread=unread)
    if errors:
        at_fault = {name for error in errors for name in _named_first(error)}
        right = {k: v for k, v in values.items() if k not in at_fault}
        raise UsageError(errors, config.make(kind, **right), at_fault)
    return parsed


def define(
    choices: Choices, kind: type[config.Settings] = config.Config
) -> absl_flags.FlagValues:
    """All flags as absl flags, in a holder of their own rather than absl's global."""
    flag_values = absl_flags.FlagValues()
    for flag in config.all_flags(kind).values():
        text = help_text.describe(flag, choices, kind)
        if flag.kind is bool:
            absl_flags.DEFINE_boolean(
                flag.name, flag.default, text, flag_values=flag_values
            )
            continue
        parser = _PARSERS[flag.kind]()
        if flag.many:
            parser = _TupleParser(parser)
        elif flag.choices:
            parser = _NameParser(flag.choices)
        absl_flags.DEFINE(
            parser, flag.name, flag.default, text, flag_values=flag_values
        )
        # --flag is --flag=true, and --noflag is --flag=false.
        flag_values[flag.name].boolean = flag.switch
    return flag_values


def arguments(config_: config.Settings, *, without: Collection[str] = ()) -> list[str]:
    """A command line that `parse` reads as these settings.

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
    """Values separated by commas, and spaces for who likes them."""

    def __init__(self, item: absl_flags.ArgumentParser):
        super().__init__()
        self._item = item

    def parse(self, argument: str | tuple[Any, ...]) -> tuple[Any, ...]:
        if isinstance(argument, tuple):  # absl parses the default too
            return argument
        return tuple(self._item.parse(part.strip()) for part in argument.split(","))


class _NameParser(absl_flags.ArgumentParser):
    """A listed name in any case, as in tf_cnn_benchmarks; `check` refuses others."""

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


def _with_flagfiles(
    arguments: Sequence[str], flag_values: absl_flags.FlagValues
) -> list[str]:
    """Puts the lines of each --flagfile in its place."""
    try:
        return flag_values.read_flags_from_files(list(arguments))
    except (absl_flags.Error, UnicodeError) as error:
        # What the file would have said is unknown, so nothing else can be judged.
        reason = error.__context__ or error  # absl hides the OSError
        raise UsageError([f"--flagfile: {reason}"]) from None


def _split(
    arguments: Sequence[str], flag_values: absl_flags.FlagValues
) -> Iterator[_Word]:
    """Pairs the flags with their values."""
    switches = {name for name in flag_values if flag_values[name].boolean}
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
    word: _Word,
    before: _Word | None,
    flag_values: absl_flags.FlagValues,
    kind: type[config.Settings],
) -> str | None:
    """Sets the absl flag that a word names; returns what is wrong with the word.

    Args:
      word: of the command line.
      before: the word before it; None at the start.
      flag_values: where flags are set.
      kind: of settings, as the program has them.
    """
    if word.name is None:
        return _stray(word, before, flag_values)
    name, value = word.name, word.value
    if name not in flag_values:
        positive = name.removeprefix("no")
        if positive not in flag_values or not flag_values[positive].boolean:
            return _unknown(word, flag_values)
        if value is not None:
            instead = field.spell(positive, value)
            return f"{field.quote(word.typed)}: takes no value; use {instead}"
        name, value = positive, "false"
    elif flag_values[name].boolean and value is None:
        value = "true"
    if value is None:
        return f"--{name}: needs a value, --{name}=..."
    try:
        flag_values[name].parse(value)
    except absl_flags.IllegalFlagValueError:
        words = config.all_flags(kind)[name].kind_words
        return f"{field.spell(name, value)}: must be {words}"
    return None


def _named_first(error: str) -> list[str]:
    """The flag that a sentence of `check` begins with."""
    return re.findall(r"^--(\w+)", error)


def _stray(
    word: _Word, before: _Word | None, flag_values: absl_flags.FlagValues
) -> str:
    shown = field.quote(word.typed)
    name = before.name if before and before.value is None else None
    if name in flag_values and flag_values[name].boolean:
        return f"{shown}: stray argument; to set --{name}, write --{name}={shown}"
    return f"{shown}: stray argument; settings are written --flag=value"


def _unknown(word: _Word, flag_values: absl_flags.FlagValues) -> str:
    """Why a flag that this program does not have is refused."""
    refused = tf_cnn_benchmarks.refused()
    for name in (word.name, word.name.removeprefix("no")):
        if name in refused:
            return f"--{name}: {refused[name]}"
        for kind in config.KINDS:
            if name in config.all_flags(kind) and name not in flag_values:
                return f"--{name}: is a flag of python -m {kind.program}, not of this"
    hint = field.did_you_mean(word.name, flag_values, prefix="--")
    return f"{field.quote(word.typed)}: no such flag; {hint or '--helpfull lists them'}"


def _help_group(words: Sequence[_Word]) -> str | None:
    """The group that help is asked for: "" for the common flags, None for no help."""
    for word, after in zip(words, [*words[1:], None]):
        if word.name == "helpfull":
            return help_text.FULL
        if word.name in _HELP:
            follows = after is not None and after.name is None
            group = word.value or (after.typed if follows else "")
            return "" if group == "true" else group
    return None


def _print_help(group: str, choices: Choices, kind: type[config.Settings]) -> NoReturn:
    # Longer lines than 100 characters are hard to read, whatever the terminal.
    width = min(shutil.get_terminal_size().columns, 100)
    try:
        print(help_text.text(group, choices, kind, width=width))
    except ValueError as error:
        raise UsageError([str(error)]) from None
    raise SystemExit(0)
