"""Disturbs the tasks of an elastic cluster at random times; reports what was lost.

    python -m benchmarks.elastic --events=100 --seeds=5 --out=/tmp/elastic.json
    python -m benchmarks.elastic --mode=keep_batch --events=20 --seeds=2
    python -m benchmarks.elastic --only=worker_killed --events=30 --seeds=1

For each seed two ps tasks, four workers and a controller train a small smooth model,
each on a host (a network namespace) of its own.  Workers, ps tasks and the controller
are killed (SIGKILL), frozen (SIGSTOP) or cut off (the network of their host is down);
workers also leave (SIGTERM).  After up to 15 seconds each comes back, a worker that was
ended at its old address or, by --join, at one that nobody knows.  A quarter of the
events come while the task before is still away.

Reported are, and but for the last must be 0:

* hangs: no step for 180 seconds, though all tasks are there;
* other faults: tasks that end by themselves, or with a wrong exit status;
* processes that still run after the end;
* examples of the stream that the history that survives lacks, or has twice: from a log
  of each step's examples;
* the largest difference of the variables from those of a run that nothing disturbed,
  relative to the largest element of each; with --mode=keep_batch up to 1e-5;
* the seconds from each event to the end of the first step that began after it.  A step
  takes at least 0.05 seconds here.  Without a ps or the controller there is no step, so
  there it is the time since that task came back.

With --out the same command continues where it was stopped; with --minutes it stops by
itself.  100 events take about half an hour on two cores.
"""

import argparse
import collections
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.lib import disturbances, disturbed_run, seed_record, table
from benchmarks.lib.disturbances import Disturbance
from benchmarks.lib.options import above_0, parser_for, positive
from benchmarks.lib.ratios import number
from benchmarks.lib.seed_record import SeedRecord
from tests.processes import digits_model, step_examples
from towers.checkpoints import checkpoint

_BATCH = 8  # of a tower
_MOST_APART = {"keep_towers": 0.0, "keep_batch": 1e-5}
_TITLE = ("seconds to the next step", "events", "median", "quartiles", "worst")
_SECONDS = 1800.0  # for a seed, at most


def flags_of(mode: str, folder: str) -> list[str]:
    """The flags of every task of a run.

    Args:
      mode: `--elastic`.
      folder: of the checkpoints.
    """
    return [
        f"--model={digits_model.__name__}:smooth_model",
        f"--train_dir={folder}",
        f"--elastic={mode}",
        f"--batch_size={_BATCH}",
        *("--batch_norm=sync", "--device=cpu", "--num_warmup_batches=0"),
        f"--callbacks={step_examples.__name__}:logging",
        *("--save_model_steps=50", "--memory_copy_steps=10", "--wait_secs=240"),
        f"--stall_secs={disturbances.STALL_SECONDS}",
    ]


def run(
    folder: str,
    flags: Sequence[str],
    events: Sequence[Disturbance] = (),
    steps: int = 0,
) -> disturbed_run.Result:
    """Runs a cluster in a process of its own, until it is stopped or its steps end.

    Args:
      folder: for the checkpoints and the log of the examples.
      flags: of every task.
      events: what happens to the tasks.
      steps: after which a run without events ends.

    Raises:
      RuntimeError: that process fails.
    """
    order = {"folder": folder, "flags": list(flags), "steps": steps}
    order["events"] = events
    module = "benchmarks.lib.disturbed_run"
    command = [sys.executable, "-m", module, json.dumps(order)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            printed, _ = process.communicate(timeout=_SECONDS)
        finally:
            process.terminate()
    if process.returncode:
        raise RuntimeError(f"{module} ended with status {process.returncode}")
    return disturbed_run.Result(**json.loads(printed.splitlines()[-1]))


def lost_examples(
    taken: Iterable[tuple[int, Sequence[Sequence[int]]]], last: int, batch: int
) -> tuple[int, int]:
    """How many examples of the stream are in no step, and how often one is there again.

    Args:
      taken: (step, [first example, number of examples] of each tower), in the order of
        time; a step that was taken again counts as it was the last time.
      last: the last step of the history.
      batch: examples of a step.
    """
    history = {step: ranges for step, ranges in taken if step <= last}
    counts = collections.Counter(
        row
        for ranges in history.values()
        for first, size in ranges
        for row in range(first, first + size)
    )
    missing = sum(row not in counts for row in range(last * batch))
    return missing, counts.total() - (last * batch - missing)


def apart(first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray]) -> float:
    """The largest difference of variables, relative to each one's largest element.

    It is infinite if their names, or integers, differ.
    """
    if first.keys() != second.keys():
        return float("inf")
    worst = 0.0
    for name, value in second.items():
        if value.dtype.kind == "f":
            scale = np.max(np.abs(value)) or 1.0
            worst = max(worst, float(np.max(np.abs(first[name] - value)) / scale))
        elif not np.array_equal(first[name], value):
            return float("inf")
    return worst


