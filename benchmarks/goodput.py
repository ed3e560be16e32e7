"""Simulates jobs of many workers whose nodes fail: goodput, and the best checkpoints.

    python -m benchmarks.goodput
    python -m benchmarks.goodput --straggling=0 --plot=goodput.svg --json=goodput.json

Goodput is the number of useful examples per second, as a share of those of a job
without failures, checkpoints and slow workers.  The policies:

    restart  all wait for a replacement and begin at the last checkpoint
    elastic  those left take the step again, with the same global batch; the variables
             are kept, as the tasks that hold them live
    ps lost  elastic, and the ps tasks, which hold the only copy, fail like workers
    backup   no step waits for the slowest workers, and what they did is lost; as many
             workers may be gone

Defaults that were published, with a node of 8 GPUs as a worker:

    failures     6.50 per 1000 node-days: RSC-1 in Kokolis et al., "Revisiting
                 Reliability in Large-Scale Machine Learning Research Clusters", HPCA
                 2025, arXiv:2410.21680.  (Llama 3, arXiv:2407.21783, section 3.3.4: 419
                 unexpected interruptions of 16,384 GPUs in 54 days, which is 3.79.)
    stragglers   Chen et al., "Revisiting Distributed Synchronous SGD",
                 arXiv:1604.00981: with 100 workers, in 30% of the steps the last
                 gradient came within 2 s, and most gradients from 1.4 s on.  If what a
                 worker takes over 1.4 s is exponential, its mean is 0.097 * 1.4 s.  Of
                 100 workers 4 were backups.
    replacement  10 minutes, in less than which MegaScale (Jiang et al., NSDI 2024,
                 arXiv:2402.15627) detects a failure and runs diagnostic tests

Defaults of this project, on two busy cores: 9 s from a kill to the next step
(`benchmarks.chaos`, of which 7.4 s start TensorFlow again; without them 1.5 s are left
for an elastic change), and 1.3 s for a checkpoint (`mechanisms.checkpoints`: resnet50
with momentum, 205 MB, not in a thread).
"""

import argparse
import dataclasses
import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.lib import job_simulation, machine, ratios, table
from benchmarks.lib.job_simulation import Job
from benchmarks.lib.options import (
    above_0,
    below_1,
    natural,
    parser_for,
    positive,
    positives,
    writable,
)
from towers.callbacks.line_chart import line_chart

