"""Builds many towers and runs them: one measurement of `benchmarks.startup`.

    python -m benchmarks.many_towers --num_towers=32

Prints `first step` when the first step is done, and at the end one line of JSON: the
seconds that `build`, `start` (session and initial values) and `first_step` took, and
`images_per_second` of the steps after the warm-up.
"""

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from itertools import pairwise

if __name__ == "__main__":
    from towers import start

    start.import_tensorflow()

import tensorflow as tf

import models
from benchmarks.options import natural, parser_for, positive
from flags import config
from towers import planning
from towers.layout import placement
from towers.session import loop

v1 = tf.compat.v1

FIRST_STEP = "first step"


def measure(options: argparse.Namespace) -> dict[str, float]:
    """Builds, starts, runs; says when the first step is done."""
    times = [time.perf_counter()]
    plan = _plan(options)
    train = plan.build()
    times.append(time.perf_counter())
    with v1.Session(graph=train.graph, config=_session_config(plan, options)) as sess:
        loop.start(train, sess, lambda session: None)
        times.append(time.perf_counter())
        step = sess.make_callable(train.train_op)
        step()
        times.append(time.perf_counter())
        print(FIRST_STEP, flush=True)
        for _ in range(options.num_warmup_batches):
            step()
        begun = time.perf_counter()
        for _ in range(options.num_batches):
            step()
        seconds = time.perf_counter() - begun
    build, start, first = (after - before for before, after in pairwise(times))
    return {
        "build": build,
        "start": start,
        "first_step": first,
        "images_per_second": plan.examples_per_step * options.num_batches / seconds,
    }


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


def _session_config(plan: planning.Plan, options: argparse.Namespace) -> v1.ConfigProto:
    """This project's, with TensorFlow's own choice of graph optimizers if asked."""
    session_config = placement.session_config(plan.placement)
    if options.graph_optimizers:
        session_config.ClearField("graph_options")
    return session_config


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit status."""
    parser = parser_for("many_towers", __doc__)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--image_size", type=positive, default=32)
    parser.add_argument("--num_towers", type=positive, default=32)
    parser.add_argument("--batch_size", type=positive, default=2, help="per tower")
    parser.add_argument("--num_batches", type=positive, default=10, help="timed steps")
    parser.add_argument("--num_warmup_batches", type=natural, default=2)
    parser.add_argument(
        "--graph_optimizers",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="with TensorFlow's graph optimizers, which this project leaves off",
    )
    options = parser.parse_args(argv)
    try:
        print(json.dumps(measure(options)), flush=True)
    except ValueError as error:  # settings that do not go together
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
