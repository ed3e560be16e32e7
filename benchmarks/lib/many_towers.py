"""Builds many towers and runs them: one measurement of `benchmarks.startup`.

    python -m benchmarks.lib.many_towers --num_towers=32
    python -m benchmarks.lib.many_towers --num_towers=32 --plain

With --plain it builds the graph of `benchmarks.peers.bare_peer` instead, towers in a
Python loop, and runs it in a session with TensorFlow's defaults, graph optimizers
included.

Prints one line of JSON: the seconds of `build`, `start` (session and initial values)
and `first_step`, and `images_per_second` after the warm-up.
"""

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

if __name__ == "__main__":
    from towers import start

    start.import_tensorflow()

import tensorflow as tf

import models
from benchmarks.lib.options import natural, parser_for, positive
from benchmarks.peers import bare_peer
from flags import config
from towers import graph, planning
from towers.layout import placement
from towers.session import loop

v1 = tf.compat.v1


class Built(NamedTuple):
    """A graph, ready to be run.

    Attributes:
      graph: with the towers.
      config: of its session.
      start: gives the variables their values.
      step: the training step.
    """

    graph: tf.Graph
    config: v1.ConfigProto
    start: Callable[[v1.Session], object]
    step: tf.Operation


def measure(options: argparse.Namespace) -> dict[str, float]:
    """Builds, starts, runs."""
    times = [time.perf_counter()]
    built = _plain(options) if options.plain else _towers(options)
    times.append(time.perf_counter())
    with v1.Session(graph=built.graph, config=_config(built, options)) as session:
        built.start(session)
        times.append(time.perf_counter())
        step = session.make_callable(built.step)
        step()
        times.append(time.perf_counter())
        for _ in range(options.num_warmup_batches):
            step()
        begun = time.perf_counter()
        for _ in range(options.num_batches):
            step()
        seconds = time.perf_counter() - begun
    build, start, first = (after - before for before, after in pairwise(times))
    examples = options.num_towers * options.batch_size * options.num_batches
    return {
        "build": build,
        "start": start,
        "first_step": first,
        "images_per_second": examples / seconds,
    }


def _towers(options: argparse.Namespace) -> Built:
    """Builds towers with this project."""
    plan = _plan(options)
    train = graph.build(**plan.parts)
    return Built(
        graph=train.graph,
        config=placement.session_config(plan.placement),
        start=lambda session: loop.start(train, session, lambda session: None),
        step=train.train_op,
    )


def _plain(options: argparse.Namespace) -> Built:
    """Builds towers in a Python loop, for a session with TensorFlow's defaults."""
    row = bare_peer.MODELS.get(options.model)
    if row is None:
        names = ", ".join(bare_peer.MODELS)
        raise ValueError(f"--plain has no --model={options.model}; choose from {names}")
    shape = (options.image_size, options.image_size, row.shape[-1])
    with tf.Graph().as_default() as graph:
        step, _ = bare_peer.build(
            row._replace(shape=shape),
            options.num_towers,
            options.batch_size,
            dtype=tf.float32,
            rate=0.1,
        )
        values = tf.group(
            v1.global_variables_initializer(), v1.local_variables_initializer()
        )
    defaults = v1.ConfigProto(device_count={"CPU": options.num_towers})
    return Built(graph, defaults, lambda session: session.run(values), step)


def _plan(options: argparse.Namespace) -> planning.Plan:
    """The plan that the flags name, for images of another size than the model's."""
    model = models.get(options.model)
    if model.inputs.kind != "images":
        raise ValueError(
            f"--model={options.model}: reads no images; name one that does"
        )
    shape = (options.image_size, options.image_size, model.inputs.shape[-1])
    model = dataclasses.replace(
        model, inputs=dataclasses.replace(model.inputs, shape=shape)
    )
    settings = config.make(
        model=options.model,
        data_name="synthetic",
        device="cpu",
        num_gpus=options.num_towers,
        batch_size=options.batch_size,
        num_batches=options.num_batches,
    )
    return planning.make(settings, lambda name: model)


def _config(built: Built, options: argparse.Namespace) -> v1.ConfigProto:
    """The session's, with TensorFlow's own choice of graph optimizers if asked."""
    if options.graph_optimizers:
        built.config.ClearField("graph_options")
    return built.config


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit status."""
    parser = parser_for("lib.many_towers", __doc__)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--image_size", type=positive, default=32)
    parser.add_argument("--num_towers", type=positive, default=32)
    parser.add_argument("--batch_size", type=positive, default=2, help="per tower")
    parser.add_argument("--num_batches", type=positive, default=10, help="timed steps")
    parser.add_argument("--num_warmup_batches", type=natural, default=2)
    parser.add_argument(
        "--plain", action="store_true", help="the graph of benchmarks.peers.bare_peer"
    )
    parser.add_argument(
        "--graph_optimizers",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="use TensorFlow's graph optimizers, which this project does not use",
    )
    options = parser.parse_args(argv)
    try:
        print(json.dumps(measure(options)), flush=True)
    except ValueError as error:  # settings that do not go together
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
