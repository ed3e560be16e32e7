"""Speed of this project beside peers, with the same models, batches and towers.

    python -m benchmarks.compare --rounds=5 --out=/tmp/compare

Each run is a process of its own; a round runs every case on every system, one after
another.  Prints images/s and the ratios ours / peer and N towers / one tower, each as
median, minimum and maximum over the rounds, and the ratios of peak memory.  A system
that is not installed is left out and a run that fails is named at the end; the others
still run.

    python -m benchmarks.compare --same_command --rounds=3 --tf_cnn_benchmarks=PATH

compares all image models of tf_cnn_benchmarks, with 1 and 4 towers.  Both are given one
command line, which `towers.tf_cnn_benchmarks` translates here.

With --out=PREFIX, PREFIX.json is written after every run, with `machine`, `arguments`,
`systems` (the versions of each), `runs` (every number, with its command) and `summary`
(the ratios).  At the end PREFIX.png shows the ratios.  With --resume as well, the runs
that are in PREFIX.json already are not made again.
"""

import argparse
import dataclasses
import json
import math
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.lib import cases, chart, machine, process
from benchmarks.lib.options import (
    above_0,
    add_places,
    list_of_cases,
    parser_for,
    places_of,
    positive,
    program,
    writable,
)
from benchmarks.lib.results import Results, Run
from benchmarks.peers.systems import SYSTEMS, missing

ATTEMPTS = 3  # so often a run is tried with --max_others

SAME_COMMAND = ("towers.tf_cnn_benchmarks", "tf_cnn_benchmarks")

