"""Runs short clusters to their end, one after the other: `benchmarks.chaos --ends`.

    python -m benchmarks.lib.short_runs RUNS BETWEEN FLAG...

BETWEEN is 1 for between-graph replication, else 0.  Each run prints a line of JSON:
"job index" -> exit status.  The tasks are in a private network, for which this program
must not have imported TensorFlow.
"""

import json
import subprocess
import sys
from collections.abc import Sequence

from tests.processes import manual_tasks
from towers.cluster import private_network

_SHOWN = 10  # runs between two lines about the progress


def missed_in_short_runs(runs: int, replication: str) -> list[str]:
    """Runs short clusters to their end; the tasks that were not dismissed, in words.

    Args:
      runs: their number.
      replication: `--replication`.

    Raises:
      RuntimeError: the runs failed to start.
    """
    between = str(int(replication == "between_graph"))
    flags = ("--model=mlp", "--num_batches=3", "--num_warmup_batches=0")
    more = ("--data_name=synthetic", "--batch_size=2", "--wait_secs=30")
    command = [sys.executable, "-m", "benchmarks.lib.short_runs", str(runs), between]
    with subprocess.Popen(
        [*command, *flags, *more],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None  # a pipe
        lines: list[dict[str, int]] = []
        for line in process.stdout:
            lines.append(json.loads(line))
            if len(lines) % _SHOWN == 0:
                print(f"[{len(lines)}/{runs}]", flush=True)
    if process.returncode or len(lines) != runs:
        raise RuntimeError(f"the runs ended with status {process.returncode}")
    return [
        f"run {run}: {task} ended with status {status}"
        for run, statuses in enumerate(lines)
        for task, status in statuses.items()
        if status
    ]


def main(argv: Sequence[str]) -> int:
    """Does what the command line says; returns the exit status."""
    private_network.enter()
    runs, between, *flags = argv[1:]
    for _ in range(int(runs)):
        cluster = manual_tasks.Tasks(*flags, between=between == "1", ps=2)
        try:
            statuses = {name: status for name, (status, _) in cluster.end().items()}
        finally:
            cluster.kill()
        print(json.dumps(statuses), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
