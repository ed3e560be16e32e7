"""Speed of the reduction of gradients alone, beside a plain copy of memory.

    python -m benchmarks.reduce --models=alexnet,resnet50,vgg16 --out=/tmp/reduce

Each of K towers on logical CPU devices has a gradient of every variable of a model.
Every algorithm of `--all_reduce_spec` adds them, in turn with a copy by numpy from one
block of memory to another, in as many threads as there are cores.

A speed is (K + 1) x bytes of the model / time: every algorithm must read K gradients
and write one sum, and the copy reads and writes the same number of bytes in total.  An
algorithm that moves more has a lower speed.  Logical CPU devices share their memory, so
this measures arithmetic and memory traffic, not a network.

Prints GB/s (10^9 bytes) and the ratio to the copy's speed in wall-clock time, each as
median, minimum and maximum over the rounds, and the ratio in CPU seconds, which is more
reliable on a busy machine.  With --out=PREFIX, PREFIX.json gets `machine`, `versions`,
`arguments`, `runs` (every number) and `summary`, and PREFIX.png a picture.
"""

import argparse
import concurrent.futures
import dataclasses
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

import models
from benchmarks.lib import chart, machine, ratios, table
from benchmarks.lib.options import (
    above_0,
    parser_for,
    positive,
    positives,
    writable,
)
from flags import config
from towers import graph, planning
from towers.gradients import reduction, transfer
from towers.layout import placement

v1 = tf.compat.v1

COPY = "copy"


@dataclasses.dataclass(frozen=True)
class ReduceRun:
    """One measurement, as it stands in the JSON file.

    Attributes:
      round: counted from 1.
      model: its name.
      towers: how many.
      spec: an `--all_reduce_spec`, or `copy`.
      seconds: per reduction or copy, by the clock.
      cpu_seconds: per reduction or copy, of all threads.
      num_bytes: read and written, at least.
    """

    round: int
    model: str
    towers: int
    spec: str
    seconds: float
    cpu_seconds: float
    num_bytes: int

    @property
    def gb_per_second(self) -> float:
        """The speed, by the clock."""
        return self.num_bytes / self.seconds / 1e9


def shapes_of(name: str) -> list[tf.TensorShape]:
    """The shapes of a model's trainable variables, in order."""
    settings = config.make(
        model=name, data_name="synthetic", device="cpu", batch_size=1
    )
    plan = planning.make(settings, models.get)
    built = graph.build(**plan.parts)
    return [built.mode.variables[name].shape for name in built.template.trainable]


class Reductions:
    """K towers' gradients, and an operation per algorithm that adds them.

    Args:
      shapes: of the gradients.
      num_towers: how many towers.
      specs: the algorithms.
      wire: how tensors travel.
    """

    def __init__(
        self,
        shapes: Sequence[tf.TensorShape],
        num_towers: int,
        specs: Sequence[str],
        wire: transfer.Wire = transfer.WIDE,
    ):
        self._where = placement.local(num_towers, kind="cpu")
        self._specs, self._wire = specs, wire
        self._graph = tf.Graph()
        with self._graph.as_default():
            gradients = self._gradients(shapes)
            self._sums = {spec: self._reduce(gradients, spec) for spec in specs}
            self._steps = {
                spec: tf.group(*tf.nest.flatten(sums))
                for spec, sums in self._sums.items()
            }
            self._initializer = v1.global_variables_initializer()

    def _gradients(self, shapes) -> list[list[tf.Tensor]]:
        """[variables][towers]; all of tower k's are 2^k, so that no sum is rounded."""
        gradients = []
        for index, shape in enumerate(shapes):
            gradients.append([])
            for k, device in enumerate(self._where.towers):
                with tf.device(device):
                    held = v1.get_variable(
                        f"gradient_{index}_of_tower_{k}",
                        shape,
                        initializer=v1.constant_initializer(2.0**k),
                        use_resource=True,
                    )
                    gradients[-1].append(held.read_value())
        return gradients

    def _reduce(self, gradients, spec: str) -> list[list[tf.Tensor]]:
        reduce = reduction.from_spec(spec, self._where.hosts, self._wire)
        towers = [self._where.towers] * len(gradients)
        return reduction.each(reduce)(gradients, towers)

    def start(self) -> v1.Session:
        """A session with the gradients in it."""
        session = v1.Session(
            graph=self._graph, config=placement.session_config(self._where)
        )
        session.run(self._initializer)
        return session

    def step(self, session: v1.Session, spec: str) -> Callable[[], None]:
        """A function that reduces all gradients once; its sums are checked first.

        Raises:
          AssertionError: a sum is wrong.
        """
        with self._graph.as_default():
            corners = [
                tf.reshape(copy, [-1])[-1]
                for sums in (self._sums[spec][0], self._sums[spec][-1])
                for copy in sums
            ]
        wanted = 2.0 ** len(self._where.towers) - 1
        totals = session.run(corners)
        assert totals == [wanted] * len(corners), (spec, totals)
        return session.make_callable(self._steps[spec])


