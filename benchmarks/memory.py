"""Peak memory of every mode, beside tf_cnn_benchmarks with the same model and batch.

    python -m benchmarks.memory --cases=lenet:4x8 --tf_cnn_benchmarks=PATH

Each measurement is the maximum resident set size of a process of its own, since
TensorFlow's CPU allocator records no peak.  It includes TensorFlow itself; the row
`import tensorflow` shows how much that is.  Prints MiB and the ratio ours / theirs,
each as median, minimum and maximum over the rounds; the target is at most 1.

The peer runs with TensorFlow's defaults and, on CPUs where these leave oneDNN off, also
with oneDNN, which this project switches on.  With oneDNN, TensorFlow keeps freed memory
in a pool: fewer pages are newly touched, but a fifth more memory is held.
TF_ONEDNN_USE_SYSTEM_ALLOCATOR=1 in the environment switches the pool off.

    python -m benchmarks.memory --estimates --cases=resnet20:1x128

prints instead the memory that `towers.session.step_memory` estimates for a run, beside
the growth of its memory from the built graph to the last step.
"""

import argparse
import dataclasses
import re
import sys
from collections.abc import Sequence

from benchmarks.lib import cases, machine, process, ratios, table
from benchmarks.lib.options import (
    above_0,
    add_places,
    list_of_cases,
    parser_for,
    places_of,
    positive,
    writable,
)
from benchmarks.peers.systems import ENVIRONMENT, SYSTEMS, Places, missing

OURS = "towers"
PEERS = ("tf_cnn_benchmarks", "tf_cnn_benchmarks_onednn")

# Mode -> flags of the peers, in addition to the case and --variable_update.
MODES: dict[str, list[str]] = {
    "parameter_server": [],
    "replicated": ["--all_reduce_spec=pscpu"],
    "independent": [],
}
IMPORT = "import tensorflow"

# Trains; prints the estimate and the growth of anonymous memory.
_ESTIMATED = """
import sys
from unittest import mock
from towers import start
start.import_tensorflow()
from towers import train
from towers.session import step_memory

def taken():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if "RssAnon" in line) * 1024

seen = []
def check(built, limits, console, **options):
    seen.extend([step_memory.estimate(built, **options), taken()])

with mock.patch.object(step_memory, "check", check):
    status = train.main(["train", *sys.argv[1:]])
print(f"estimate: {seen[0]}, grew by: {taken() - seen[1]}", flush=True)
sys.exit(status)
"""
_ESTIMATE = re.compile(r"estimate: (\d+), grew by: (\d+)")

Runs = dict[tuple[str, str, str], list[float]]  # (case, mode, system) -> MiB by round


def commands(
    wanted: Sequence[cases.BenchmarkCase], systems: Sequence[str], places: Places
) -> dict[tuple[str, str, str], process.Command]:
    """The commands of a round, by (case, mode, system)."""
    alone = [places.python, "-c", IMPORT]
    all_commands = {("-", IMPORT, OURS): process.Command(alone, ENVIRONMENT)}
    for case in wanted:
        for mode, peer_flags in MODES.items():
            for system in systems:
                command = SYSTEMS[system].command(case, cases.of_steps(5), places)
                if command:
                    flags = [] if system == OURS else peer_flags
                    extra = [f"--variable_update={mode}", *flags]
                    command = dataclasses.replace(command, argv=[*command.argv, *extra])
                    all_commands[str(case), mode, system] = command
    return all_commands


def measure(options: argparse.Namespace) -> tuple[Runs, list[str]]:
    """All rounds: the numbers, and a line for each run that failed."""
    where = places_of(options)
    systems, failures = [OURS], []
    versions = machine.versions(where.tf_cnn_python)
    for peer in PEERS:
        if reason := missing(peer, where, versions):
            print(f"{peer} is left out: {reason}", flush=True)
        else:
            systems.append(peer)
    wanted = commands(options.cases, systems, where)
    peaks: Runs = {key: [] for key in wanted}
    for number in range(1, options.rounds + 1):
        for key, command in wanted.items():
            finished = process.run(command, timeout=options.timeout)
            name = f"[{number}] {' '.join(key)}"
            if finished.status:
                failures.append(f"{name} failed: {finished.complaint}")
                print(failures[-1], flush=True)
                continue
            mebibytes = finished.peak_bytes / 2**20
            peaks[key].append(mebibytes)
            print(f"{name}: {mebibytes:.0f} MiB", flush=True)
    return peaks, failures


def report(runs: Runs) -> list[str]:
    """A table: MiB of each system, and the ratio of ours to each peer's."""
    peers = [peer for peer in PEERS if any(peer in key for key in runs)]
    title, rows = ["peak MiB", OURS], []
    for peer in peers:
        title += [peer, "ours / theirs"]
    for case, mode, system in runs:
        if system != OURS:
            continue
        ours = runs[case, mode, OURS]
        cells = [ratios.spread(ours)]
        for peer in peers:
            theirs = runs.get((case, mode, peer), [])
            cells += [ratios.spread(theirs), ratios.spread(ratios.paired(ours, theirs))]
        rows.append([f"{case} {mode}", *(str(c) if c else "-" for c in cells)])
    return table.table_lines(title, rows)


def estimates(options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """A table of estimates beside measurements, and a line for each failed run."""
    rows, failures = [], []
    for case in options.cases:
        flags = [f"--model={case.model}", f"--num_gpus={case.towers}"]
        flags += [f"--batch_size={case.batch_size}", f"--compute_dtype={case.dtype}"]
        flags += ["--device=cpu", "--num_batches=5"]
        argv = [options.python, "-c", _ESTIMATED, *flags, "--data_name=synthetic"]
        finished = process.run(
            process.Command(argv, ENVIRONMENT), timeout=options.timeout
        )
        row = estimate_row(str(case), [text for _, text in finished.lines])
        if row is None:
            failures.append(f"{case} failed: {finished.lines[-1:]}")
        else:
            rows.append(row)
    title = ["MiB", "estimate", "grew by", "estimate / grew by"]
    return table.table_lines(title, rows), failures


def estimate_row(case: str, lines: Sequence[str]) -> list[str] | None:
    """The row of a case from the lines of its run; None if they lack the numbers."""
    matches = [match for text in lines if (match := _ESTIMATE.match(text))]
    if not matches:
        return None
    estimate, growth = map(int, matches[-1].groups())
    mebibytes = [f"{size / 2**20:.0f}" for size in (estimate, growth)]
    return [case, *mebibytes, f"{estimate / max(growth, 1):.2f}"]


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line; exits with status 2 when something is wrong with it."""
    parser = parser_for("memory", __doc__)
    parser.add_argument(
        "--cases",
        type=list_of_cases,
        default="lenet:4x8,resnet20:4x32,alexnet:4x8",
        help="MODEL:TOWERSxBATCH,... (%(default)s)",
    )
    parser.add_argument(
        "--estimates", action="store_true", help="show estimates beside what runs take"
    )
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument(
        "--timeout", type=above_0, default=600, help="seconds that a run may take"
    )
    add_places(parser)
    parser.add_argument(
        "--json", type=writable, metavar="FILE", help="JSON file of all numbers"
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit status."""
    options = parse(argv)
    if options.estimates:
        lines, failures = estimates(options)
        print("\n".join([*lines, *failures]))
        return 1 if failures else 0
    peaks, failures = measure(options)
    print("\n".join(["", *report(peaks), *failures]))
    machine.write_results(
        options.json,
        {**vars(options), "cases": [str(case) for case in options.cases]},
        python=options.python,
        peak_mebibytes={" ".join(key): runs for key, runs in peaks.items()},
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
