"""Time to the first step, with and without TensorFlow's graph optimizers.

    python -m benchmarks.startup
    python -m benchmarks.startup --parts models --tf_cnn_benchmarks=PATH

This project switches the graph optimizers off, which shortens the start; the second
part shows whether it costs speed.  Every measurement is a process of its own, in
several rounds:

    command  From the start of `python -m towers.train` (lenet, its own data, 4 towers)
             to the end of the first step, minus `import tensorflow` alone.
    towers   resnet50 at 32 x 32 pixels on 1, 4, 8 and 32 towers: the time of build,
             session and first step, and images/s after them, with the graph optimizers
             off (this project's default) and on; and `plain`, towers built in a Python
             loop and run with TensorFlow's defaults.  The time is also given as a
             multiple of that of `import tensorflow` alone, so that the speed of the
             machine matters little.
    models   Large models on 8 towers of one image each, beside tf_cnn_benchmarks with
             the same command line: from the line before the graph is built to the end
             of the first step.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.lib import machine, process, ratios, table
from benchmarks.lib.cases import IMAGE_MODELS, BenchmarkCase, Length
from benchmarks.lib.options import add_places, parser_for, places_of, positive, writable
from benchmarks.peers.systems import ENVIRONMENT, SYSTEMS, missing

IMPORT = ["-c", "import tensorflow; print('imported', flush=True)"]
IMPORTED = "imported"

# Printed at the end of the one warm-up step.
TRAIN = ["-m", "towers.train", "--num_gpus=4"]
TRAIN += ["--num_warmup_batches=1", "--num_batches=1"]
WARM = "Done warm up"

BUILDS = "Generating training model"  # printed before the build

MANY_TOWERS = ["-m", "benchmarks.lib.many_towers"]

BATCH_SIZE = 2  # per tower
LEAST_STEPS = 5
TIMEOUT = 1800  # seconds of a run

OFF, ON = "off", "on"  # the graph optimizers
PLAIN = "plain"

# How towers are built and run -> the flags of many_towers; what a line says of it.
WAYS = {OFF: [], ON: ["--graph_optimizers"], PLAIN: ["--plain"]}
TITLES = {OFF: "graph optimizers off", ON: "graph optimizers on", PLAIN: "plain"}


MODELS = ("inception4", "resnet152")
OURS, PEER = "towers.tf_cnn_benchmarks", "tf_cnn_benchmarks"


class FailedError(Exception):
    """A measurement failed."""


def command_round(options: argparse.Namespace) -> dict[str, float]:
    """Seconds to the import alone, to the first step, and between the two."""
    alone = _seconds_to(IMPORTED, [options.python, *IMPORT])
    first = _seconds_to(WARM, [options.python, *TRAIN])
    print(f"  import alone {alone:.1f} s, first step {first:.1f} s", flush=True)
    return {"import": alone, "first_step": first, "difference": first - alone}


def towers_round(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """`32 off` and the like -> what `many_towers` says, and how long an import took."""
    results = {}
    for count in options.towers:
        alone = _seconds_to(IMPORTED, [options.python, *IMPORT])
        for way in WAYS:
            numbers = _many_towers(options, count, way)
            results[f"{count} {way}"] = {**numbers, "import": alone}
    return results


def _many_towers(options: argparse.Namespace, count: int, way: str) -> dict[str, float]:
    """Its numbers."""
    steps = max(LEAST_STEPS, options.images // (count * BATCH_SIZE))
    argv = [options.python, *MANY_TOWERS, f"--num_towers={count}"]
    argv += [f"--batch_size={BATCH_SIZE}", f"--num_batches={steps}", *WAYS[way]]
    finished = _run(process.Command(argv, ENVIRONMENT))
    numbers = json.loads(finished.lines[-1][1])
    print(
        f"  towers {count}, {TITLES[way]}: first step after "
        f"{to_first_step(numbers):.1f} s, {numbers['images_per_second']:.1f} images/s",
        flush=True,
    )
    return numbers


def models_round(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Model -> system -> seconds of build and first step."""
    results: dict[str, dict[str, float]] = {}
    for model in options.models:
        case = BenchmarkCase(model, options.model_towers, 1)
        results[model] = {}
        for name in (OURS, PEER):
            row = SYSTEMS[name]
            command = row.command(case, Length(steps=1, warmup=1), places_of(options))
            assert command is not None  # the models are those of both
            finished = _run(command)
            begun, ended = finished.when(BUILDS), finished.when(WARM)
            if begun is None or ended is None:
                raise FailedError(f"{command}: no line {BUILDS!r} or {WARM!r}")
            results[model][name] = ended - begun
            print(f"  {case} {name}: {ended - begun:.1f} s", flush=True)
    return results


def _seconds_to(line: str, argv: Sequence[str]) -> float:
    """From the start of a program to a line of its output."""
    seconds = _run(process.Command(argv, ENVIRONMENT)).when(line)
    if seconds is None:
        raise FailedError(f"no line {line!r}")
    return seconds


