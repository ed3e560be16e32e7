"""Cost of the session loop and its hooks, beside a bare loop over the same step.

    python -m benchmarks.mechanisms.step_overhead

The model, mlp on 4 towers of 8 examples, is so small that a step is mostly overhead.
In each round all variants run in turn in this process, each with a new graph:

    bare    `session.make_callable(train_op)` in a Python loop, nothing else
    loop    `towers.session.loop` without a hook
    run     `towers.run`, what the command does: step lines, NaN check, signals
    saving  the same with summaries every 100 steps and checkpoints every 10 minutes,
            the defaults of TensorFlow's MonitoredTrainingSession
"""

import argparse
import io
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

if __name__ == "__main__":
    from towers import start

    start.import_tensorflow()

import tensorflow as tf

import models
from benchmarks.lib import machine, process, ratios, table
from benchmarks.lib.options import parser_for, positive, writable
from flags import config
from towers import graph, planning, run
from towers.cluster.sessions import session_config
from towers.session import loop
from towers.session.progress import Console

v1 = tf.compat.v1


def _session(plan: planning.Plan, train: graph.TrainGraph) -> v1.Session:
    config = session_config(plan.placement, plan.config.devices)
    return v1.Session(graph=train.graph, config=config)


def bare(plan: planning.Plan) -> float:
    """Seconds per step of a callable, called over and over."""
    train = graph.build(**plan.parts)
    with _session(plan, train) as session:
        loop.start(train, session, lambda session: None)
        step = session.make_callable(train.train_op)
        for _ in range(plan.num_warmup):
            step()
        begun = time.perf_counter()
        for _ in range(plan.num_batches):
            step()
        return (time.perf_counter() - begun) / plan.num_batches


def looped(plan: planning.Plan) -> float:
    """Seconds per step of the session loop."""
    train = graph.build(**plan.parts)
    with _session(plan, train) as session:
        loop.start(train, session, lambda session: None)
        loop.run(train, session, [], last_step=plan.num_warmup)
        begun = time.perf_counter()
        loop.run(train, session, [], last_step=plan.num_steps)
        return (time.perf_counter() - begun) / plan.num_batches


def whole(plan: planning.Plan) -> float:
    """Seconds per step of a whole run, by the line that it prints."""
    log = io.StringIO()
    run.train(plan, Console(log))
    said = process.Finished(0, [(0.0, text) for text in log.getvalue().splitlines()], 0)
    return plan.examples_per_step / said.images_per_second


# name -> (what is measured, whether it saves).  The first is what the others are
# compared with.
VARIANTS: dict[str, tuple[Callable[[planning.Plan], float], bool]] = {
    "bare": (bare, False),
    "loop": (looped, False),
    "run": (whole, False),
    "saving": (whole, True),
}


def measure(options: argparse.Namespace) -> dict[str, list[float]]:
    """Seconds per step of each variant in each round."""
    times: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for number in range(1, options.rounds + 1):
        for name, (seconds_per_step, saves) in VARIANTS.items():
            with tempfile.TemporaryDirectory() as folder:
                plan = _plan(options, folder if saves else None)
                times[name].append(seconds_per_step(plan))
        told = ", ".join(f"{k} {ratios.number(1e6 * v[-1])}" for k, v in times.items())
        print(f"[{number}/{options.rounds}] us per step: {told}", flush=True)
    return times


def report(measured: dict[str, list[float]]) -> list[str]:
    """A table: time per step, and speed over that of the bare loop."""
    base = next(iter(measured))
    rows = []
    for name, seconds in measured.items():
        micros = ratios.spread(1e6 * value for value in seconds)
        speed = ratios.spread(ratios.paired(measured[base], seconds))
        rows.append([name, str(micros), str(speed)])
    return table.table_lines(["", "us per step", f"speed / {base}"], rows)


def _plan(options: argparse.Namespace, train_dir: str | None) -> planning.Plan:
    """The run that is measured."""
    saving = {}
    if train_dir:
        saving = dict(
            train_dir=train_dir,
            summary_verbosity=1,
            save_summaries_steps=100,
            save_model_secs=600,
        )
    settings = config.make(
        model=options.model,
        data_name="synthetic",
        device="cpu",
        num_gpus=options.num_towers,
        batch_size=options.batch_size,
        num_batches=options.num_batches,
        num_warmup_batches=options.num_batches // 10,
        **saving,
    )
    return planning.make(settings, models.get)


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit status."""
    parser = parser_for("mechanisms.step_overhead", __doc__)
    parser.add_argument("--model", default="mlp")
    parser.add_argument("--num_towers", type=positive, default=4)
    parser.add_argument("--batch_size", type=positive, default=8, help="per tower")
    parser.add_argument(
        "--num_batches", type=positive, default=5000, help="timed steps"
    )
    parser.add_argument("--rounds", type=positive, default=9)
    parser.add_argument(
        "--json", type=writable, metavar="FILE", help="JSON file of all numbers"
    )
    options = parser.parse_args(argv)
    try:
        _plan(options, None)
    except ValueError as error:
        parser.error(str(error))
    times = measure(options)
    print("\n".join(["", *report(times)]))
    machine.write_results(options.json, vars(options), seconds_per_step=times)
    return 0


if __name__ == "__main__":
    sys.exit(main())
