"""What a step loses to a checkpoint, with --async_checkpoint and without.

    python -m benchmarks.mechanisms.checkpoints

The variables and slots are those of resnet50 with momentum, in one session of this
process.  Each round measures, in turn,

    update    an update of all of them, which adds 0
    blocking  a checkpoint that is written between two steps
    held      what a step loses where a thread writes: holding the values, and how much
              longer the next update takes, as it copies what is held

What the thread takes from the training is not measured: on a CPU it needs one of the
cores, for about as long as a blocking checkpoint takes.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

if __name__ == "__main__":
    from towers import start

    start.import_tensorflow()

import tensorflow as tf

import models
from benchmarks.lib import machine, ratios, table
from benchmarks.lib.options import parser_for, positive, writable
from flags import config
from towers import graph, planning
from towers.checkpoints.checkpoint import Checkpoints, FiniteCheck
from towers.checkpoints.saving import Saving
from towers.cluster.sessions import session_config, settle_process
from towers.layout import parts
from towers.session import loop

v1 = tf.compat.v1


def _seconds(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def measure(options: argparse.Namespace) -> dict[str, list[float]]:
    """Seconds of each kind in each round."""
    plan = _plan(options)
    settle_process(plan.placement, plan.config.devices)
    train = graph.build(**plan.parts)
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, train.graph.as_default():
        finite = FiniteCheck(train.saved)
        saving = Saving(Checkpoints(f"{folder}/a", train.saved, finite=finite))
        held = Checkpoints(f"{folder}/b", train.saved)
        held.hold_values()
        update = _update(train)
        config = session_config(plan.placement, plan.config.devices)
        with v1.Session(graph=train.graph, config=config) as session:
            loop.start(train, session, lambda session: None)
            run = session.make_callable(update)
            for number in range(-1, options.rounds):  # the first makes the kernels
                told = _round(run, session, saving, held, number=number)
                if number >= 0:
                    for name, seconds in told.items():
                        times.setdefault(name, []).append(seconds)
                    words = ", ".join(f"{k} {1e3 * v:.3g}" for k, v in told.items())
                    print(f"[{number + 1}/{options.rounds}] ms: {words}", flush=True)
    return times


def _update(train: graph.TrainGraph) -> tf.Operation:
    """Adds 0 to all that is saved and of floats."""
    changes = []
    for variable in (v for whole in train.saved.values() for v in parts.each(whole)):
        if variable.dtype.is_floating:
            with tf.device(variable.device):
                zeros = tf.zeros_like(variable.read_value())
                changes.append(variable.assign_add(zeros, read_value=False))
    return tf.group(*changes)


def _round(
    update: Callable[[], object],
    session: v1.Session,
    saving: Saving,
    held: Checkpoints,
    *,
    number: int,
) -> dict[str, float]:
    """Seconds of each kind."""
    told = {"update": statistics.median(_seconds(update) for _ in range(5))}
    told["blocking"] = _seconds(lambda: saving.attempt(session, number))
    lost = []
    for _ in range(5):
        update()
        holding = _seconds(lambda: held.hold(session))
        lost.append(holding + _seconds(update) - told["update"])
        held.release(session)
    told["held"] = statistics.median(lost)
    return told


def report(measured: dict[str, list[float]]) -> list[str]:
    """A table: times, and what part of the blocking checkpoint they are."""
    rows = []
    for name, seconds in measured.items():
        millis = ratios.spread(1e3 * value for value in seconds)
        part = ratios.spread(a / b for a, b in zip(seconds, measured["blocking"]))
        rows.append([name, str(millis), str(part)])
    return table.table_lines(["", "ms", "of blocking"], rows)


def _plan(options: argparse.Namespace) -> planning.Plan:
    """The run that is measured."""
    settings = config.make(
        model=options.model,
        data_name="synthetic",
        device=options.device,
        optimizer="momentum",
        batch_size=options.batch_size,
    )
    return planning.make(settings, models.get)


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit status."""
    parser = parser_for("mechanisms.checkpoints", __doc__)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "gpu"))
    parser.add_argument("--batch_size", type=positive, default=1)
    parser.add_argument("--rounds", type=positive, default=9)
    parser.add_argument(
        "--json", type=writable, metavar="FILE", help="JSON file of all numbers"
    )
    options = parser.parse_args(argv)
    try:
        _plan(options)
    except ValueError as error:
        parser.error(str(error))
    times = measure(options)
    print("\n".join(["", *report(times)]))
    machine.write_results(options.json, vars(options), seconds=times)
    return 0


if __name__ == "__main__":
    sys.exit(main())
