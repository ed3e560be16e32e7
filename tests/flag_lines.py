"""Command lines, for tests of what is said about them."""

from typing import Any

from flags import config


def settings(
    line: str, program: type[config.Settings] = config.Config
) -> dict[str, Any]:
    """The flags of a line by name; `flags.parse` would write its help each time."""
    flags, values = config.all_flags(program), {}
    for word in line.split():
        name, _, text = word.removeprefix("--").partition("=")
        if name not in flags:
            values[name.removeprefix("no")] = False
            continue
        kind = flags[name].kind
        if flags[name].many:
            values[name] = tuple(map(kind, text.split(",")))
        else:
            values[name] = True if kind is bool and not text else kind(text)
    return values


def table(text: str) -> list[tuple[str, str]]:
    """Command lines and what is said about them, each on a line of its own.

    What begins with a blank is said about the first flag, whose name is left out.
    """
    rows = text.strip("\n").splitlines()
    return [
        (line, f"{line.split()[0]}:{said}" if said[0] == " " else said)
        for line, said in zip(rows[::2], rows[1::2])
    ]
