"""Towers that wait instead of computing: one measurement of `benchmarks.scaling`.

    python -m benchmarks.lib.waiting_towers --mode=replicated:tree --num_towers=16

Every tower waits as long as its computation would take, without using a core, and then
returns gradients of real size, which are reduced and applied as in any run.  The time
of a step beyond the wait is the cost of the mode.  Prints one line of JSON:

    step            median seconds per step
    client          CPU seconds per step of the thread that calls the session
    process         CPU seconds of the whole process per step
    build, first    CPU seconds of the process to build the graph; of the first step
    operations      number of the graph's operations
"""

import argparse
import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from benchmarks.lib.options import above_0, parser_for, positive
from models.model import Images, Model, Recipe, Schedule
from towers import graph
from towers.data import inputs
from towers.gradients import reduction
from towers.gradients.exchange import GradientExchange
from towers.layout import placement
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.optimizer import Update
from towers.session import loop
from towers.variable_update.modes import VARIABLE_UPDATES

v1 = tf.compat.v1


def _sleep(x: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Passes x on, later."""
    time.sleep(float(seconds))
    return x


def model(seconds: float, variables: int, floats: int) -> Model:
    """A model that waits, and then has gradients of a given size.

    Args:
      seconds: of the wait.
      variables: how many.
      floats: in each variable.
    """

    def wait(x, nn):
        x = nn.flatten(x)
        later = tf.numpy_function(_sleep, [x, tf.constant(seconds)], x.dtype)
        later.set_shape(x.shape)
        return later

    def weights(x, nn):
        del nn
        values = [
            v1.get_variable(f"weights_{k}", [floats], initializer=v1.ones_initializer())
            for k in range(variables)
        ]
        return x * tf.add_n([tf.reduce_mean(value) for value in values])

    return Model(
        name="waiting",
        blocks=(("wait", wait), ("weights", weights)),
        inputs=Images(shape=(1, 1, 1), num_classes=2),
        recipe=Recipe(batch_size=1, schedule=Schedule(rates=(0.1,))),
        loss=lambda outputs, labels: outputs[:, 0] + 0 * tf.cast(labels, tf.float32),
        metrics=lambda outputs, labels: {},
    )


def measure(options: argparse.Namespace) -> dict[str, float]:
    """Builds and steps."""
    mode, _, spec = options.mode.partition(":")
    if mode not in VARIABLE_UPDATES:
        modes = ", ".join(VARIABLE_UPDATES)
        raise ValueError(f"--mode={options.mode}: there is no {mode}, only {modes}")
    if spec:
        reduction.check(spec, kind="cpu", hosts=[""])
    where = placement.local(options.num_towers, kind="cpu")
    where = dataclasses.replace(where, at_a_time=0)  # none keeps a core from another
    images = np.full((options.num_towers, 1, 1, 1), 255, np.uint8)
    labels = np.zeros(options.num_towers, np.int64)
    begun = time.process_time()
    train = graph.build(
        model(options.wait, options.variables, options.floats),
        inputs.from_arrays(images, labels, num_classes=2),
        Update("sgd", Piecewise((1e-3,))),
        placement=where,
        options=graph.Options(
            batch_size=1,
            variable_update=mode,
            exchange=GradientExchange(**({"all_reduce_spec": spec} if spec else {})),
        ),
    )
    build = time.process_time() - begun
    # A tower that waits keeps a thread; the others need some too.
    threads = options.num_towers + 8
    config = placement.session_config(where, inter_threads=threads)
    with v1.Session(graph=train.graph, config=config) as session:
        loop.start(train, session, lambda session: None)
        step = session.make_callable(train.train_op)
        begun = time.process_time()
        step()
        first = time.process_time() - begun
        step()
        seconds, client, process = [], time.thread_time(), time.process_time()
        for _ in range(options.num_batches):
            begun = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - begun)
        client, process = time.thread_time() - client, time.process_time() - process
    return {
        "step": statistics.median(seconds),
        "client": client / options.num_batches,
        "process": process / options.num_batches,
        "build": build,
        "first": first,
        "operations": len(train.graph.get_operations()),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit status."""
    parser = parser_for("lib.waiting_towers", __doc__)
    parser.add_argument("--mode", default="parameter_server", help="MODE[:SPEC]")
    parser.add_argument("--num_towers", type=positive, default=4)
    parser.add_argument(
        "--wait", type=above_0, default=0.2, help="seconds that a step waits"
    )
    parser.add_argument("--variables", type=positive, default=4)
    parser.add_argument(
        "--floats", type=positive, default=25_000, help="floats of a variable"
    )
    parser.add_argument("--num_batches", type=positive, default=10, help="timed steps")
    options = parser.parse_args(argv)
    try:
        print(json.dumps(measure(options)), flush=True)
    except ValueError as error:  # settings that do not go together
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
