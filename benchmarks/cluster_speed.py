"""Speed of a cluster on this machine, beside peers.

    python -m benchmarks.cluster_speed --rounds=3 --out=/tmp/cluster_speed.json

| name              | what runs                                                        |
|-------------------|------------------------------------------------------------------|
| towers            | ours: 1 ps, 2 workers of 2 towers each, in-graph                 |
| one_process       | ours: the same 4 towers in one process, without a network        |
| tf_cnn_benchmarks | 1 ps, 2 workers of 2 towers each, between-graph, synchronous     |
| keras             | Keras 2, 2 workers of `MultiWorkerMirroredStrategy`, which has   |
|                   | one replica for the CPU of each, of twice the batch size         |
| keras_ps          | Keras 2, a coordinator, 1 ps and 2 workers under                 |
|                   | `ParameterServerStrategy`: each worker's steps, of twice the     |
|                   | batch size, wait for nobody                                      |

Keras 3 does not train under these strategies, so tf-keras stands in for it.

All train the same model on the same number of examples per step, over the loopback
interface of a private network.  Prints images/s and the ratio ours / peer, each as
median, minimum and maximum over the rounds; and the CPU seconds of the whole run, with
its start.

    python -m benchmarks.cluster_speed --slow_worker=5

instead compares steps of four clients that wait: all equally fast, one of them five
times as slow, and that with `--backup_workers=1` (`benchmarks.lib.slow_worker`).
"""

import argparse
import dataclasses
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from benchmarks.lib import cases, machine, process, ratios, slow_worker, table
from benchmarks.lib.cases import BenchmarkCase, Length
from benchmarks.lib.options import (
    above_0,
    add_places,
    one_case,
    parser_for,
    places_of,
    positive,
    writable,
)
from benchmarks.lib.process import Command
from benchmarks.peers import systems
from benchmarks.peers.systems import Places

_TASKS, _WORKERS = "ps:1,worker:2", 2


def towers(case: BenchmarkCase, length: Length, places: Places) -> Command:
    """This project, with the case's towers spread over the workers."""
    command = systems.towers(_of_worker(case), length, places)
    return _with(command, f"--local_cluster={_TASKS}")


def tf_cnn_benchmarks(case: BenchmarkCase, length: Length, places: Places) -> Command:
    """tf_cnn_benchmarks, started as its README starts a cluster."""
    command = systems.tf_cnn_benchmarks(_of_worker(case), length, places)
    task_flags = ("--job_name={job}", "--task_index={index}")
    hosts = ("--ps_hosts={ps}", "--worker_hosts={worker}")
    return _gang(_with(command, *task_flags, *hosts), _TASKS, places)


def keras(case: BenchmarkCase, length: Length, places: Places) -> Command:
    """Keras `fit` in every worker."""
    command = _keras("multi_worker", case, length, places)
    return _gang(command, f"worker:{_WORKERS}", places)


def keras_ps(case: BenchmarkCase, length: Length, places: Places) -> Command:
    """Keras `fit` in a coordinator."""
    command = _keras("parameter_server", case, length, places)
    return _gang(command, _TASKS, places, leader="chief")


def _keras(
    strategy: str, case: BenchmarkCase, length: Length, places: Places
) -> Command:
    places = dataclasses.replace(places, python=places.tf_cnn_python)
    command = systems.keras_mirrored(case, length, places)
    command = _with(command, f"--strategy={strategy}", "--no-xla")
    legacy = {**command.env, "TF_USE_LEGACY_KERAS": "1"}
    return dataclasses.replace(command, env=legacy)


class ClusterSystem(NamedTuple):
    """A system; ours is the first."""

    command: Callable[[BenchmarkCase, Length, Places], Command]
    python: str = "python"  # the field of `Places` that names its interpreter
    needs: tuple[str, ...] = ("tensorflow",)  # packages, without which it is left out


_OLD_KERAS = ("tensorflow", "tf-keras")
SYSTEMS: dict[str, ClusterSystem] = {
    "towers": ClusterSystem(towers),
    "one_process": ClusterSystem(systems.towers),
    "tf_cnn_benchmarks": ClusterSystem(tf_cnn_benchmarks, "tf_cnn_python", _OLD_KERAS),
    "keras": ClusterSystem(keras, "tf_cnn_python", _OLD_KERAS),
    "keras_ps": ClusterSystem(keras_ps, "tf_cnn_python", _OLD_KERAS),
}