def _saved(folder: str) -> dict[str, np.ndarray]:
    """The variables of the last checkpoint, by name."""
    reader = tf.train.load_checkpoint(checkpoint.latest(folder))
    return {n: reader.get_tensor(n) for n in reader.get_variable_to_shape_map()}


def measure(mode: str, events: Sequence[Disturbance]) -> dict[str, Any]:
    """Disturbs a run, and compares it with one that nothing disturbs.

    Args:
      mode: `--elastic`.
      events: what happens to the tasks.

    Returns:
      The fields of `Result`, and `steps`, `missing`, `doubled` and `apart`.
    """
    with tempfile.TemporaryDirectory() as folder:
        flags = [*flags_of(mode, folder), "--num_batches=1000000"]
        result = run(folder, flags, events)
        with open(os.path.join(folder, "examples"), encoding="utf-8") as file:
            taken = list(map(json.loads, file))
        values = _saved(folder)
    steps = int(values["global_step"])
    missing, doubled = lost_examples(taken, steps, _BATCH * disturbances.WORKERS)
    with tempfile.TemporaryDirectory() as folder:
        calm = run(
            folder, [*flags_of(mode, folder), f"--num_batches={steps}"], (), steps
        )
        difference = apart(values, _saved(folder))
    result.faults += calm.faults
    return {
        **vars(result),
        **{"steps": steps, "missing": missing, "doubled": doubled, "apart": difference},
    }


class Measured(SeedRecord):
    """For each seed what `measure` returns."""

    def is_right(self, mode: str) -> bool:
        """Whether nothing went wrong."""
        return all(
            not (seed["faults"] or seed["left"] or seed["missing"] or seed["doubled"])
            and seed["apart"] <= _MOST_APART[mode]
            for seed in self.seeds
        )

    def total(self) -> list[str]:
        """Lines about all seeds, and a table of the times."""
        sums = collections.Counter()
        times: dict[str, list[float]] = collections.defaultdict(list)
        for seed in self.seeds:
            for name in ("events", "steps", "hangs", "left", "missing", "doubled"):
                sums[name] += seed[name]
            sums["faults"] += len(seed["faults"]) - seed["hangs"]
            for what, seconds in seed["timed"]:
                times[what].append(seconds)
        worst = max((seed["apart"] for seed in self.seeds), default=0.0)
        return [
            f"{sums['events']} events in {len(self.seeds)} runs of {sums['steps']} "
            f"steps: {sums['hangs']} hangs, {sums['faults']} other faults, "
            f"{sums['left']} processes left",
            f"{sums['missing']} examples missing, {sums['doubled']} doubled, variables "
            f"{worst:.2g} apart",
            *table.table_lines(_TITLE, [_row(*each) for each in sorted(times.items())]),
        ]


def _row(what: str, seconds: Sequence[float]) -> list[str]:
    quartiles = "-"
    if len(seconds) > 1:
        low, _, high = statistics.quantiles(seconds, method="inclusive")
        quartiles = f"{number(low)} to {number(high)}"
    middle, worst = number(statistics.median(seconds)), number(max(seconds))
    return [what, str(len(seconds)), middle, quartiles, worst]


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line; exits with status 2 when something is wrong with it."""
    parser = parser_for("elastic", __doc__)
    parser.add_argument(
        "--events", type=positive, default=100, help="number over all seeds"
    )
    parser.add_argument("--mode", default="keep_towers", choices=_MOST_APART)
    parser.add_argument(
        "--only",
        action="append",
        choices=[kind.replace(" ", "_") for kind in disturbances.KINDS],
        help="a kind of events, in place of all; may be given again",
    )
    parser.add_argument(
        "--pause",
        type=above_0,
        default=5.0,
        help="from a step to the next event, the longest, in seconds",
    )
    seed_record.add_flags(parser, seeds=5)
    options = parser.parse_args(argv)
    seed_record.share(parser, "events", options.events, options.seeds)
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the seeds that are left; returns the exit status."""
    options = parse(argv)
    each = options.events // options.seeds
    kinds = [kind.replace("_", " ") for kind in options.only or ()]
    kinds = kinds or list(disturbances.KINDS)
    settings = {"events": each, "mode": options.mode, "pause": options.pause}
    try:
        record = Measured(options.out, {**settings, "kinds": kinds})
    except ValueError as error:
        print(f"error: --out: {error}", file=sys.stderr)
        return 2
    for seed in record.left(options.seeds, options.minutes):
        events = disturbances.draw(seed, each, options.pause, kinds)
        measured = measure(options.mode, events)
        record.seeds.append({"seed": seed, "events": each, **measured})
        record.save()
        print(f"seed {seed}", *record.total()[:2], sep="\n  ", flush=True)
    print(*record.total(), sep="\n")
    return 0 if record.is_right(options.mode) else 1


if __name__ == "__main__":
    sys.exit(main())
