"""Time and memory to compute the order of an epoch.

    python -m benchmarks.mechanisms.epoch_order --examples=20000000

An input of so many examples is read from the middle of an epoch on.  In each round both
orders are measured in turn, each in a process of its own:

    keyed     of a new run: a bijection with the epoch's key
    permuted  of an old checkpoint: a permutation of all numbers, made in each epoch

Prints the seconds to the first batch, the microseconds per example after it, and the
peak memory of the process less its memory before.
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Sequence

if __name__ == "__main__":
    from towers import start

    start.import_tensorflow()

import numpy as np
import tensorflow as tf

from benchmarks.lib import process, ratios, table
from benchmarks.lib.options import parser_for, positive
from towers.data import order, preprocessing, records
from towers.data.host_share import HostShare
from towers.data.stream import Stream

v1 = tf.compat.v1

ORDERS = {"keyed": order.KEYED, "permuted": order.PERMUTED}
COLUMNS = ("s to the first batch", "us per example", "MiB")
_BATCH = 128


def read(version: int, examples: int, batches: int) -> list[float]:
    """Reads the stream in this process; returns the numbers of `COLUMNS`."""
    image, label = np.zeros([examples, 1, 1, 1], np.uint8), np.zeros([examples], "i4")
    stream = Stream(
        # Those of what is kept are not opened.
        records.from_arrays(image[:1], label[:1], num_classes=1)._replace(
            num_examples=examples
        ),
        shape=(1, 1, 1),
        preprocessing=preprocessing.get("scale", kind="images"),
        seed=1,
        shuffle=True,
        augment=False,
        in_memory=True,
        kept=(image, label),
    )
    with tf.Graph().as_default(), v1.Session() as session:
        share = HostShare(_BATCH, 0, _BATCH, tf.constant(version, tf.int64))
        half = tf.constant(examples // 2, tf.int64)
        iterator = v1.data.make_initializable_iterator(stream.batches(share, half))
        batch = session.make_callable(iterator.get_next()[2].op)
        session.run(iterator.initializer)
        before, begun = _peak(), time.perf_counter()
        batch()
        first = time.perf_counter() - begun
        begun = time.perf_counter()
        for _ in range(batches):
            batch()
        rest = time.perf_counter() - begun
    return [first, 1e6 * rest / (batches * _BATCH), (_peak() - before) / 2**10]


def _peak() -> int:
    """KiB of memory that this process had at its peak."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure(options: argparse.Namespace) -> dict[str, list[list[float]]]:
    """Order -> the numbers of `COLUMNS` in each round.

    Raises:
      SystemExit: a process failed.
    """
    measured: dict[str, list[list[float]]] = {name: [] for name in ORDERS}
    for _ in range(options.rounds):
        for name in ORDERS:
            flags = {"order": name, "examples": options.examples}
            flags |= {"batches": options.batches}
            words = [f"--{flag}={value}" for flag, value in flags.items()]
            argv = [sys.executable, "-m", "benchmarks.mechanisms.epoch_order", *words]
            finished = process.run(process.Command(argv), timeout=600)
            if finished.status:
                sys.exit(f"{name}: {finished.complaint}")
            measured[name].append(json.loads(finished.lines[-1][1]))
            print(f"{name}: {measured[name][-1]}", flush=True)
    return measured


def report(measured: dict[str, list[list[float]]]) -> list[str]:
    """A table of both orders."""
    rows = [
        [name, *(str(ratios.spread(column)) for column in zip(*rounds))]
        for name, rounds in measured.items()
    ]
    return table.table_lines(["", *COLUMNS], rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit status."""
    parser = parser_for("mechanisms.epoch_order", __doc__)
    parser.add_argument("--examples", type=positive, default=20_000_000)
    parser.add_argument("--batches", type=positive, default=1000)
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument(
        "--order", choices=list(ORDERS), help="measure only this, in this process"
    )
    options = parser.parse_args(argv)
    if options.order:
        version = ORDERS[options.order]
        print(json.dumps(read(version, options.examples, options.batches)))
        return 0
    print("\n".join(["", *report(measure(options))]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