class MemoryCopy:
    """A plain copy of memory by all threads.

    Args:
      num_bytes: to move: half of them are read, half are written.
      block: bytes of the memory that is copied, over and over if it is less.
    """

    def __init__(self, num_bytes: int, block: int):
        self._threads = len(os.sched_getaffinity(0))
        self._size = max(1, min(block, num_bytes // 2) // 4)
        self._from = np.ones(self._size, np.float32)
        self._to = np.zeros(self._size, np.float32)
        self._times, self._rest = divmod(num_bytes // 8, self._size)
        self._pool = concurrent.futures.ThreadPoolExecutor(self._threads)

    def __call__(self) -> None:
        """Copies."""
        list(self._pool.map(self._part, range(self._threads)))

    def _part(self, index: int) -> None:
        """A thread's share of every pass over the block."""
        for size in [*[self._size] * self._times, self._rest]:
            part = slice(
                size * index // self._threads, size * (index + 1) // self._threads
            )
            np.copyto(self._to[part], self._from[part])


def measure(options: argparse.Namespace) -> Iterator[ReduceRun]:
    """Measures every model, number of towers, round and algorithm; prints progress."""
    for model in options.models:
        shapes = shapes_of(model)
        size = 4 * sum(shape.num_elements() for shape in shapes)
        for towers in options.towers:
            reductions = Reductions(
                shapes, towers, options.specs, transfer.Wire(options.dtype)
            )
            num_bytes = (towers + 1) * size
            with reductions.start() as session:
                steps = {COPY: MemoryCopy(num_bytes, size)}
                steps |= {
                    spec: reductions.step(session, spec) for spec in options.specs
                }
                for step in steps.values():
                    step()
                for number in range(1, options.rounds + 1):
                    print(f"[{number}/{options.rounds}] {model} x {towers}", flush=True)
                    for spec, step in steps.items():
                        clock, cpu = _seconds(step, options.seconds)
                        yield ReduceRun(
                            number, model, towers, spec, clock, cpu, num_bytes
                        )


def _seconds(step: Callable[[], None], at_least: float) -> tuple[float, float]:
    """(seconds, CPU seconds) per call, over calls that together take `at_least` s."""
    times, begun, cpu = 0, time.perf_counter(), time.process_time()
    while not times or time.perf_counter() - begun < at_least:
        step()
        times += 1
    return (
        (time.perf_counter() - begun) / times,
        (time.process_time() - cpu) / times,
    )


class ReduceResults:
    """Speeds, and speeds over the copy's of the same round.

    Attributes:
      runs: all measurements.
      cases: (model, number of towers), in order.
      specs: the algorithms and the copy, in order.
    """

    def __init__(self, runs: Sequence[ReduceRun]):
        self.runs = runs
        self.cases = list(dict.fromkeys((run.model, run.towers) for run in runs))
        self.specs = list(dict.fromkeys(run.spec for run in runs))

    def of(self, case: tuple[str, int], spec: str) -> list[ReduceRun]:
        """The runs of one algorithm on one case, by round."""
        return [r for r in self.runs if (r.model, r.towers, r.spec) == (*case, spec)]

    def speed(self, case: tuple[str, int], spec: str) -> ratios.Spread:
        """GB/s."""
        return ratios.spread(run.gb_per_second for run in self.of(case, spec))

    def against_copy(
        self, case: tuple[str, int], spec: str, *, cpu: bool = False
    ) -> ratios.Spread:
        """Time of the copy / time of the algorithm, in each round."""

        def times(name: str) -> list[float]:
            return [r.cpu_seconds if cpu else r.seconds for r in self.of(case, name)]

        return ratios.spread(ratios.paired(times(COPY), times(spec)))

    def tables(self) -> list[str]:
        """A row per case and algorithm."""
        rows = [
            [
                f"{case[0]} x {case[1]}",
                spec,
                str(self.speed(case, spec)),
                str(self.against_copy(case, spec)),
                str(self.against_copy(case, spec, cpu=True)),
            ]
            for case in self.cases
            for spec in self.specs
        ]
        title = ["model x towers", "", "GB/s", "over the copy", "in CPU seconds"]
        return table.table_lines(title, rows)

    def summary(self) -> list[dict]:
        """The spreads as they go into the JSON file."""
        return [
            {
                "model": case[0],
                "towers": case[1],
                "spec": spec,
                "gb_per_second": self.speed(case, spec)._asdict(),
                "over_copy": self.against_copy(case, spec)._asdict(),
                "over_copy_cpu": self.against_copy(case, spec, cpu=True)._asdict(),
            }
            for case in self.cases
            for spec in self.specs
        ]

    def draw(self, path: str) -> str | None:
        """Draws the ratios to the copy's speed as bars; returns why not, or None."""
        if chart.Figure is None:
            return chart.MISSING
        figure = chart.Figure(
            figsize=(2 + 1.2 * len(self.cases), 4.5), layout="constrained"
        )
        axes = figure.add_subplot()
        specs = [spec for spec in self.specs if spec != COPY]
        width = 0.8 / len(specs)
        for index, spec in enumerate(specs):
            shift = (index - (len(specs) - 1) / 2) * width
            spreads = [self.against_copy(case, spec) for case in self.cases]
            axes.bar(
                [place + shift for place in range(len(spreads))],
                [s.median for s in spreads],
                width,
                yerr=[
                    [s.median - s.least for s in spreads],
                    [s.most - s.median for s in spreads],
                ],
                capsize=2,
                label=spec,
            )
        axes.axhline(1.0, color="black", linewidth=0.8)
        names = [f"{model}\n{towers} towers" for model, towers in self.cases]
        axes.set_xticks(range(len(names)), names, fontsize="small")
        axes.set_ylabel("speed / that of a plain copy")
        axes.legend(fontsize="small")
        figure.savefig(path, dpi=120)
        return None


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line; exits with status 2 when something is wrong with it."""
    parser = parser_for("reduce", __doc__)
    parser.add_argument(
        "--models", default="alexnet,resnet50,vgg16", help="%(default)s"
    )
    parser.add_argument(
        "--towers",
        type=positives,
        default="2,4,8",
        help="numbers of towers (%(default)s)",
    )
    parser.add_argument(
        "--specs", default=",".join(reduction.usable("cpu")), help="%(default)s"
    )
    parser.add_argument(
        "--dtype",
        default="float32",
        choices=("float32", "bfloat16", "float16"),
        help="dtype in which tensors are sent",
    )
    parser.add_argument("--rounds", type=positive, default=9)
    parser.add_argument(
        "--seconds",
        type=above_0,
        default=0.3,
        help="seconds of each measurement (%(default)s)",
    )
    parser.add_argument(
        "--out",
        type=writable,
        metavar="PREFIX",
        help="begins the names of the .json and .png files",
    )
    options = parser.parse_args(argv)
    options.models = options.models.split(",")
    options.specs = options.specs.split(",")
    try:
        for model in options.models:
            models.get(model)
        for spec in options.specs:
            reduction.check(spec, kind="cpu", hosts=[""])
    except ValueError as error:
        parser.error(str(error))
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit status."""
    options = parse(argv)
    results = ReduceResults(list(measure(options)))
    print("\n".join(["", *results.tables()]))
    if options.out:
        machine.write_results(
            options.out + ".json",
            vars(options),
            runs=[dataclasses.asdict(run) for run in results.runs],
            summary=results.summary(),
        )
        path = options.out + ".png"
        print(results.draw(path) or f"Wrote {options.out}.json, {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
