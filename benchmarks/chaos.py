"""Kills tasks of a local cluster at random moments, and says what was lost.

    python -m benchmarks.chaos --kills=100 --seeds=5

For each seed a cluster trains while one task after the other, drawn from all of them,
is killed by SIGKILL after a random time.  At the end its variables must be those of
the run that nobody disturbed, bit for bit; the exit status is 1 if they are not.
"""

import argparse
import dataclasses
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from benchmarks import launched
from towers import checkpoint

_TASKS = {"ps": 2, "worker": 2}


@dataclasses.dataclass(frozen=True)
class Kill:
    """One kill.

    Attributes:
      task: `worker 1` and the like.
      after: seconds from the step before, or from the start.
    """

    task: tuple[str, int]
    after: float


def schedule(seed: int, kills: int, pause: float) -> list[Kill]:
    """Which task is killed when; the same for the same seed.

    Args:
      seed: of the draws.
      kills: how many.
      pause: the longest time between a step and the next kill, in seconds.
    """
    draw = random.Random(seed)
    jobs = {**_TASKS, "controller": 1}
    tasks = [(job, index) for job, count in jobs.items() for index in range(count)]
    return [Kill(draw.choice(tasks), draw.uniform(0.0, pause)) for _ in range(kills)]


def disturbed(
    kills: Sequence[Kill], directory: str, flags: Sequence[str]
) -> list[float]:
    """Trains while tasks are killed.

    Returns:
      Seconds from each kill to the next step.
    """
    cluster = _launch(directory, flags, max_restarts=len(kills))
    found = []
    try:
        cluster.line("images/sec")
        for kill in kills:
            time.sleep(kill.after)
            os.kill(cluster.pid(*kill.task), signal.SIGKILL)
            begun = time.monotonic()
            cluster.line(f"^{kill.task[0]} {kill.task[1]} was killed")
            cluster.line("^Initializing graph")
            cluster.line("images/sec")
            found.append(time.monotonic() - begun)
        _end(cluster)
    finally:
        cluster.kill()
    return found


def undisturbed(directory: str, flags: Sequence[str]) -> None:
    """Trains in peace."""
    cluster = _launch(directory, flags)
    try:
        _end(cluster)
    finally:
        cluster.kill()


def lost(wanted: str, found: str) -> list[str]:
    """Names of the variables in which two runs' last checkpoints differ."""
    readers = [tf.train.load_checkpoint(checkpoint.latest(d)) for d in (wanted, found)]
    shapes = [reader.get_variable_to_shape_map() for reader in readers]
    differ = set(shapes[0]) ^ set(shapes[1])
    for name in set(shapes[0]) & set(shapes[1]):
        if not np.array_equal(*(reader.get_tensor(name) for reader in readers)):
            differ.add(name)
    return sorted(differ)


def _launch(
    directory: str, flags: Sequence[str], max_restarts: int = 0
) -> launched.Launched:
    tasks = ",".join(f"{job}:{count}" for job, count in _TASKS.items())
    own = (f"--train_dir={directory}", f"--max_restarts={max_restarts}")
    return launched.Launched(*flags, *own, tasks=tasks)


def _end(cluster: launched.Launched) -> None:
    if status := cluster.end():
        lines = "\n".join(cluster.lines[-20:])
        raise RuntimeError(f"the run ended with status {status}:\n{lines}")
    if left := cluster.left():
        raise RuntimeError(f"processes were left behind: {left}")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs all seeds; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=100, help="over all seeds")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--pause", type=float, default=3.0, help="longest, in seconds")
    parser.add_argument("--model", default="lenet")
    parser.add_argument("--num_batches", type=int, default=5000)
    options = parser.parse_args(argv)
    flags = (
        f"--model={options.model}",
        f"--num_batches={options.num_batches}",
        "--num_warmup_batches=0",
        "--num_gpus=2",
        "--batch_size=8",
        "--save_model_steps=100",
    )
    each = options.kills // options.seeds
    worst: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        peace = os.path.join(folder, "undisturbed")
        undisturbed(peace, flags)
        for seed in range(options.seeds):
            directory = os.path.join(folder, str(seed))
            kills = schedule(seed, each, options.pause)
            seconds = disturbed(kills, directory, flags)
            differ = lost(peace, directory)
            worst += differ
            print(
                f"seed {seed}: {each} kills, {np.median(seconds):.1f} s from a kill to "
                f"the next step (median; {max(seconds):.1f} at most), lost: "
                f"{', '.join(differ) or 'nothing'}",
                flush=True,
            )
    return 1 if worst else 0


if __name__ == "__main__":
    sys.exit(main())
