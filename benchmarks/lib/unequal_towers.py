"""Towers of which one is slower: one measurement of `benchmarks.scaling --slower`.

    python -m benchmarks.lib.unequal_towers --num_towers=4 --slower=3

Every tower waits for a time in proportion to its batch, without using a core, the last
one several times as long.  Prints one line of JSON:

    equal              median seconds per step with equal batches
    sizes, auto        batch sizes by `--tower_batch_sizes=auto`, and the seconds then
    changed, rebalance the same with the sizes that `--rebalance` changes to
"""

import argparse
import dataclasses
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.lib.options import above_0, parser_for, positive
from flags import config
from models.model import Images, Model, Recipe, Schedule
from towers import graph, planning
from towers.cluster.sessions import Local, session_config
from towers.data.source import Batch, Feed, Groups, sizes_of
from towers.rebalance import NewBatchSizesError, Rebalance
from towers.session import loop, tower_speeds, tune
from towers.session.progress import Console
from towers.session.stop import StopOnSignal

v1 = tf.compat.v1

_SHAPE = (1, 1, 1)
_INTERVAL, _LAST = 4, 100  # steps of `--rebalance`, and at most


class RowSource:
    """A source whose examples are their places among those of a step.

    Args:
      rows: examples of a step.
    """

    name, path, vocabulary, num_classes = "rows", "", (), 2
    features, labels = tf.TensorSpec(_SHAPE), tf.TensorSpec([], tf.int32)

    def __init__(self, rows: int):
        self.num_examples = rows

    def feed(
        self, groups: Groups, *, batch_size: int | Sequence[int], **others: Any
    ) -> Feed:
        """As `Source` has it: the same rows in each step."""
        del others
        batches, first = [], 0
        sizes = [size for of_host in sizes_of(groups, batch_size) for size in of_host]
        for size in sizes:
            rows = np.arange(first, first + size, dtype=np.float32)
            features = tf.constant(rows.reshape([size, *_SHAPE]))
            labels, weights = tf.zeros([size], tf.int32), tf.ones([size])
            start = tf.constant(first, tf.int64)
            batches.append(Batch(features, labels, weights, start))
            first += size
        return Feed(batches, tf.no_op(), [tf.no_op()] * len(batches))


def model(rows: int, seconds: float, slower: float) -> Model:
    """A model that waits, `slower` times as long on the tower with the last row.

    Args:
      rows: examples of a step.
      seconds: of the wait for each example.
      slower: factor of the last tower's wait.
    """

    def sleep(x: np.ndarray) -> np.ndarray:
        factor = slower if x.max() == rows - 1 else 1.0
        time.sleep(len(x) * seconds * factor)
        return x

    def wait(x, nn):
        x = nn.flatten(x)
        later = tf.numpy_function(sleep, [x], x.dtype)
        later.set_shape(x.shape)
        return later

    def weight(x, nn):
        return x * nn.variable("weight", [], v1.zeros_initializer())

    return Model(
        name="unequal",
        blocks=(("wait", wait), ("weight", weight)),
        inputs=Images(shape=_SHAPE, num_classes=2),
        recipe=Recipe(batch_size=1, schedule=Schedule(rates=(0.1,))),
        loss=lambda outputs, labels: outputs[:, 0] + 0 * tf.cast(labels, tf.float32),
        metrics=lambda outputs, labels: {},
    )


def plan(towers: int, batch_size: int, seconds: float, slower: float) -> planning.Plan:
    """The plan of a run with `--tower_batch_sizes=auto`.

    Args:
      towers: how many.
      batch_size: of each, if they are equal.
      seconds: of the wait for each example.
      slower: factor of the last tower's wait.
    """
    rows = towers * batch_size
    settings = config.make(
        device="cpu",
        num_gpus=towers,
        batch_size=batch_size,
        tower_batch_sizes="auto",
        num_inter_threads=towers + 8,  # a tower that waits keeps a thread
    )
    run = planning.make(
        settings,
        lambda name: model(rows, seconds, slower),
        find_sources=lambda settings, model: (RowSource(rows), None),
    )
    # None keeps a core from another.
    where = dataclasses.replace(run.placement, at_a_time=0)
    return dataclasses.replace(run, placement=where)


def rebalanced(equal: planning.Plan) -> planning.Plan:
    """The plan with the sizes that `--rebalance` changes to, after steps with others.

    Args:
      equal: the plan before.
    """
    options = dataclasses.replace(equal.options, times_towers=True)
    built = graph.build(**dataclasses.replace(equal, options=options).parts)
    watch = Rebalance(built, steps=_INTERVAL, begin=0, last_step=_LAST)
    config = session_config(equal.placement, equal.config.devices)
    sizes = options.sizes(equal.placement.num_towers)
    with v1.Session(graph=built.graph, config=config) as session:
        loop.start(built, session, lambda session: None)
        try:
            loop.run(built, session, [watch], last_step=_LAST)
        except NewBatchSizesError as change:
            sizes = change.sizes
    options = dataclasses.replace(equal.options, tower_batch_sizes=sizes)
    return dataclasses.replace(equal, options=options)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Times steps of equal batches, and of those that the two flags choose."""
    count = options.num_towers
    equal = plan(count, options.batch_size, options.wait, options.slower)
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        console = Console(nowhere)
        auto = tower_speeds.settled(equal, console, Local(), StopOnSignal())
    changed = rebalanced(equal)
    ways = {"equal": equal, "auto": auto, "rebalance": changed}
    seconds = {
        name: statistics.median(tune.measure(way, tune.DEFAULT))
        for name, way in ways.items()
    }
    sizes = {
        "sizes": auto.options.sizes(count),
        "changed": changed.options.sizes(count),
    }
    return {**sizes, **seconds}


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit status."""
    parser = parser_for("lib.unequal_towers", __doc__)
    parser.add_argument("--num_towers", type=positive, default=4)
    parser.add_argument(
        "--slower", type=above_0, default=3.0, help="factor of the last tower's wait"
    )
    parser.add_argument(
        "--wait", type=above_0, default=0.01, help="seconds for each example"
    )
    parser.add_argument(
        "--batch_size", type=positive, default=10, help="examples of equal batches"
    )
    print(json.dumps(measure(parser.parse_args(argv))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
