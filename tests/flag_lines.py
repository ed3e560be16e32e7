"""Settings as command lines, for tests of what is said about them."""

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
