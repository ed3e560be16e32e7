"""What `--help` prints: the common flags, all flags of a group, or all flags."""

import dataclasses
import re
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from flags import config, field, rules, tf_cnn_benchmarks

FULL = "full"  # the group of all flags
RULES = "rules"  # the page docs/flags.md

_INDENT = 34  # the column in which descriptions begin
_INDENT_OF_COMMON = 40  # the same for the common flags, of which one is longer


def text(
    group: str,
    choices: rules.Choices,
    kind: type[config.Settings] = config.Config,
    *,
    width: int = 80,
) -> str:
    """The help of a group of flags.

    Args:
      group: "" for the flags that most runs need; `FULL` for all flags, and those of
        tf_cnn_benchmarks that are refused; `RULES` for the rules on which flags go
        together; or the name of a section.
      choices: flag -> the names that it can have.
      kind: the program's class of settings.
      width: of a line, in characters.

    Raises:
      ValueError: there is no such group.
    """
    groups: dict[str, Any] = {s.name: s.type for s in dataclasses.fields(kind)}
    if group == RULES:  # without those derived from modes
        return rules.page(rules.rows({}, config.table_flags(kind)))
    rows = rules.rows(choices, config.table_flags(kind))
    if group not in ("", FULL, *groups):
        hint = field.did_you_mean(group, [*groups, RULES]) or "choose one"
        raise ValueError(
            f"--help={field.quote(group)}: no such group of flags; {hint} "
            f"({', '.join(groups)}; --helpfull shows all)"
        )
    lines = [f"Usage: python -m {kind.program} [--flag=value ...]"]
    if not group:
        return "\n".join([*lines, *_common(kind, groups, width)])
    for name in groups if group == FULL else [group]:
        lines += ["", f"{name.capitalize()}. {groups[name].__doc__}"]
        for flag in field.flags_of(name, groups[name]):
            lines += _columns(_typed(flag), describe(flag, choices, rows), width)
    if group == FULL:
        lines += ["", "Flags of tf_cnn_benchmarks that are refused, and why:"]
        for name, sentence in sorted(tf_cnn_benchmarks.refused().items()):
            lines += _columns(f"--{name}", sentence, width)
        lines.append("--flagfile=FILE reads flags from a file, one on each line.")
    return "\n".join(lines)


def _common(
    kind: type[config.Settings], groups: Mapping[str, Any], width: int
) -> list[str]:
    """Commands to copy, and the flags that most runs need, a line each."""
    lines = ["", *(f"  python -m {kind.program} {words}" for words in kind.commands)]
    for group, section in groups.items():
        if common := getattr(section, "common", ()):
            flags = {flag.name: flag for flag in field.flags_of(group, section)}
            lines += ["", f"{group.capitalize()}. {section.__doc__}"]
            for name in common:
                lines += _lines(flags[name], width)
    names = textwrap.wrap(", ".join([*groups, RULES]), max(width, 40) - 2)
    heading = "--help GROUP shows all flags of a group, --helpfull all there are:"
    return [*lines, "", heading, *(f"  {line}" for line in names)]


def _lines(flag: field.Flag, width: int) -> list[str]:
    """A flag, the start of its text, and its default if it has one."""
    short = re.split(r"[,;:(]", flag.text)[0].strip()
    if flag.default not in (None, (), "", False):
        short += f" (default: {flag.default})"
    return _columns(_typed(flag), short, width, _INDENT_OF_COMMON)


def _typed(flag: field.Flag) -> str:
    return f"--[no]{flag.name}" if flag.switch else f"--{flag.name}"


def describe(
    flag: field.Flag, choices: rules.Choices, rows: Iterable[rules.Rule]
) -> str:
    """A flag's text, default, legal values, and the rules about it.

    Args:
      flag: to describe.
      choices: flag -> the names that it can have.
      rows: the rules on which flags go together.
    """
    default = field.typed(flag.default)
    if flag.default in (None, ()):
        default = flag.unset
    elif flag.kind is float and not flag.many:
        default = f"{flag.default:g}"
    notes = [
        f"default: {default.lower() if isinstance(flag.default, bool) else default}"
    ]
    if names := tuple(choices.get(flag.name, flag.choices)):
        alternative = f", or {field.OWN}" if flag.user_defined else ""
        notes.append(f"one of: {', '.join(names)}{alternative}")
    elif flag.must and flag.must is not field.AT_LEAST_0:  # which is obvious
        notes.append(flag.must.words)
    notes += rules.notes(rows, flag.name)
    return f"{flag.text} ({'; '.join(notes)})"


def _columns(left: str, right: str, width: int, indent: int = _INDENT) -> list[str]:
    """Two columns; a left text that is too wide gets a line of its own."""
    lines = textwrap.wrap(
        right,
        max(width, indent + 20),
        initial_indent=" " * indent,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    left = f"  {left}"
    if len(left) >= indent:
        return [left, *lines]
    return [left.ljust(indent) + lines[0].lstrip(), *lines[1:]]