_DAY = 86400.0
POLICIES = ("restart", "elastic", "ps lost", "backup")
_GAPS = 200_000  # failures among which the best interval is looked for


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line; exits with status 2 when something is wrong with it."""
    parser = parser_for("goodput", __doc__)
    parser.add_argument(
        "--workers", type=positives, default="1,2,5,10,20,50,100,200,500,1000"
    )
    parser.add_argument("--failures_per_1000_node_days", type=above_0, default=6.5)
    parser.add_argument("--step_seconds", type=above_0, default=1.4)
    parser.add_argument(
        "--straggling",
        type=below_1,
        default=0.097,
        help="mean of what a worker takes longer than the fastest time, as a share",
    )
    parser.add_argument("--checkpoint_seconds", type=above_0, default=1.3)
    parser.add_argument(
        "--interval_seconds",
        type=above_0,
        help="between checkpoints (Daly's formula, for each number of workers)",
    )
    parser.add_argument("--restart_seconds", type=above_0, default=9.0)
    parser.add_argument("--change_seconds", type=above_0, default=1.5)
    parser.add_argument("--replace_seconds", type=above_0, default=600.0)
    parser.add_argument(
        "--ps_per_worker", type=below_1, default=0.125, help="of `ps lost`, rounded up"
    )
    parser.add_argument(
        "--backup_share", type=below_1, default=0.04, help="of the workers"
    )
    parser.add_argument(
        "--failures", type=positive, default=20_000, help="in each simulation"
    )
    parser.add_argument("--seed", type=natural, default=0)
    parser.add_argument("--json", type=writable, metavar="FILE", help="for all numbers")
    parser.add_argument("--plot", type=writable, metavar="FILE", help="an SVG file")
    options = parser.parse_args(argv)
    options.workers = sorted(set(options.workers))
    if options.plot and len(options.workers) < 2:
        parser.error("--plot needs two numbers of --workers, or more")
    return options


def job_of(options: argparse.Namespace, workers: int) -> Job:
    """The job of so many workers, without ps tasks."""
    mtbf = 1000 * _DAY / options.failures_per_1000_node_days
    checkpoint = options.checkpoint_seconds
    return Job(
        workers=workers,
        mtbf=mtbf,
        step=options.step_seconds,
        straggling=options.straggling,
        interval=options.interval_seconds
        or job_simulation.daly(checkpoint, mtbf / workers),
        checkpoint=checkpoint,
        restart=options.restart_seconds,
        change=options.change_seconds,
        replace=options.replace_seconds,
    )


def goodputs(job: Job, options: argparse.Namespace) -> dict[str, float]:
    """The goodput of each policy; the same for the same seed."""
    ps = math.ceil(job.workers * options.ps_per_worker)
    with_ps = dataclasses.replace(job, ps=ps)
    backup = round(job.workers * options.backup_share)

    def draws() -> np.random.Generator:
        return np.random.default_rng([options.seed, job.workers])

    values = (
        job_simulation.restarted(job, options.failures, draws()),
        job_simulation.elastic(job, options.failures, draws()),
        job_simulation.elastic(with_ps, options.failures, draws()),
        job_simulation.elastic(job, options.failures, draws(), backup),
    )
    return dict(zip(POLICIES, values))


def intervals(job: Job, seed: int) -> dict[str, float]:
    """The best seconds between two checkpoints, simulated and by both formulas."""
    mtbf, checkpoint = job.mtbf / job.workers, job.checkpoint
    gaps = np.random.default_rng([seed, job.workers]).exponential(mtbf, _GAPS)
    restart = job.replace + job.restart
    return {
        "simulated": job_simulation.best_interval(checkpoint, mtbf, restart, gaps),
        "Young": job_simulation.young(checkpoint, mtbf),
        "Daly": job_simulation.daly(checkpoint, mtbf),
    }


def simulate(options: argparse.Namespace) -> list[dict[str, Any]]:
    """For each number of workers its goodputs and intervals."""
    rows = []
    for workers in options.workers:
        job = job_of(options, workers)
        rows.append(
            {
                "workers": workers,
                "hours_between_failures": job.mtbf / workers / 3600,
                "goodput": goodputs(job, options),
                "interval_seconds": intervals(job, options.seed),
            }
        )
    return rows


def lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A table of the goodput of each policy, and one of the intervals."""
    head = [
        [str(row["workers"]), ratios.number(row["hours_between_failures"])]
        for row in rows
    ]
    results = [
        [*cells, *(f"{row['goodput'][policy]:.3f}" for policy in POLICIES)]
        for cells, row in zip(head, rows)
    ]
    best = [
        [*cells, *map(ratios.number, row["interval_seconds"].values())]
        for cells, row in zip(head, rows)
    ]
    title = ("workers", "hours to a failure")
    return [
        "Goodput:",
        *table.table_lines((*title, *POLICIES), results),
        "",
        "Best seconds between two checkpoints, for restart:",
        *table.table_lines((*title, *rows[0]["interval_seconds"]), best),
    ]


def chart(rows: Sequence[dict[str, Any]]) -> str:
    """The SVG text of the goodput of each policy over the number of workers."""
    return line_chart(
        [row["workers"] for row in rows],
        {policy: [row["goodput"][policy] for row in rows] for policy in POLICIES},
        title="Useful examples per second, of those without failures and slow workers",
        labels=("workers", "goodput"),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Simulates, prints and writes; returns the exit status."""
    options = parse(argv)
    rows = simulate(options)
    print(*lines(rows), sep="\n")
    if options.json:
        machine.write_json(options.json, {"settings": vars(options), "rows": rows})
    if options.plot:
        with open(options.plot, "w", encoding="utf-8") as file:
            file.write(chart(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
