"""Pipelines: their speed-up, schedules, balance, memory and graph.

    python -m benchmarks.pipelines compute    # two stages on two cores against one core
    python -m benchmarks.pipelines schedules  # each schedule, on stages that wait
    python -m benchmarks.pipelines balance    # blocks timed, against equal numbers
    python -m benchmarks.pipelines memory     # the largest transformer that fits
    python -m benchmarks.pipelines build      # graph and first step of many stages

`compute` alternates between the two, so that other load on the machine slows both.
`schedules` is explained in `benchmarks.lib.waiting_stages`.

`memory` finds the largest model whose estimate (`pipelines.recompute`) stays within the
limit, and then runs it.  The peak of a run is the bytes of the variables on a stage's
logical device, plus the most that TensorFlow had allocated there at a time during a
step.  Where not even one layer per stage fits, the row has the estimate for one per
stage, and nothing is run.  The column `ratio` is the number of layers over that of the
first row; beside it stands the same ratio of GPipe's transformer (Huang et al. 2019,
table 1): 3 layers on one device without GPipe, 13 with it, by recomputation and
micro-batches, and 103 on 8 devices.
"""

import argparse
import dataclasses
import functools
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

if __name__ == "__main__":
    from towers import start

    start.import_tensorflow()

import tensorflow as tf

import models
from benchmarks.lib import machine, table, waiting_stages
from benchmarks.lib.options import above_0, parser_for, positive, positives
from flags import config
from models.inputs import Tokens
from models.transformer_lm import TransformerSize, chain
from towers import graph, planning
from towers.cluster import sessions
from towers.compute import tower
from towers.data import nests
from towers.errors import collected
from towers.layout import partition, placement, schedule
from towers.layout.stages import Pipeline
from towers.pipelines import costs, recompute, segment, spans
from towers.session import loop, pipeline_report

v1 = tf.compat.v1

_CLASSES = 256


