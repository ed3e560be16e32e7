"""Speed of one GPU by dtype, layout and device of the variables.

    python -m benchmarks.single_gpu --batch_size=128

In each dtype the reference is a bare graph of the same operations (`bare_peer`,
channels last, variables on the GPU).  All graphs are built first; then they run in turn
for a number of steps per round, and ratios of speeds are taken within the rounds.  MFU
is the model's FLOP/s / the FLOP/s that the GPU reached in a matrix product or a
convolution.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

if __name__ == "__main__":
    from towers import start

    start.import_tensorflow()

import tensorflow as tf

import models
from benchmarks.lib import machine, ratios, table
from benchmarks.lib.options import parser_for, positive, writable
from benchmarks.peers import bare_peer
from flags import config
from towers import planning
from towers.cluster.sessions import session_config, settle_process
from towers.compute import flops
from towers.graph import build
from towers.session import loop

v1 = tf.compat.v1

# Name -> flags of `towers.train`.
VARIANTS = {
    "NHWC": {"data_format": "NHWC", "local_parameter_device": "gpu"},
    "NCHW": {"data_format": "NCHW", "local_parameter_device": "gpu"},
    "NCHW, variables on the CPU": {"data_format": "NCHW"},
}
DTYPES = ("float32", "bfloat16", "float16")


class Timed(NamedTuple):
    """A graph that is ready to run."""

    dtype: str
    name: str
    step: Callable[[], object]
    flops: int  # of a step


def prepare(options: argparse.Namespace) -> list[Timed]:
    """Builds and starts every graph, and runs its first steps."""
    timed = []
    for dtype in options.dtypes:
        timed.append(Timed(dtype, "bare", *_bare(options, dtype)))
        for name in options.variants:
            flags = dict(VARIANTS[name])
            if options.device == "cpu":
                flags.pop("local_parameter_device", None)
            timed.append(Timed(dtype, name, *_ours(options, dtype, flags)))
    for graph in timed:
        begun = time.perf_counter()
        for _ in range(options.num_warmup_batches):
            graph.step()
        seconds = time.perf_counter() - begun
        print(f"{graph.dtype}, {graph.name}: warm after {seconds:.1f} s", flush=True)
    return timed


def _bare(options: argparse.Namespace, dtype: str) -> tuple[Callable, int]:
    with tf.Graph().as_default() as graph:
        step, _ = bare_peer.build(
            bare_peer.MODELS[options.model],
            1,
            options.batch_size,
            dtype=tf.as_dtype(dtype),
            rate=1e-5,
            kind=options.device.upper(),
        )
        start = v1.global_variables_initializer(), v1.local_variables_initializer()
    session = v1.Session(graph=graph, config=session_config(*_where(options)))
    session.run(start)
    return session.make_callable(step), flops.of_graph(graph)


def _where(options: argparse.Namespace) -> tuple:
    plan = _plan(options, "float32", {})
    return plan.placement, plan.config.devices


def _ours(
    options: argparse.Namespace, dtype: str, flags: dict[str, str]
) -> tuple[Callable, int]:
    plan = _plan(options, dtype, flags)
    train = build(**plan.parts)
    config = session_config(plan.placement, plan.config.devices)
    session = v1.Session(graph=train.graph, config=config)
    loop.start(train, session, lambda session: None)
    step = session.make_callable(train.train_op)
    return step, flops.of_graph(train.graph)


def _plan(
    options: argparse.Namespace, dtype: str, flags: dict[str, str]
) -> planning.Plan:
    settings = config.make(
        model=options.model,
        data_name="synthetic",
        device=options.device,
        batch_size=options.batch_size,
        compute_dtype=dtype,
        optimizer="sgd",
        init_learning_rate=1e-5,
        num_batches=1,
        **({"allow_growth": True} if options.device == "gpu" else {}),
        **flags,
    )
    return planning.make(settings, models.get)


def measure(timed: Sequence[Timed], options: argparse.Namespace) -> list[list[float]]:
    """Seconds per step of each graph in each round, [graphs][rounds]."""
    times: list[list[float]] = [[] for _ in timed]
    for _ in range(options.rounds):
        for graph, seconds in zip(timed, times):
            begun = time.perf_counter()
            for _ in range(options.num_batches):
                graph.step()
            seconds.append((time.perf_counter() - begun) / options.num_batches)
    return times


def report(
    timed: Sequence[Timed],
    seconds: Sequence[Sequence[float]],
    peaks: dict[str, float],
    batch_size: int,
) -> list[str]:
    """A table: images per second, MFU, and speed over that of the bare graph.

    Args:
      timed: what ran.
      seconds: from `measure`.
      peaks: FLOP/s that the device reaches, by dtype.
      batch_size: images per step.
    """
    rows, base = [], seconds[0]
    for graph, times in zip(timed, seconds):
        if graph.name == "bare":
            base = times
        rates = ratios.spread(batch_size / s for s in times)
        used = ratios.spread(graph.flops / s / peaks[graph.dtype] for s in times)
        speed = ratios.spread(ratios.paired(base, times))
        rows.append([graph.dtype, graph.name, str(rates), str(used), str(speed)])
    return table.table_lines(["dtype", "", "images/s", "MFU", "speed / bare"], rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit status."""
    parser = parser_for("single_gpu", __doc__)
    parser.add_argument(
        "--model",
        choices=list(bare_peer.MODELS),
        default="resnet50",
        help="%(default)s",
    )
    parser.add_argument("--batch_size", type=positive, default=128)
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument(
        "--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS)
    )
    parser.add_argument(
        "--num_batches", type=positive, default=20, help="timed steps of a round"
    )
    parser.add_argument("--num_warmup_batches", type=positive, default=10)
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument(
        "--json", type=writable, metavar="FILE", help="JSON file of all numbers"
    )
    options = parser.parse_args(argv)
    try:
        where, devices = _where(options)
    except ValueError as error:
        parser.error(str(error))
    settle_process(where, devices)
    peaks = {
        dtype: flops.measure_peak(where, tf.as_dtype(dtype)) for dtype in options.dtypes
    }
    timed = prepare(options)
    seconds = measure(timed, options)
    print("\n".join(["", *report(timed, seconds, peaks, options.batch_size)]))
    for dtype, peak in peaks.items():
        print(f"{dtype}: {peak / 1e12:.1f} TFLOP/s measured")
    names = [f"{graph.dtype}, {graph.name}" for graph in timed]
    machine.write_results(
        options.json,
        vars(options),
        peaks=peaks,
        seconds_per_step=dict(zip(names, seconds)),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
