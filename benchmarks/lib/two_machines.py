"""Runs tasks on two machines, here network namespaces, joined by a TLS tunnel.

    python -m benchmarks.lib.two_machines --tasks=ps:1,worker:1 -- \\
        python task.py --job={job} --index={index} --ps={ps} --worker={worker}

Starts one command as every task, with the words of `benchmarks.lib.launch_tasks`: ps
tasks on one machine, workers on the other.  All that they say to each other goes
through `deploy/tunnel.sh`, so each finds every other at 127.0.0.1; so does `--port`, of
anything else on the first machine.  The first worker prints; when it ends, all others
are killed, and its status is that of all.
"""

import os
import signal
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Mapping, Sequence

from benchmarks.lib import launch_tasks
from benchmarks.lib.options import parser_for, positive
from tests.processes.machines import FIRST, SECOND, Machines, needed

_BEGIN = 2222  # port of the first task
_PATIENCE = 60.0  # seconds, until all tasks listen


def run_on_two_machines(
    machines: Machines,
    command: Sequence[str],
    counts: Mapping[str, int],
    ports: Sequence[int],
) -> int:
    """Runs all tasks until worker 0 ends; returns its status.

    Args:
      machines: on which nothing runs yet.
      command: with placeholders.
      counts: job -> number of tasks.
      ports: of what ps tasks have beside their own.
    """
    names = [(job, i) for job, count in counts.items() for i in range(count)]
    numbers = {name: _BEGIN + k for k, name in enumerate(names)}
    hosts = {
        job: [f"127.0.0.1:{numbers[job, i]}" for i in range(count)]
        for job, count in counts.items()
    }
    where = {"ps": FIRST, "worker": SECOND}
    on = {number: where[job] for (job, _), number in numbers.items()}
    on |= dict.fromkeys(ports, FIRST)
    with tempfile.TemporaryDirectory() as folder:
        machines.start_tunnel(os.path.join(folder, "keys"), on)
        quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for job, index in names:
            leads = (job, index) == ("worker", 0)
            if not leads:
                words = launch_tasks.words(command, hosts, job, index)
                machines.start(where[job], *words, **quiet)
        here = [number for number in on if on[number] == FIRST]
        for address in (FIRST, SECOND):  # the second's end of the tunnel
            machines.wait_for(address, here, _PATIENCE)
        words = launch_tasks.words(command, hosts, "worker", 0)
        return machines.start(SECOND, *words, stdout=None, stderr=None).wait()


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what the command line describes; returns its status."""
    parser = parser_for("lib.two_machines", __doc__)
    parser.add_argument("--port", type=positive, action="append", default=[])
    options, counts = launch_tasks.parse(parser, argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        machines = needed()
    except unittest.SkipTest as reason:
        parser.error(str(reason))
    try:
        return run_on_two_machines(machines, options.command, counts, options.port)
    except TimeoutError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        machines.end()


if __name__ == "__main__":
    sys.exit(main())