def transformer(layers: int, *, units: int = 64, length: int = 64) -> models.Model:
    """A decoder without dropout.

    Args:
      layers: how many.
      units: of each; one head per 32.
      length: tokens.
    """
    size = TransformerSize(layers, units, max(1, units // 32), length, dropout=0.0)
    return dataclasses.replace(
        models.get("transformer_lm"),
        name=f"transformer of {layers} layers",
        blocks=chain(size),
        inputs=Tokens(length=length, num_classes=_CLASSES),
        num_parameters=0,
    )


def build(
    model: models.Model, how: Pipeline | None, *, towers: int = 1, **settings: int
) -> graph.TrainGraph:
    """A train graph on synthetic data and logical CPU devices.

    Args:
      model: of any size.
      how: its pipeline; None for whole towers.
      towers: how many.
      **settings: more; `batch_size` is per tower, and `num_intra_threads` counts only
        of a process's first graph.
    """
    stages = how.stages if how else 1
    wanted = config.make(
        model=model.name,
        data_name="synthetic",
        device="cpu",
        num_gpus=towers * stages,
        num_stages=stages,
        variable_update="replicated",
        optimizer="sgd",
        init_learning_rate=0.01,
        **settings,
    )
    sessions.settle_process(planning.placement_of(wanted), wanted.devices)
    plan = planning.make(wanted, lambda name: model)
    return graph.build(
        model,
        plan.source,
        plan.update,
        placement=plan.placement,
        options=dataclasses.replace(plan.options, pipeline=how),
    )


class Running:
    """A train graph and a started session with its own threads.

    Args:
      train: the graph.
      threads: number that operations run on; 0 for the default.
    """

    def __init__(self, train: graph.TrainGraph, threads: int = 0):
        session_config = placement.session_config(
            train.placement, inter_threads=threads
        )
        session_config.use_per_session_threads = True
        self._train = train
        self.session = v1.Session(graph=train.graph, config=session_config)
        loop.start(train, self.session, lambda session: None)
        self._step = self.session.make_callable(train.train_op)

    def seconds(self) -> float:
        """Takes a step; returns how long it took."""
        begun = time.perf_counter()
        self._step()
        return time.perf_counter() - begun

    def peaks(self) -> dict[str, int]:
        """Device -> bytes of its variables plus the peak that a step allocates."""
        metadata = v1.RunMetadata()
        self.session.run(
            self._train.train_op, options=spans.traced(), run_metadata=metadata
        )
        taken = pipeline_report.peak_bytes(metadata)
        with self._train.graph.as_default():
            variables = v1.global_variables()
        device_bytes = {}
        for device in self._train.placement.devices:
            device_variables = (v for v in variables if v.device == device)
            held = sum(v.shape.num_elements() * v.dtype.size for v in device_variables)
            peaks = (
                n for name, n in taken.items() if placement.is_called(device, name)
            )
            device_bytes[device] = held + max(peaks, default=0)
        return device_bytes


def equal(model: models.Model, how: Pipeline) -> Pipeline:
    """The pipeline, cut into pieces of equally many blocks."""
    pieces = how.stages * how.chunks
    cut = partition.balanced([1.0] * len(model.blocks), pieces)
    return dataclasses.replace(how, cut=cut)


def compute(options: argparse.Namespace) -> list[str]:
    """Two stages of one thread each against one device of one thread."""
    _check_batch(options.batch_size, Pipeline(2, options.micro_batches))
    model = transformer(options.layers, units=options.units)
    flops = costs.flops(_work(model, options.batch_size // options.micro_batches))
    how = Pipeline(2, options.micro_batches, cut=partition.balanced(flops, 2))
    settings = {"batch_size": options.batch_size, "num_intra_threads": 1}
    alone = Running(build(model, None, **settings), 1)
    pipelined = Running(build(model, how, **settings), 2)
    for each in (alone, pipelined):
        each.seconds()
    times = [(alone.seconds(), pipelined.seconds()) for _ in range(options.steps)]
    ones, twos = zip(*times)
    ideal = 2 * schedule.busy_share(2, options.micro_batches)
    ideal /= partition.imbalance(flops, how.cut)
    best, middle = (reduce(ones) / reduce(twos) for reduce in (min, statistics.median))
    return [
        f"one device {min(ones):.3f} s, two stages {min(twos):.3f} s (best of "
        f"{options.steps}); cut {how.cut}",
        f"speed-up {best:.2f} (of medians {middle:.2f}), {best / ideal:.3f} of the "
        f"ideal {ideal:.2f}",
    ]


def _work(model: models.Model, size: int, kind: str = "cpu") -> costs.TowerToCut:
    wanted = model.inputs
    batch = nests.batch_of((wanted.features, wanted.labels), size)
    task = tower.TowerSpec(model=model, num_classes=wanted.num_classes)
    where = placement.local(1, kind=kind)
    return costs.TowerToCut(task, segment.MicroBatchSpec(*batch), where)


def balance(options: argparse.Namespace) -> list[str]:
    """Imbalance of stages with equal numbers of blocks, and with equal times."""
    rows = []
    for name in options.models.split(","):
        model = models.get(name)
        if model.inputs.kind == "pairs":
            raise ValueError(f"--models={name}: reads pairs; name models of other data")
        seconds = costs.measure(_work(model, options.batch_size))
        for stages in (k for k in (2, 4, 8) if k <= len(seconds)):
            cuts = (
                partition.balanced([1.0] * len(seconds), stages),
                partition.balanced(seconds, stages),
            )
            before, after = (partition.imbalance(seconds, cut) for cut in cuts)
            rows.append([f"{name} K={stages}", f"{before:.2f}", f"{after:.2f}"])
    return table.table_lines(["busiest stage / mean", "equal numbers", "time"], rows)


class PipelineMeasurement(NamedTuple):
    """A row of `WAYS`.

    Attributes:
      how: the pipeline.
      gpipe: layers of the transformer that fits so by GPipe's table 1; 0: not in it.
    """

    how: Pipeline
    gpipe: int = 0


# Name -> how a model is made to fit.  Ratios are to the first row.
WAYS: dict[str, PipelineMeasurement] = {
    "nothing": PipelineMeasurement(Pipeline(1, 1), gpipe=3),
    "recompute": PipelineMeasurement(Pipeline(1, 1, recompute="block")),
    "recompute, M=8": PipelineMeasurement(Pipeline(1, 8, recompute="block"), gpipe=13),
    "K=2": PipelineMeasurement(Pipeline(2, 8)),
    "K=4": PipelineMeasurement(Pipeline(4, 8)),
    "K=4 + recompute": PipelineMeasurement(Pipeline(4, 8, recompute="block")),
    "K=8 + recompute": PipelineMeasurement(
        Pipeline(8, 8, recompute="block"), gpipe=103
    ),
}


class Largest(NamedTuple):
    """The largest model that fits."""

    layers: int  # 0: not one in each stage
    estimate: int  # bytes of the stage that needs most; if 0, of one layer in each


def largest(how: Pipeline, limit: int, batch_size: int) -> Largest:
    """The most layers that stay within a limit, by estimate.

    Args:
      how: the pipeline, to be cut into equal pieces.
      limit: bytes of each device.
      batch_size: of the tower.
    """
    needed, step = functools.partial(_needed, how, batch_size), how.stages
    few, more = needed(2 * step), needed(3 * step)
    layers = step * max(1, 2 + int((limit - few) / max(1, more - few)))
    while layers > step and needed(layers) > limit:
        layers -= step
    while needed(layers + step) <= limit:
        layers += step
    fits = needed(layers) <= limit
    return Largest(layers if fits else 0, needed(layers))


@functools.cache
def _needed(how: Pipeline, batch_size: int, layers: int) -> int:
    """Bytes of the stage that needs most."""
    model = transformer(layers)
    work = _work(model, batch_size)
    task = dataclasses.replace(work.task, pipeline=equal(model, how))
    return max(recompute.estimate(task, *work.batch, slots=0))


def memory(options: argparse.Namespace) -> list[str]:
    """The largest transformer by plan, and the peak of a run of it."""
    _check_batch(options.batch_size, *(way.how for way in WAYS.values()))
    limit, rows, first = options.megabytes * 10**6, [], None
    base = next(iter(WAYS.values())).gpipe
    for words, (how, gpipe) in WAYS.items():
        biggest = largest(how, limit, options.batch_size)
        first = first or biggest
        ratio = f"{biggest.layers / first.layers:.1f}" if first.layers else "-"
        cells = [str(biggest.layers), ratio, f"{gpipe / base:.1f}" if gpipe else "-"]
        rows.append([words, *cells, *_run(how, biggest, options.batch_size)])
    heading = [f"{options.megabytes} MB per device", "layers", "ratio", "GPipe's"]
    heading += ["M parameters", "MB by plan", "peak MB of a run", "error"]
    return table.table_lines(heading, rows)


def _run(how: Pipeline, biggest: Largest, batch_size: int) -> list[str]:
    """A row's cells about memory: by estimate, and in a run if the model fits."""
    if not biggest.layers:
        return ["-", f"{biggest.estimate / 1e6:.1f} for {how.stages}", "-", "-"]
    model = transformer(biggest.layers)
    train = build(model, equal(model, how), batch_size=batch_size)
    running = Running(train)
    running.seconds()
    peak = max(running.peaks().values())
    running.session.close()
    return [
        f"{train.template.parameters / 1e6:.2f}",
        f"{biggest.estimate / 1e6:.1f}",
        f"{peak / 1e6:.1f}",
        f"{biggest.estimate / peak - 1:+.0%}",
    ]


def _check_batch(size: int, *hows: Pipeline) -> None:
    """Refuses a batch that is no whole number of micro-batches."""
    for how in hows:
        if size % how.micro_batches:
            raise ValueError(
                f"--batch_size={size}: is not a multiple of {how.micro_batches} "
                "micro-batches"
            )


def building(options: argparse.Namespace) -> list[str]:
    """Graph build and first step of many stages, micro-batches and towers."""
    model = transformer(14, units=32, length=16)
    if options.stages > len(model.blocks):
        raise ValueError(
            f"--stages={options.stages}: the transformer is a chain of "
            f"{len(model.blocks)} blocks; write that or fewer"
        )
    how = equal(model, Pipeline(options.stages, options.micro_batches))
    begun, used = time.perf_counter(), time.process_time()
    train = build(model, how, batch_size=options.micro_batches, towers=options.towers)
    built = time.perf_counter()
    first = Running(train).seconds()
    ended = time.perf_counter()
    return [
        f"K = {how.stages}, M = {how.micro_batches}, N = {options.towers}: "
        f"{len(train.graph.get_operations())} nodes; build {built - begun:.1f} s, "
        f"session, initial values and first step {ended - built:.1f} s (the step "
        f"{first:.1f} s); {time.process_time() - used:.1f} CPU s in all"
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit status."""
    parser = parser_for("pipelines", __doc__)
    what = parser.add_subparsers(required=True, metavar="WHAT")
    for name, act, settings in _WHAT:
        subparser = what.add_parser(name, help=act.__doc__.splitlines()[0])
        subparser.set_defaults(act=act)
        for flag, default in settings.items():
            kind = _TYPES[type(default)]
            subparser.add_argument(f"--{flag}", type=kind, default=default)
    options = parser.parse_args(argv)
    print(json.dumps(machine.facts()), flush=True)
    try:
        lines = options.act(options)
    except ValueError as error:  # settings that do not go together
        parser.error("\n".join(collected.sentences(error)))
    print("\n".join(lines))
    return 0


_TYPES = {int: positive, float: above_0, list: positives, str: str}
_WHAT: tuple[tuple[str, Callable[..., list[str]], dict[str, Any]], ...] = (
    (
        "compute",
        compute,
        {"layers": 6, "units": 256, "batch_size": 32, "micro_batches": 8, "steps": 20},
    ),
    (
        "schedules",
        waiting_stages.schedules,
        {
            "stages": [2, 4, 8],
            "micro_batches": [1, 2, 4, 8, 16, 32],
            "wait_ms": 10.0,
            "steps": 3,
        },
    ),
    ("balance", balance, {"models": "resnet110,vgg16", "batch_size": 2}),
    ("memory", memory, {"megabytes": 12, "batch_size": 8}),
    ("build", building, {"stages": 8, "micro_batches": 32, "towers": 4}),
)


if __name__ == "__main__":
    sys.exit(main())
