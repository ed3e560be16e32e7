"""How the modes scale with the number of towers, simulated by towers that wait.

    python -m benchmarks.scaling --out=/tmp/scaling

Every tower waits instead of computing (`benchmarks.lib.waiting_towers`), so 64 of them
run in parallel on any machine; gradients, reduction and update are real.  An ideal step
takes as long as the wait.  Each mode and number of towers is measured in a process of
its own, in several rounds:

    step / wait   1 is ideal; the rest is the cost of reduction and update for all
                  towers, on this machine's cores
    client        CPU time per step of the thread that calls the session
    build, first  CPU time to build the graph; CPU time of the first step

The line under each table tells the growth of the last three: the exponent p in
cost ~ towers^p, fitted to the larger half of the numbers of towers; 1 is linear.

    python -m benchmarks.scaling --slower=3

instead times four towers of which one waits three times as long as the others: steps of
equal batches, of those that `--tower_batch_sizes=auto` measures, and of those that
`--rebalance` changes to (`benchmarks.lib.unequal_towers`).

With --out=PREFIX, PREFIX.json gets all numbers and PREFIX.png a picture.
"""

import argparse
import json
import math
import statistics
import sys
from collections.abc import Mapping, Sequence

from benchmarks.lib import chart, machine, process, ratios, table
from benchmarks.lib.options import above_0, parser_for, positive, program, writable
from benchmarks.peers.systems import ENVIRONMENT

MODES = (
    "parameter_server",
    "replicated:pscpu",
    "replicated:psgpu",
    "replicated:tree",
    "replicated:xring",
    "replicated:rechd",
)
COSTS = ("client", "build", "first")

# What makes batches unequal -> the name of its sizes.
_SIZES = {"auto": "sizes", "rebalance": "changed"}

Found = dict[str, dict[int, list[dict[str, float]]]]  # mode -> towers -> rounds


def measure(options: argparse.Namespace) -> tuple[Found, list[str]]:
    """All rounds; the numbers, and a line for each measurement that failed.

    Raises:
      ValueError: a measurement's program refuses its command line.
    """
    runs: Found = {mode: {n: [] for n in options.towers} for mode in options.modes}
    failures = []
    for number in range(1, options.rounds + 1):
        for mode in options.modes:
            for towers in options.towers:
                finished = process.run(
                    command(options, mode, towers), timeout=options.timeout
                )
                name = f"[{number}/{options.rounds}] {mode}, {towers} towers"
                if finished.status == 2:  # what the command line asks for is wrong
                    raise ValueError(finished.complaint)
                if finished.status:
                    failures.append(f"{name}: {finished.complaint}")
                    print(failures[-1], flush=True)
                    continue
                numbers = json.loads(finished.lines[-1][1])
                runs[mode][towers].append(numbers)
                ratio = ratios.number(numbers["step"] / options.wait)
                print(f"{name}: step / wait {ratio}", flush=True)
    return runs, failures


def command(options: argparse.Namespace, mode: str, towers: int) -> process.Command:
    """One measurement."""
    return process.Command(
        [
            options.python,
            "-m",
            "benchmarks.lib.waiting_towers",
            f"--mode={mode}",
            f"--num_towers={towers}",
            f"--wait={options.wait}",
            f"--variables={options.variables}",
            f"--floats={options.floats}",
            f"--num_batches={options.num_batches}",
        ],
        ENVIRONMENT,
    )


def unequal(options: argparse.Namespace) -> tuple[list[dict], list[str]]:
    """All rounds with a slow tower; the numbers, and a line for each failure."""
    runs, failures = [], []
    for number in range(1, options.rounds + 1):
        flags = f"--slower={options.slower}", f"--wait={options.wait / 20}"
        program = [options.python, "-m", "benchmarks.lib.unequal_towers", *flags]
        finished = process.run(
            process.Command(program, ENVIRONMENT), timeout=options.timeout
        )
        if finished.status:
            failures.append(f"[{number}/{options.rounds}] {finished.complaint}")
            continue
        runs.append(json.loads(finished.lines[-1][1]))
        for name, chosen in _SIZES.items():
            sizes = ", ".join(map(str, runs[-1][chosen]))
            ratio = ratios.number(runs[-1][name] / runs[-1]["equal"])
            print(f"[{number}/{options.rounds}] {name}, {sizes}: {ratio}", flush=True)
    return runs, failures


