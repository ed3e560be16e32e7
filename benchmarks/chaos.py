"""Kills tasks of a local cluster at random times and reports what was lost.

    python -m benchmarks.chaos --kills=100 --seeds=20 --out=/tmp/chaos.json
    python -m benchmarks.chaos --replication=between_graph --out=/tmp/between.json
    python -m benchmarks.chaos --ends=200

For each seed a cluster trains while tasks, drawn at random from all of them, are killed
by SIGKILL: a random time after a step or, while the cluster still recovers, after the
previous kill.  At the end its variables must equal those of an undisturbed run bit for
bit; otherwise the exit status is 1.

The time from a kill to the next step is given in three parts: until the task that runs
the session notices (if it is killed itself: until its launcher notices), until every
task answers again, and until the first line about steps after the last checkpoint was
restored.  A kill during a recovery has only the total.

With --out the same command continues where it was stopped; with --minutes it stops by
itself.  100 kills take about half an hour on two cores.

With --ends no task is killed.  So many short runs train to their end, and the tasks are
counted that the controller failed to dismiss; if there are any, the status is 1.
"""

import argparse
import dataclasses
import hashlib
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

import models
from benchmarks.lib import ratios, seed_record, short_runs, table
from benchmarks.lib.options import above_0, parser_for, positive
from benchmarks.lib.seed_record import SeedRecord
from tests.processes import programs
from towers.checkpoints import checkpoint

_TASKS = {"ps": 2, "worker": 2}
# Share of the kills that come while the cluster still recovers from the previous one.
_HASTY = 0.25


class ClusterMode(NamedTuple):
    """How workers train together.

    Attributes:
      jobs: job of the cluster -> its number of tasks.
      flags: of the command line.
      leader: (job, index) of the task that runs the session.
    """

    jobs: Mapping[str, int]
    flags: Sequence[str]
    leader: tuple[str, int]


WAYS = {
    "in_graph": ClusterMode({**_TASKS, "controller": 1}, (), ("controller", 0)),
    "between_graph": ClusterMode(
        _TASKS, ("--replication=between_graph",), ("worker", 0)
    ),
}


class Recovery(NamedTuple):
    """Seconds from a kill to the next step.

    Attributes:
      what: kind of the task that was killed: ps, worker, or `who leads`, the task that
        runs the session.
      whole: from the kill to the step.
      parts: `whole` in three parts: until a task or launcher noticed, then until every
        task answered, then until the step; None if the cluster was still recovering
        from an earlier kill.
    """

    what: str
    whole: float
    parts: tuple[float, float, float] | None


@dataclasses.dataclass(frozen=True)
class Kill:
    """One kill.

    Attributes:
      task: (job, index), as in ("worker", 1).
      after: seconds from the last step; with `hasty`, from the last kill.
      hasty: whether it comes before the cluster has recovered from the last kill.
    """

    task: tuple[str, int]
    after: float
    hasty: bool = False


def schedule(
    seed: int, kills: int, pause: float, jobs: Mapping[str, int]
) -> list[Kill]:
    """Draws which task is killed when; the same for the same seed.

    Args:
      seed: of the draws.
      kills: their number.
      pause: upper limit of `Kill.after`, in seconds.
      jobs: job -> number of tasks; every task is as likely.
    """
    draw = random.Random(seed)
    tasks = [(job, index) for job, count in jobs.items() for index in range(count)]
    return [
        Kill(
            draw.choice(tasks),
            draw.uniform(0.0, pause),
            hasty=number > 0 and draw.random() < _HASTY,
        )
        for number in range(kills)
    ]


def disturbed(
    kills: Sequence[Kill], directory: str, flags: Sequence[str], leader: tuple[str, int]
) -> list[Recovery]:
    """Trains while tasks are killed.

    Args:
      kills: in order.
      directory: of the checkpoints.
      flags: of the command line.
      leader: as in `ClusterMode`.

    Returns:
      One recovery for each kill after which a step came before the next kill.
    """
    cluster = _launch(directory, flags, max_restarts=len(kills))
    delays = []
    try:
        cluster.line("images/sec")
        for kill, following in zip(kills, [*kills[1:], None]):
            time.sleep(kill.after)
            os.kill(cluster.pid(*kill.task), signal.SIGKILL)
            begun = time.monotonic()
            cluster.line(f"^{kill.task[0]} {kill.task[1]} was killed")
            if following is None or not following.hasty:
                cluster.line("^Initializing graph")
                cluster.line("images/sec")
                delays.append(recovery(cluster, kill, begun, leads=kill.task == leader))
        _end(cluster)
    finally:
        cluster.kill()
    return delays


def recovery(
    cluster: programs.Program, kill: Kill, begun: float, *, leads: bool
) -> Recovery:
    """Times a recovery by the lines printed since the kill.

    Args:
      cluster: the last line it printed is the first step line since the kill.
      kill: the kill.
      begun: its time, by `time.monotonic`.
      leads: whether the task that was killed runs the session.
    """
    since = [pair for pair in zip(cluster.times, cluster.lines) if pair[0] >= begun]
    ready = [at for at, line in since if line.startswith("Initializing graph")][-1]
    whole = since[-1][0] - begun
    told = f"{kill.task[0]} {kill.task[1]} was killed" if leads else "Lost "
    noticed = next((at for at, line in since if line.startswith(told)), None)
    # Tasks that were already reconnecting, for another reason, report no loss.
    if kill.hasty or noticed is None:
        return Recovery("while it recovers", whole, None)
    parts = (noticed - begun, ready - noticed, since[-1][0] - ready)
    return Recovery("who leads" if leads else kill.task[0], whole, parts)