# Arguments on which a number depends; --resume needs them to be as they were.
SETTINGS = ("seconds", "num_batches", "max_others")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line; exits with status 2 when something is wrong with it."""
    parser = parser_for("compare", __doc__)
    parser.add_argument(
        "--cases",
        type=list_of_cases,
        help=f"MODEL:TOWERSxBATCH,... ({cases.DEFAULT})",
    )
    parser.add_argument("--systems", help="systems to run, ours first")
    parser.add_argument(
        "--same_command",
        action="store_true",
        help="all image models of tf_cnn_benchmarks, if no --cases are named",
    )
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument(
        "--seconds",
        type=positive,
        default=20,
        help="the timed steps fill about so many, on 2 cores (%(default)s)",
    )
    parser.add_argument(
        "--num_batches", type=positive, help="number of timed steps of every run"
    )
    parser.add_argument(
        "--timeout", type=positive, default=900, help="seconds that a run may take"
    )
    parser.add_argument(
        "--max_others",
        type=above_0,
        default=math.inf,
        metavar="CPUS",
        help="a run while others kept more CPUs busy is made again, twice at most",
    )
    add_places(parser)
    parser.add_argument(
        "--torch_python",
        type=program,
        help="a Python that has PyTorch (that of --python)",
    )
    parser.add_argument(
        "--out",
        type=writable,
        metavar="PREFIX",
        help="begins the names of the .json and .png files",
    )
    parser.add_argument(
        "--resume", action="store_true", help="keep the runs that --out has already"
    )
    options = parser.parse_args(argv)
    _set_defaults(options)
    if options.resume and not os.path.isfile(f"{options.out}.json"):
        parser.error("--resume: give --out, of a comparison that has begun")
    for name in options.systems:
        if name not in SYSTEMS:
            parser.error(f"--systems: {name!r} is none of {', '.join(SYSTEMS)}")
    return options


def _set_defaults(options: argparse.Namespace) -> None:
    """Sets the cases and systems that are not named."""
    wanted = cases.parse_list(cases.DEFAULT)
    systems = [name for name in SYSTEMS if name != SAME_COMMAND[0]]
    if options.same_command:
        wanted, systems = cases.of_image_models((1, 4)), list(SAME_COMMAND)
    options.cases = options.cases or wanted
    options.systems = options.systems.split(",") if options.systems else systems


class Comparison:
    """A comparison under way.

    Args:
      options: the command line.
    """

    def __init__(self, options: argparse.Namespace):
        self._options = options
        self._places = places_of(options, options.torch_python)
        self._versions = self._find_systems()
        self.results = Results(options.cases, list(self._versions), [])
        if options.resume:
            self._read()
        self._facts: dict[str, Any] = {
            "machine": machine.facts(),  # as it is at the start
            "arguments": {
                **vars(options),
                "cases": [str(case) for case in options.cases],
                "max_others": str(options.max_others),  # JSON has no infinity
            },
            "systems": self._versions,
        }

    def _read(self) -> None:
        """Takes over the runs that did not fail from the file of a comparison.

        Raises:
          ValueError: the file is of something else, or of runs of another length.
        """
        path = f"{self._options.out}.json"
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        try:
            arguments = report["arguments"]
            before = {name: arguments[name] for name in SETTINGS}
            runs = [Run(**run) for run in report["runs"]]
        except (KeyError, TypeError):
            raise ValueError(f"--resume: {path} is not of a comparison") from None
        for name, value in before.items():
            if str(value) != str(getattr(self._options, name)):
                raise ValueError(f"--resume: it was begun with --{name}={value}")
        self.results.runs += [run for run in runs if run.images_per_second]

    def _find_systems(self) -> dict[str, dict[str, str | None]]:
        """The versions of each system that can run; prints why the others cannot."""
        checkouts = {
            **dict.fromkeys(("towers", SAME_COMMAND[0]), str(process.ROOT)),
            "tf_cnn_benchmarks": self._places.tf_cnn_benchmarks,
            "tf_cnn_benchmarks_onednn": self._places.tf_cnn_benchmarks,
        }
        versions, of_python = {}, {}
        for name in self._options.systems:
            python = getattr(self._places, SYSTEMS[name].python)
            if python not in of_python:
                of_python[python] = machine.versions(python)
            reason = missing(name, self._places, of_python[python])
            if reason:
                _say(f"{name} is left out: {reason}")
                continue
            versions[name] = dict(of_python[python])
            if name in checkouts:
                versions[name]["commit"] = machine.revision(checkouts[name])
        return versions

    def run(self) -> None:
        """All rounds."""
        work = self._commands()
        total = self._options.rounds * len(work)
        finished_runs = {(run.round, run.case, run.system) for run in self.results.runs}
        for number in range(1, self._options.rounds + 1):
            for case, system, command in work:
                if (number, str(case), system) in finished_runs:
                    continue
                finished = self._measure(command)
                rate = finished.images_per_second
                self.results.runs.append(
                    Run(
                        round=number,
                        case=str(case),
                        system=system,
                        images_per_second=rate,
                        failure=finished.complaint if rate is None else None,
                        seconds=finished.seconds,
                        cpu_seconds=finished.cpu_seconds,
                        others=finished.others,
                        command=str(command),
                        peak_bytes=finished.peak_bytes,
                    )
                )
                self._show(total)
                self._save()

    def _measure(self, command: process.Command) -> process.Finished:
        """Runs it, again if others were busy; returns the run with least other load."""
        attempts: list[process.Finished] = []
        while len(attempts) < ATTEMPTS:
            finished = process.run(command, timeout=self._options.timeout)
            if finished.images_per_second is None:
                return finished
            attempts.append(finished)
            if (finished.others or 0.0) <= self._options.max_others:
                break
        return min(attempts, key=lambda finished: finished.others or 0.0)

    def _commands(self) -> list[tuple[cases.BenchmarkCase, str, process.Command]]:
        """The (case, system, command) of a round."""
        work = []
        for case in self._options.cases:
            for system in self.results.systems:
                row = SYSTEMS[system]
                length = cases.length(case, self._options.seconds * row.share)
                if self._options.num_batches:
                    length = cases.of_steps(self._options.num_batches)
                command = row.command(case, length, self._places)
                if command:
                    work.append((case, system, command))
        return work

    def _show(self, total: int) -> None:
        """One line about the run just made."""
        run = self.results.runs[-1]
        what = run.failure and f"failed: {run.failure}"
        load_note = "" if run.others is None else f", others kept {run.others:.1f} CPUs"
        _say(
            f"[{len(self.results.runs)}/{total}] round {run.round} {run.case} "
            f"{run.system}: {what or f'{run.images_per_second:.1f} images/s'}, "
            f"{run.peak_bytes >> 20} MiB ({run.seconds:.0f} s{load_note})"
        )

    def _save(self) -> None:
        if not self._options.out:
            return
        runs = [dataclasses.asdict(run) for run in self.results.runs]
        everything = {**self._facts, "runs": runs, "summary": self.results.summary()}
        machine.write_json(self._options.out + ".json", everything)

    def report(self) -> None:
        """Prints the tables, writes the picture."""
        results = self.results
        tables = [results.speed_table()]
        if results.peers:
            tables += [results.ratio_table(), results.memory_table()]
        if results.pairs:
            tables.append(results.scaling_table())
        rounds = max((run.round for run in results.runs), default=0)
        _say(f"\nMedian [least, most] of {rounds} rounds")
        for lines in [*tables, results.failure_lines()]:
            _say("\n" + "\n".join(lines) if lines else "")
        if self._options.out:
            path = self._options.out + ".png"
            _say(
                chart.write(results, path) or f"Wrote {self._options.out}.json, {path}"
            )


def _say(line: str) -> None:
    print(line, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Compares; returns the exit status."""
    options = parse(argv)
    # Either signal ends the run under way, children and all, and shows what there is.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        comparison = Comparison(options)
    except ValueError as error:
        _say(f"error: {error}")
        return 2
    if not comparison.results.systems:
        _say("error: none of the systems can run here")
        return 2
    try:
        comparison.run()
    except KeyboardInterrupt:
        _say("stopped; this is what there is")
    comparison.report()
    return 0


if __name__ == "__main__":
    sys.exit(main())
