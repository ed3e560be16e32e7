"""Peak memory of every mode, beside tf_cnn_benchmarks on the same model and batch.

    python -m benchmarks.memory --cases=lenet:4x8 --tf_cnn_benchmarks=PATH

Each measurement is a process of its own, and its number the maximum resident set size
of that process, since TensorFlow's CPU allocator records no peak.  It includes what
TensorFlow itself takes; the row `import tensorflow` shows how much.  Prints MiB of both
and ours / theirs, as median, least and most of the rounds; 1 or less is the target.
"""

import argparse
import dataclasses
import re
import sys
from collections.abc import Sequence

from benchmarks import cases, machine, process, ratios, table
from benchmarks.options import (
    above_0,
    add_places,
    list_of_cases,
    parser_for,
    places_of,
    positive,
    writable,
)
from benchmarks.systems import ENVIRONMENT, SYSTEMS, Places, missing

OURS, THEIRS = "towers", "tf_cnn_benchmarks"

# Mode -> system -> its flags beside the case and --variable_update.
MODES: dict[str, dict[str, list[str]]] = {
    "parameter_server": {OURS: [], THEIRS: []},
    "replicated": {OURS: [], THEIRS: ["--all_reduce_spec=pscpu"]},
    "independent": {OURS: [], THEIRS: []},
}
IMPORT = "import tensorflow"

# Runs a command; prints its peak memory and exits with its status.
_MEASURED = """
import resource, subprocess, sys
status = subprocess.call(sys.argv[1:])
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(f"peak memory: {peak} KiB", flush=True)
sys.exit(status)
"""
_PEAK = re.compile(r"peak memory: (\d+) KiB")

Runs = dict[tuple[str, str, str], list[float]]  # (case, mode, system) -> MiB by round


def measured(command: process.Command) -> process.Command:
    """The command, run by a process that prints its peak memory at the end."""
    argv = [sys.executable, "-c", _MEASURED, *command.argv]
    return dataclasses.replace(command, argv=argv)


def peak(finished: process.Finished) -> float | None:
    """MiB that a `measured` command took; None if it failed."""
    found = [match[1] for _, text in finished.lines if (match := _PEAK.match(text))]
    return int(found[-1]) / 1024 if found and finished.status == 0 else None


def commands(
    wanted: Sequence[cases.Case], systems: Sequence[str], places: Places
) -> dict[tuple[str, str, str], process.Command]:
    """The commands of a round, by (case, mode, system)."""
    alone = [places.python, "-c", IMPORT]
    found = {("-", IMPORT, OURS): process.Command(alone, ENVIRONMENT)}
    for case in wanted:
        for mode, flags in MODES.items():
            for system in systems:
                command = SYSTEMS[system].command(case, cases.of_steps(5), places)
                if command:
                    own = [f"--variable_update={mode}", *flags[system]]
                    command = dataclasses.replace(command, argv=[*command.argv, *own])
                    found[str(case), mode, system] = command
    return found


def measure(options: argparse.Namespace) -> tuple[Runs, list[str]]:
    """All rounds: the numbers, and a line for each run that failed."""
    where = places_of(options)
    systems, failures = [OURS], []
    reason = missing(THEIRS, where, machine.versions(where.tf_cnn_python))
    if reason:
        print(f"{THEIRS} is left out: {reason}", flush=True)
    else:
        systems.append(THEIRS)
    wanted = commands(options.cases, systems, where)
    found: Runs = {key: [] for key in wanted}
    for number in range(1, options.rounds + 1):
        for key, command in wanted.items():
            finished = process.run(measured(command), timeout=options.timeout)
            mebibytes, name = peak(finished), f"[{number}] {' '.join(key)}"
            if mebibytes is None:
                lines = [text for _, text in finished.lines if not _PEAK.match(text)]
                failures.append(f"{name} failed: {lines[-1] if lines else 'no output'}")
                print(failures[-1], flush=True)
                continue
            found[key].append(mebibytes)
            print(f"{name}: {mebibytes:.0f} MiB", flush=True)
    return found, failures


def report(found: Runs) -> list[str]:
    """A table: MiB of each, and ours over theirs."""
    rows = []
    for case, mode, system in found:
        if system != OURS:
            continue
        ours, theirs = found[case, mode, OURS], found.get((case, mode, THEIRS), [])
        cells = [ratios.spread(runs) for runs in (ours, theirs)]
        cells.append(ratios.spread(ratios.paired(ours, theirs)))
        rows.append([f"{case} {mode}", *(str(c) if c else "-" for c in cells)])
    return table.lines(["peak MiB", OURS, THEIRS, "ours / theirs"], rows)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line; exits with status 2 when something is wrong with it."""
    parser = parser_for("memory", __doc__)
    parser.add_argument(
        "--cases",
        type=list_of_cases,
        default="lenet:4x8,resnet20:4x32,alexnet:4x8",
        help="MODEL:TOWERSxBATCH,... (%(default)s)",
    )
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument(
        "--timeout", type=above_0, default=600, help="of a run, in seconds"
    )
    add_places(parser)
    parser.add_argument("--json", type=writable, metavar="FILE", help="for all numbers")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit status."""
    options = parse(argv)
    found, failures = measure(options)
    print("\n".join(["", *report(found), *failures]))
    if options.json:
        arguments = {**vars(options), "cases": [str(case) for case in options.cases]}
        machine.write_json(
            options.json,
            {
                "arguments": arguments,
                "versions": machine.versions(options.python),
                "peak_mebibytes": {" ".join(key): runs for key, runs in found.items()},
            },
        )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
