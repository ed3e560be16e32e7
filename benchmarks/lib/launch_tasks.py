"""Starts one command as every task of a cluster on this machine.

    python -m benchmarks.lib.launch_tasks --tasks=ps:1,worker:2 --leader=worker -- \\
        python train.py --job_name={job} --task_index={index} \\
        --ps_hosts={ps} --worker_hosts={worker}

For peers that have no launcher of their own.  In the command `{job}` and `{index}`
stand for the task and `{ps}`, `{worker}` for the addresses of a job's tasks;
`TF_CONFIG` has the same information.  Only the first task of the leader's job prints;
when it ends, all others are killed, and its exit status is returned.  `--leader=chief`
adds such a task.  All tasks run in a private network.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence

from benchmarks.lib.options import parser_for
from flags import cluster as flags
from towers.cluster import local_cluster, private_network

_SHOWN = 5  # so many last lines of each other task are shown if the leader fails


def words(
    command: Sequence[str], hosts: Mapping[str, Sequence[str]], job: str, index: int
) -> list[str]:
    """The command of one task.

    Args:
      command: with placeholders.
      hosts: job -> addresses of its tasks.
      job, index: which task.
    """
    values = {"job": job, "index": str(index)}
    values |= {name: ",".join(addresses) for name, addresses in hosts.items()}
    arguments = []
    for word in command:
        for name, value in values.items():
            word = word.replace(f"{{{name}}}", value)
        arguments.append(word)
    return arguments


def run(command: Sequence[str], hosts: Mapping[str, Sequence[str]], leader: str) -> int:
    """Runs all tasks until the leader ends; returns its status."""
    followers: list[tuple[str, subprocess.Popen]] = []
    with tempfile.TemporaryDirectory() as folder:
        first = None
        try:
            for job, addresses in hosts.items():
                for index in range(len(addresses)):
                    task = {"type": job, "index": index}
                    config = json.dumps({"cluster": dict(hosts), "task": task})
                    leads = (job, index) == (leader, 0)
                    log = os.path.join(folder, f"{job} {index}")
                    with open(log, "wb") as file:
                        process = subprocess.Popen(
                            words(command, hosts, job, index),
                            env={**os.environ, "TF_CONFIG": config},
                            stdin=subprocess.DEVNULL,
                            stdout=None if leads else file,
                            stderr=None if leads else subprocess.STDOUT,
                        )
                    if leads:
                        first = process
                    else:
                        followers.append((log, process))
            return first.wait()
        finally:
            for process in [p for p in (first, *(p for _, p in followers)) if p]:
                process.kill()
                process.wait()
            if first is None or first.returncode:
                _show([log for log, _ in followers])


def _show(logs: Sequence[str]) -> None:
    for log in logs:
        with open(log, encoding="utf-8", errors="replace") as file:
            for line in file.read().splitlines()[-_SHOWN:]:
                print(f"[{os.path.basename(log)}] {line}", file=sys.stderr)


def parse(
    parser: argparse.ArgumentParser, argv: Sequence[str] | None
) -> tuple[argparse.Namespace, dict[str, int]]:
    """The options, with the words after `--` as `command`; job -> number of tasks."""
    parser.add_argument("--tasks", required=True, help="the tasks, as ps:1,worker:2")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(argv)
    try:
        return options, flags.parse_tasks(options.tasks)
    except ValueError as error:
        parser.error(f"--tasks={options.tasks}: {error}")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the tasks of the command line; returns the leader's exit status."""
    parser = parser_for("lib.launch_tasks", __doc__)
    parser.add_argument(
        "--leader",
        default="worker",
        help="the job whose first task prints (%(default)s), or chief",
    )
    parser.add_argument("--cwd", default=".", help="working directory of the command")
    options, counts = parse(parser, argv)
    if options.leader == "chief":
        counts["chief"] = 1
    if options.leader not in counts:
        parser.error(f"--leader={options.leader}: is none of {', '.join(counts)}")
    try:
        os.chdir(options.cwd)
    except OSError as error:
        parser.error(f"--cwd={options.cwd}: {error.strerror}")
    if not shutil.which(options.command[0]):
        parser.error(f"{options.command[0]}: no such program")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        private_network.enter()
    except OSError as error:
        parser.error(f"this system gives no private network ({error})")
    hosts = {job: local_cluster.free_addresses(count) for job, count in counts.items()}
    return run(options.command, hosts, options.leader)


if __name__ == "__main__":
    sys.exit(main())