def _run(command: process.Command) -> process.Finished:
    finished = process.run(command, timeout=TIMEOUT)
    if finished.status:
        raise FailedError(f"{' '.join(command.argv)}: {finished.complaint}")
    return finished


def command_table(rounds: Sequence[dict[str, float]]) -> list[str]:
    """A row for each of the three times."""
    rows = [
        [title, str(ratios.spread(times[name] for times in rounds))]
        for name, title in (
            ("import", "import tensorflow alone"),
            ("first_step", "command to the end of the first step"),
            ("difference", "the second minus the first"),
        )
    ]
    return table.table_lines(["lenet, 4 towers", "s"], rows)


def towers_table(rounds: Sequence[dict[str, dict[str, float]]]) -> list[str]:
    """Two tables with a row for each number of towers: seconds and images/s.

    Seconds `to step 1` count from the build on.
    """
    seconds, speeds = [], []
    for count in dict.fromkeys(name.split()[0] for name in rounds[0]):
        by_way = {way: [round_[f"{count} {way}"] for round_ in rounds] for way in WAYS}
        times = {way: [to_first_step(n) for n in runs] for way, runs in by_way.items()}
        alone = [numbers["import"] for numbers in by_way[OFF]]
        times_as_long = ratios.spread(ratios.paired(times[OFF], alone))
        imports = [str(ratios.spread(alone)), str(times_as_long)]
        seconds.append([count, *_columns(times), *imports])
        rates = {
            way: [n["images_per_second"] for n in runs] for way, runs in by_way.items()
        }
        speeds.append([count, *_columns(rates)])
    titles = [OFF]
    for way in (ON, PLAIN):
        titles += [way, f"{OFF} / {way}"]
    more = ["import alone", f"{OFF} / import"]
    return [
        *table.table_lines(["towers, s to step 1", *titles, *more], seconds),
        "",
        *table.table_lines(["towers, images/s", *titles], speeds),
    ]


def _columns(by_way: dict[str, Sequence[float]]) -> list[str]:
    """`OFF`, and each other way with the ratio of `OFF` to it, in pairs."""
    columns = [ratios.spread(by_way[OFF])]
    for way in (ON, PLAIN):
        columns += [ratios.spread(by_way[way])]
        columns += [ratios.spread(ratios.paired(by_way[OFF], by_way[way]))]
    return list(map(str, columns))


def to_first_step(numbers: dict[str, float]) -> float:
    """Seconds from the begin of the build to the end of the first step."""
    return numbers["build"] + numbers["start"] + numbers["first_step"]


def models_table(rounds: Sequence[Mapping[str, Mapping[str, float]]]) -> list[str]:
    """A row for each model: seconds of both, and their ratio in pairs."""
    rows = []
    for model in rounds[0]:
        ours, theirs = (
            [times[model][name] for times in rounds] for name in (OURS, PEER)
        )
        columns = ours, theirs, ratios.paired(ours, theirs)
        rows.append([model, *(str(ratios.spread(column)) for column in columns)])
    titles = ["build and first step, s", "ours", PEER, "ours / theirs"]
    return table.table_lines(titles, rows)


# Part -> what measures a round of it, and what makes a table of all rounds.
PARTS: dict[str, tuple[Callable[..., Any], Callable[..., list[str]]]] = {
    "command": (command_round, command_table),
    "towers": (towers_round, towers_table),
    "models": (models_round, models_table),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit status."""
    options = _parse(argv)
    by_part = {part: [] for part in options.parts}
    try:
        for number in range(1, options.rounds + 1):
            print(f"round {number} of {options.rounds}", flush=True)
            for part, rounds in by_part.items():
                rounds.append(PARTS[part][0](options))
    except FailedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for part, rounds in by_part.items():
        print("\n".join(["", *PARTS[part][1](rounds)]))
    machine.write_results(options.json, vars(options), python=options.python, **by_part)
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = parser_for("startup", __doc__)
    parser.add_argument(
        "--parts",
        nargs="+",
        choices=tuple(PARTS),
        default=["command", "towers"],
    )
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--towers", type=positive, nargs="+", default=[1, 4, 8, 32])
    parser.add_argument(
        "--images",
        type=positive,
        default=450,
        help="about how many images a speed is measured on",
    )
    parser.add_argument(
        "--models", nargs="+", choices=tuple(IMAGE_MODELS), default=list(MODELS)
    )
    parser.add_argument("--model_towers", type=positive, default=8)
    add_places(parser)
    parser.add_argument(
        "--json", type=writable, metavar="FILE", help="JSON file of all numbers"
    )
    options = parser.parse_args(argv)
    if "models" in options.parts:
        places = places_of(options)
        if words := missing(PEER, places, machine.versions(places.tf_cnn_python)):
            parser.error(words)
    return options


if __name__ == "__main__":
    sys.exit(main())
