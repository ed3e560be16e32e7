"""Speed of transfers from ps tasks, beside a plain socket and a plain gRPC stream.

    python -m benchmarks.mechanisms.transport --rounds=3 --out=/tmp/transport.json

A worker fetches a tensor that is split evenly over 1, 2 or 4 ps tasks, each a process
on this machine; `socket` and `grpc` fetch the same number of bytes from one of these
processes by a plain TCP connection and by grpcio's Python API.  All transfers of one
size are measured within seconds.  Prints GB/s and the share of the socket's speed, each
as median, minimum and maximum over the rounds.

--settings compares these, each in a cluster of its own; with `tunnel` the socket and
gRPC are encrypted, too:

| name     | sets                                                                   |
|----------|------------------------------------------------------------------------|
| default  | nothing                                                                |
| channels | `rpc_options.num_channels_per_target=4`                                |
| queues   | `TF_GRPC_WORKER_CACHE_QUEUES` and `..._THREADS` to 8                   |
| threads  | `inter_op_parallelism_threads=8`                                       |
| tunnel   | nothing; the worker is on another machine, here a network namespace,   |
|          | and all traffic to it passes through `deploy/tunnel.sh`                |

On two cores none of `channels`, `queues` and `threads` is faster at any size: more
channels halve the speed of small tensors, and the other two make little difference.  So
the servers of `towers` set none of them.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.lib import machine, process, ratios, table
from benchmarks.lib.options import (
    above_0,
    parser_for,
    positive,
    positives,
    writable,
)

SIZES = (2**12, 2**16, 2**20, 2**24, 2**26)  # bytes
COUNTS = (1, 2, 4)  # ps tasks
BASE = "socket"
PORTS = SOCKET_PORT, GRPC_PORT = 3000, 3001  # nobody else is in the private network


class Setting(NamedTuple):
    """A row of `SETTINGS`.

    Attributes:
      flags: of the peer.
      environment: of all tasks.
      gang: what starts the tasks.
    """

    flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}
    gang: tuple[str, ...] = ("benchmarks.lib.launch_tasks",)


_QUEUES = ("TF_GRPC_WORKER_CACHE_QUEUES", "TF_GRPC_WORKER_CACHE_THREADS")
SETTINGS: dict[str, Setting] = {
    "default": Setting(),
    "channels": Setting(("--channels=4",)),
    "queues": Setting(environment=dict.fromkeys(_QUEUES, "8")),
    "threads": Setting(("--inter_op_threads=8",)),
    "tunnel": Setting(
        gang=("benchmarks.lib.two_machines", *(f"--port={port}" for port in PORTS))
    ),
}


def command(setting: Setting, options: argparse.Namespace) -> process.Command:
    """Starts a cluster with this setting, whose worker measures everything once."""
    peer = [sys.executable, "-m", "benchmarks.peers.transport_peer"]
    peer += ["--job={job}", "--index={index}", "--ps={ps}", "--worker={worker}"]
    peer += [f"--seconds={options.seconds}", *setting.flags]
    peer += [f"--sizes={','.join(map(str, options.sizes))}"]
    peer += [f"--counts={','.join(map(str, options.counts))}"]
    gang = [sys.executable, "-m", *setting.gang]
    gang += [f"--tasks=ps:{max(options.counts)},worker:1", "--", *peer]
    quiet = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
    return process.Command(gang, {**quiet, **setting.environment})


def measured(finished: process.Finished) -> list[dict[str, Any]]:
    """What the worker found: `way`, `bytes` and `gigabytes_per_second` of each.

    Raises:
      RuntimeError: it failed.
    """
    for _, line in reversed(finished.lines):
        if line.startswith("[{"):
            return json.loads(line)
    raise RuntimeError(f"the cluster failed: {finished.complaint}")


def rates(
    rounds: Sequence[Sequence[dict[str, Any]]], way: str, size: int
) -> list[float | None]:
    """GB/s of each round, None where there is none."""
    return [
        next(
            (
                entry["gigabytes_per_second"]
                for entry in round_
                if (entry["way"], entry["bytes"]) == (way, size)
            ),
            None,
        )
        for round_ in rounds
    ]


def report(rounds: Sequence[Sequence[dict[str, Any]]]) -> list[str]:
    """A table of one setting: GB/s of the socket, and the shares of the others."""
    ways = list(dict.fromkeys(entry["way"] for round_ in rounds for entry in round_))
    rows = []
    for size in _sizes(rounds):
        base = rates(rounds, BASE, size)
        row = [_bytes(size), str(ratios.spread(r for r in base if r is not None))]
        for way in ways:
            if way != BASE:
                share = ratios.spread(ratios.paired(rates(rounds, way, size), base))
                row.append("-" if share is None else str(share))
        rows.append(row)
    titles = ["", f"{BASE} GB/s", *(f"{w} / {BASE}" for w in ways if w != BASE)]
    return table.table_lines(titles, rows)


def gains(rounds_of: Mapping[str, Sequence[Sequence[dict[str, Any]]]]) -> list[str]:
    """A table of the settings: the speed of 1 ps over that of the first setting."""
    first, *others = rounds_of
    way, rows = "1 ps", []
    for size in _sizes(rounds_of[first]):
        base = rates(rounds_of[first], way, size)
        gained = (
            ratios.paired(rates(rounds_of[name], way, size), base) for name in others
        )
        rows.append([_bytes(size), *(str(ratios.spread(gain)) for gain in gained)])
    return table.table_lines([f"{way}, gain", *others], rows)


def _sizes(rounds: Sequence[Sequence[dict[str, Any]]]) -> list[int]:
    return sorted({entry["bytes"] for round_ in rounds for entry in round_})


def _bytes(size: int) -> str:
    return f"{size // 2**20} MB" if size >= 2**20 else f"{size // 2**10} KB"


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line; exits with status 2 when something is wrong with it."""
    parser = parser_for("mechanisms.transport", __doc__)
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument(
        "--seconds", type=above_0, default=0.2, help="duration of each measurement"
    )
    parser.add_argument("--settings", default="default", help=", ".join(SETTINGS))
    parser.add_argument(
        "--sizes", type=positives, default=list(SIZES), help="bytes of a transfer"
    )
    parser.add_argument(
        "--counts", type=positives, default=list(COUNTS), help="numbers of ps tasks"
    )
    parser.add_argument(
        "--out", type=writable, metavar="FILE", help="JSON file of all numbers"
    )
    options = parser.parse_args(argv)
    options.settings = options.settings.split(",")
    if unknown := set(options.settings) - set(SETTINGS):
        parser.error(f"--settings: {unknown.pop()!r} is none of {', '.join(SETTINGS)}")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Measures; returns the exit status."""
    options = parse(argv)
    results: dict[str, list[list[dict[str, Any]]]] = {n: [] for n in options.settings}
    for number in range(1, options.rounds + 1):
        for name in options.settings:
            finished = process.run(command(SETTINGS[name], options), timeout=300)
            try:
                results[name].append(measured(finished))
            except RuntimeError as error:
                print(f"error: {error}", file=sys.stderr)
                return 1
            print(f"[{number}/{options.rounds}] {name}", flush=True)
    for name, rounds in results.items():
        print("\n".join(["", name, *report(rounds)]))
    if len(results) > 1:
        print("\n".join(["", *gains(results)]))
    if options.out:
        machine.write_json(options.out, {"arguments": vars(options), "found": results})
    return 0


if __name__ == "__main__":
    sys.exit(main())