def undisturbed(directory: str, flags: Sequence[str]) -> None:
    """Trains to the end without a kill."""
    cluster = _launch(directory, flags)
    try:
        _end(cluster)
    finally:
        cluster.kill()


def saved(directory: str) -> dict[str, str]:
    """Variable of the last checkpoint -> SHA-256 of its bytes."""
    reader = tf.train.load_checkpoint(checkpoint.latest(directory))
    return {
        name: hashlib.sha256(reader.get_tensor(name).tobytes()).hexdigest()
        for name in reader.get_variable_to_shape_map()
    }


def lost(wanted: dict[str, str], values: dict[str, str]) -> list[str]:
    """Names of the variables in which two results of `saved` differ."""
    names = wanted.keys() | values.keys()
    return sorted(name for name in names if wanted.get(name) != values.get(name))


def _launch(
    directory: str, flags: Sequence[str], max_restarts: int = 0
) -> programs.LaunchedCluster:
    tasks = ",".join(f"{job}:{count}" for job, count in _TASKS.items())
    run_flags = (f"--train_dir={directory}", f"--max_restarts={max_restarts}")
    return programs.LaunchedCluster(*flags, *run_flags, tasks=tasks)


def _end(cluster: programs.LaunchedCluster) -> None:
    if status := cluster.end():
        lines = "\n".join(cluster.lines[-20:])
        raise RuntimeError(f"the run ended with status {status}:\n{lines}")
    if left := cluster.left():
        raise RuntimeError(f"processes were left behind: {left}")


class Record(SeedRecord):
    """For each seed its `seed`, `kills`, `recoveries` and `lost`."""

    def total(self) -> list[str]:
        """A line about all seeds, and a table of the recoveries."""
        kills = sum(seed["kills"] for seed in self.seeds)
        differ = sorted({name for seed in self.seeds for name in seed["lost"]})
        delays = [Recovery(*each) for seed in self.seeds for each in seed["recoveries"]]
        return [
            f"{kills} kills in {len(self.seeds)} runs, {_told(delays, differ)}",
            *table.table_lines(_TITLE, _rows(delays)),
        ]


_TITLE = ("seconds after a kill", "kills", "noticed", "all there", "a step", "together")


def _rows(recoveries: Sequence[Recovery]) -> list[list[str]]:
    """For each kind of task: median, least and most of each part."""
    rows = []
    for what in sorted({each.what for each in recoveries}):
        here = [each for each in recoveries if each.what == what]
        split = [each.parts for each in here if each.parts]
        parts = [str(ratios.spread(part)) for part in zip(*split)] or ["-"] * 3
        whole = str(ratios.spread(each.whole for each in here))
        rows.append([what, str(len(here)), *parts, whole])
    return rows


def _told(recoveries: Sequence[Recovery], differ: Sequence[str]) -> str:
    seconds = ratios.spread(each.whole for each in recoveries)
    return (
        f"{seconds} s from a kill to the next step (median, least, most), "
        f"lost: {', '.join(differ) or 'nothing'}"
    )


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line; exits with status 2 when something is wrong with it."""
    parser = parser_for("chaos", __doc__)
    parser.add_argument(
        "--kills", type=positive, default=100, help="number of kills over all seeds"
    )
    parser.add_argument(
        "--pause", type=above_0, default=3.0, help="longest, in seconds"
    )
    parser.add_argument("--model", default="lenet")
    parser.add_argument("--replication", default="in_graph", choices=WAYS)
    parser.add_argument("--num_batches", type=positive, default=1000)
    parser.add_argument(
        "--ends",
        type=positive,
        metavar="RUNS",
        help="short runs of which to count the tasks that were not dismissed",
    )
    seed_record.add_flags(parser, seeds=20)
    options = parser.parse_args(argv)
    try:
        models.get(options.model)
    except ValueError as error:
        parser.error(str(error))
    seed_record.share(parser, "kills", options.kills, options.seeds)
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the seeds that are left; returns the exit status."""
    options = parse(argv)
    if options.ends:
        stayed = short_runs.missed_in_short_runs(options.ends, options.replication)
        print(
            *stayed, f"{options.ends} runs, {len(stayed)} dismissals missed", sep="\n"
        )
        return 1 if stayed else 0
    way = WAYS[options.replication]
    flags = (
        f"--model={options.model}",
        f"--num_batches={options.num_batches}",
        "--num_warmup_batches=0",
        "--num_gpus=2",
        "--batch_size=8",
        "--save_model_steps=50",
        *way.flags,
    )
    each = options.kills // options.seeds
    settings = {"flags": list(flags), "kills": each, "pause": options.pause}
    try:
        record = Record(options.out, settings)
    except ValueError as error:
        print(f"error: --out: {error}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        if not record.wanted:
            undisturbed(folder, flags)
            record.wanted = saved(folder)
            record.save()
    for seed in record.left(options.seeds, options.minutes):
        with tempfile.TemporaryDirectory() as folder:
            kills = schedule(seed, each, options.pause, way.jobs)
            recoveries = disturbed(kills, folder, flags, way.leader)
            differ = lost(record.wanted, saved(folder))
        record.seeds.append(
            {"seed": seed, "kills": each, "recoveries": recoveries, "lost": differ}
        )
        record.save()
        print(f"seed {seed}: {each} kills, {_told(recoveries, differ)}", flush=True)
    print(*record.total(), sep="\n")
    return 1 if any(seed["lost"] for seed in record.seeds) else 0


if __name__ == "__main__":
    sys.exit(main())