def median(rounds: Sequence[Mapping[str, float]], name: str) -> float | None:
    """The median of a number over the rounds."""
    return statistics.median(r[name] for r in rounds) if rounds else None


def growth(costs: Mapping[int, float]) -> float | None:
    """The exponent p of cost ~ towers^p, by least squares over the larger half.

    Args:
      costs: number of towers -> cost; the smaller half is mostly a constant.
    """
    points = [(math.log(n), math.log(c)) for n, c in sorted(costs.items()) if c > 0]
    points = points[len(points) // 2 :]
    if len(points) < 2:
        return None
    return statistics.linear_regression(*zip(*points)).slope


def report(rates: Found, wait: float) -> list[str]:
    """A table per mode, with the growth of the client's costs under it."""
    lines = []
    for mode, by_towers in rates.items():
        rows, costs = [], {name: {} for name in COSTS}
        for towers, rounds in by_towers.items():
            if not rounds:
                rows.append([str(towers), *["failed"] * 5])
                continue
            steps = ratios.spread(r["step"] / wait for r in rounds)
            for name in COSTS:
                costs[name][towers] = median(rounds, name)
            rows.append(
                [
                    str(towers),
                    str(steps),
                    ratios.number(1e3 * costs["client"][towers]),
                    ratios.number(costs["build"][towers]),
                    ratios.number(costs["first"][towers]),
                    f"{median(rounds, 'operations'):.0f}",
                ]
            )
        title = [
            mode,
            "step / wait",
            "client, ms",
            "build, s",
            "first, s",
            "operations",
        ]
        lines += ["", *table.table_lines(title, rows)]
        grown = {name: growth(costs[name]) for name in COSTS}
        told = [f"{name} {p:.2f}" for name, p in grown.items() if p is not None]
        if told:
            lines.append(f"grows as towers ^ {', '.join(told)}")
    return lines


def summary(rates: Found, wait: float) -> dict[str, dict]:
    """The medians and the growth, for the JSON file."""
    return {
        mode: {
            "step_over_wait": {
                str(n): median(rounds, "step") / wait
                for n, rounds in by_towers.items()
                if rounds
            },
            "growth": {
                name: growth({n: median(r, name) for n, r in by_towers.items() if r})
                for name in COSTS
            },
        }
        for mode, by_towers in rates.items()
    }


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line; exits with status 2 when something is wrong with it."""
    parser = parser_for("scaling", __doc__)
    parser.add_argument(
        "--modes", nargs="+", default=list(MODES), metavar="MODE[:SPEC]"
    )
    parser.add_argument(
        "--towers", type=positive, nargs="+", default=[1, 2, 4, 8, 16, 32, 64]
    )
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument(
        "--slower",
        type=above_0,
        metavar="FACTOR",
        help="times equal and unequal batches; one tower waits so much longer",
    )
    parser.add_argument(
        "--wait",
        type=above_0,
        default=0.2,
        help="seconds of a tower's wait (%(default)s)",
    )
    parser.add_argument("--variables", type=positive, default=4)
    parser.add_argument(
        "--floats", type=positive, default=25_000, help="floats of a variable"
    )
    parser.add_argument("--num_batches", type=positive, default=20, help="timed steps")
    parser.add_argument(
        "--timeout", type=above_0, default=600, help="seconds that a process may take"
    )
    parser.add_argument("--python", type=program, default=sys.executable)
    parser.add_argument(
        "--out",
        type=writable,
        metavar="PREFIX",
        help="begins the names of the .json and .png files",
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit status."""
    options = parse(argv)
    if options.slower:
        rounds, failures = unequal(options)
        for name in _SIZES if rounds else ():
            spread = ratios.spread(run[name] / run["equal"] for run in rounds)
            print(f"step with {name} / of equal batches: {spread}")
        print("\n".join(failures))
        return 1 if failures else 0
    try:
        runs, failures = measure(options)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join([*report(runs, options.wait), *failures]))
    if options.out:
        machine.write_results(
            options.out + ".json",
            vars(options),
            python=options.python,
            runs=runs,
            summary=summary(runs, options.wait),
        )
        curves = {
            mode: numbers["step_over_wait"]
            for mode, numbers in summary(runs, options.wait).items()
        }
        print(
            chart.curves(curves, options.out + ".png", ("towers", "step / wait"))
            or f"Wrote {options.out}.json, {options.out}.png"
        )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
