"""A cluster of which one worker is slow: `benchmarks.cluster_speed --slow_worker`.

Four clients wait instead of computing, the last one several times as long.  The
gradients, their exchange and the update are real.
"""

import os
import sys

from benchmarks.lib import process, ratios
from benchmarks.lib.waiting_towers import model as waiting
from benchmarks.peers.systems import ENVIRONMENT
from models.model import Model

_WORKERS, _SECONDS = 4, 0.1
_FACTOR = "TOWERS_SLOW_WORKER"  # variable of the environment


def model() -> Model:
    """The model of a client, as `--model` names it; it waits longer in the last one."""
    slow = f"--task_index={_WORKERS - 1}" in sys.argv
    factor = float(os.environ.get(_FACTOR, "1")) if slow else 1.0
    return waiting(_SECONDS * factor, variables=4, floats=25_000)


def commands(python: str, factor: float, steps: int) -> dict[str, process.Command]:
    """What is compared: name -> command.

    Args:
      python: the interpreter.
      factor: of the last worker's wait.
      steps: timed ones.
    """
    common = [python, "-m", "towers.train", f"--model={__name__}:model"]
    common += ["--device=cpu", "--num_gpus=1", "--batch_size=1", "--max_restarts=0"]
    common += [f"--local_cluster=ps:1,worker:{_WORKERS}", f"--num_batches={steps}"]
    common.append("--replication=between_graph")
    slow = {**ENVIRONMENT, _FACTOR: str(factor)}
    return {
        "all fast": process.Command(common, ENVIRONMENT),
        "one slow": process.Command(common, slow),
        "one slow, one backup": process.Command([*common, "--backup_workers=1"], slow),
    }


def measure(
    python: str, factor: float, *, steps: int, rounds: int, timeout: float
) -> tuple[dict[str, list[float]], list[str]]:
    """Runs all of them, `rounds` times; arguments as in `commands`.

    Returns:
      name -> seconds per step of each round, and a line for each run that failed.
    """
    every = commands(python, factor, steps)
    seconds: dict[str, list[float]] = {name: [] for name in every}
    failures = []
    for number in range(1, rounds + 1):
        for name, command in every.items():
            finished = process.run(command, timeout=timeout)
            rate = finished.images_per_second
            if rate is None:
                failures.append(f"[{number}/{rounds}] {name}: {finished.complaint}")
                continue
            seconds[name].append(_WORKERS / rate)  # dropped ones are counted, too
            dropped = [t for _, t in finished.lines if t.startswith("Dropped in ")]
            print(f"[{number}/{rounds}] {name}: {_WORKERS / rate:.3f} s", *dropped)
    return seconds, failures


def report(seconds: dict[str, list[float]]) -> list[str]:
    """The seconds per step, and how they compare with those of fast workers."""
    lines = []
    for name, rounds in seconds.items():
        if rounds:
            ratio = ratios.spread(ratios.paired(rounds, seconds["all fast"]))
            lines.append(f"{name}: {ratios.spread(rounds)} s; of fast ones: {ratio}")
    return lines