def _of_worker(case: BenchmarkCase) -> BenchmarkCase:
    return dataclasses.replace(case, towers=case.towers // _WORKERS)


def _with(command: Command, *words: str) -> Command:
    return dataclasses.replace(command, argv=[*command.argv, *words])


def _gang(
    command: Command, tasks: str, places: Places, leader: str = "worker"
) -> Command:
    """Runs the command as each of these tasks."""
    gang = [places.python, "-m", "benchmarks.lib.launch_tasks", f"--tasks={tasks}"]
    gang.append(f"--leader={leader}")
    where = f"--cwd={command.cwd}"
    return Command([*gang, where, "--", *command.argv], command.env)


def usable(places: Places) -> dict[str, str]:
    """System -> "", or why it cannot run."""
    versions = functools.cache(machine.versions)
    reasons = {}
    for name, row in SYSTEMS.items():
        python = getattr(places, row.python)
        reasons[name] = systems.lacking(python, row.needs, versions(python))
        if name in systems.SYSTEMS and not reasons[name]:
            reasons[name] = systems.missing(name, places, versions(python))
    return reasons


def measure(
    options: argparse.Namespace, names: Sequence[str], places: Places
) -> list[dict[str, Any]]:
    """All rounds, saved after each run.

    Returns:
      For each run `round`, `system`, `images_per_second` (None if it failed),
      `failure` (None if it did not), `seconds`, `cpu_seconds`, `others` (as in
      `process.Finished`) and `command`.
    """
    runs = []
    length = cases.of_steps(options.num_batches)
    for number in range(1, options.rounds + 1):
        for name in names:
            command = SYSTEMS[name].command(options.case, length, places)
            finished = process.run(command, timeout=options.timeout)
            rate = finished.images_per_second
            runs.append(
                {
                    "round": number,
                    "system": name,
                    "images_per_second": rate,
                    "failure": finished.complaint if rate is None else None,
                    "seconds": finished.seconds,
                    "cpu_seconds": finished.cpu_seconds,
                    "others": finished.others,
                    "command": str(command),
                }
            )
            what = f"failed: {finished.complaint}"
            if rate is not None:
                what = f"{rate:.1f} images/s, {finished.cpu_seconds:.0f} CPU s"
            said = f"[{number}/{options.rounds}] {name}: {what}"
            print(f"{said} ({finished.seconds:.0f} s)", flush=True)
            _save(options, runs)
    return runs


def _save(options: argparse.Namespace, runs: Sequence[dict[str, Any]]) -> None:
    if options.out:
        arguments = {**vars(options), "case": str(options.case)}
        machine.write_json(
            options.out,
            {"arguments": arguments, "runs": runs, "summary": summary(runs)},
        )


def summary(runs: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """System -> the spread of its images/s, CPU seconds, and of ours / its images/s."""
    ours, *_ = SYSTEMS
    rates = {
        name: [r["images_per_second"] for r in runs if r["system"] == name]
        for name in SYSTEMS
    }
    spreads = {}
    for name, speeds in rates.items():
        mine = [r for r in runs if r["system"] == name and r["images_per_second"]]
        if mine:
            spreads[name] = {
                "images_per_second": ratios.spread(r for r in speeds if r is not None),
                "ratio": ratios.spread(ratios.paired(rates[ours], speeds)),
                "cpu_seconds": ratios.spread(r["cpu_seconds"] for r in mine),
            }
    return spreads


def report(runs: Sequence[dict[str, Any]]) -> list[str]:
    """The table of the summary."""
    rows = [
        [name, *map(str, spreads.values())] for name, spreads in summary(runs).items()
    ]
    return table.table_lines(["", "images/s", "towers / it", "CPU s"], rows)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line; exits with status 2 when something is wrong with it."""
    parser = parser_for("cluster_speed", __doc__)
    parser.add_argument("--case", type=one_case, default="resnet20:4x32")
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--num_batches", type=positive, default=40, help="timed steps")
    parser.add_argument(
        "--systems", default=",".join(SYSTEMS), help="systems to run (%(default)s)"
    )
    parser.add_argument(
        "--timeout", type=positive, default=300, help="seconds that a run may take"
    )
    parser.add_argument(
        "--slow_worker",
        type=above_0,
        metavar="FACTOR",
        help="compare clients of which one waits so much longer",
    )
    add_places(parser)
    parser.add_argument(
        "--out", type=writable, metavar="FILE", help="JSON file of all numbers"
    )
    options = parser.parse_args(argv)
    if options.case.towers % _WORKERS:
        parser.error(f"--case={options.case}: its towers are shared by two workers")
    if unknown := set(options.systems.split(",")) - set(SYSTEMS):
        parser.error(f"--systems: {unknown.pop()!r} is none of {', '.join(SYSTEMS)}")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Compares; returns the exit status."""
    options = parse(argv)
    places = places_of(options)
    if options.slow_worker:
        seconds, failures = slow_worker.measure(
            places.python,
            options.slow_worker,
            steps=options.num_batches,
            rounds=options.rounds,
            timeout=options.timeout,
        )
        print("\n".join([*slow_worker.report(seconds), *failures]))
        return 1 if failures else 0
    names = []
    for name, reason in usable(places).items():
        if name not in options.systems.split(","):
            continue
        if reason:
            print(f"{name} is left out: {reason}")
        else:
            names.append(name)
    if not names:
        print("error: none of the systems can run here", file=sys.stderr)
        return 2
    runs = measure(options, names, places)
    print("\n".join(report(runs)))
    return 0 if all(run["failure"] is None for run in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
