"""Memory that each evaluation leaves allocated.

    python -m benchmarks.mechanisms.evaluation_memory

One session evaluates mlp on one tower over and over on the test images of the digits,
as a run does between its steps:

    run          as `towers.run` evaluates: its input repeats by itself
    initialized  the same, but the input's initializer runs each time, as for a user's
                 own `Source`; TensorFlow keeps some memory for every iterator

After a warm-up, the resident memory of this process is read in each round before and
after a number of evaluations of either kind.
"""

import argparse
import contextlib
import gc
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence

if __name__ == "__main__":
    from towers import start

    start.import_tensorflow()

import tensorflow as tf

import models
from benchmarks.lib import ratios, table
from benchmarks.lib.options import parser_for, positive
from flags import config
from towers import graph, planning
from towers.cluster.sessions import session_config, settle_process
from towers.evaluation import evaluator
from towers.session.progress import Console
from towers.session.report import BenchmarkLog

v1 = tf.compat.v1

RUN, INITIALIZED = "run", "initialized"
_STATM = "/proc/self/statm"


def resident() -> int:
    """Resident memory of this process in bytes, after a garbage collection."""
    gc.collect()
    with open(_STATM, encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def evaluating(folder: str, model: str) -> Iterator[dict[str, Callable[[int], None]]]:
    """Yields kind of evaluation -> a function that evaluates, given the step.

    Args:
      folder: for the summaries of evaluations.
      model: name of the evaluated model.
    """
    plan = _plan(model, folder)
    built = graph.build(**plan.parts)
    with built.graph.as_default():
        towers = evaluator.attach(plan, built)
        initializer = v1.global_variables_initializer()
    built.graph.finalize()
    initialized = towers._replace(feed=towers.feed._replace(begins_anew=False))
    session = v1.Session(
        graph=built.graph,
        config=session_config(plan.placement, plan.config.devices),
    )
    with session, open(os.devnull, "w", encoding="utf-8") as nowhere:
        session.run(initializer)
        console = Console(nowhere)

        def of(graph) -> Callable[[int], None]:
            log = BenchmarkLog(None, console.side)
            evaluate = evaluator.Evaluator(plan, graph, console, log)
            return lambda step: evaluate(session, step, bool)

        yield {RUN: of(towers), INITIALIZED: of(initialized)}


def _plan(model: str, folder: str) -> planning.Plan:
    settings = config.make(
        model=model,
        data_name="digits",
        device="cpu",
        num_gpus=1,
        num_batches=1,
        eval_at_end=True,
        eval_dir=folder,
    )
    settle_process(planning.placement_of(settings), settings.devices)
    return planning.make(settings, models.get)


def measure(options: argparse.Namespace) -> dict[str, list[float]]:
    """Kind of evaluation -> bytes per evaluation in each round."""
    growth: dict[str, list[float]] = {RUN: [], INITIALIZED: []}
    with tempfile.TemporaryDirectory() as folder:
        with evaluating(folder, options.model) as ways:
            for number in range(1, options.rounds + 1):
                for name, evaluate in ways.items():
                    for step in range(options.warmup):
                        evaluate(step)
                    before = resident()
                    for step in range(options.evaluations):
                        evaluate(step)
                    lost = (resident() - before) / options.evaluations
                    growth[name].append(lost)
                told = ", ".join(f"{k} {v[-1]:.0f}" for k, v in growth.items())
                print(
                    f"[{number}/{options.rounds}] bytes per evaluation: {told}",
                    flush=True,
                )
    return growth


def report(measured: dict[str, list[float]]) -> list[str]:
    """A table of the bytes that an evaluation leaves allocated."""
    rows = [[name, str(ratios.spread(lost))] for name, lost in measured.items()]
    return table.table_lines(["", "bytes per evaluation"], rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit status."""
    parser = parser_for("mechanisms.evaluation_memory", __doc__)
    parser.add_argument("--model", default="mlp")
    parser.add_argument("--evaluations", type=positive, default=300)
    parser.add_argument("--warmup", type=positive, default=50)
    parser.add_argument("--rounds", type=positive, default=5)
    options = parser.parse_args(argv)
    if not os.path.exists(_STATM):
        parser.error(f"this system has no {_STATM}, which says what a process takes")
    try:
        models.get(options.model)
    except ValueError as error:
        parser.error(str(error))
    print("\n".join(["", *report(measure(options))]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
