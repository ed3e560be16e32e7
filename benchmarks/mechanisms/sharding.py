"""Memory and time of a classifier of many classes that is spread over K devices.

    python -m benchmarks.mechanisms.sharding

Two models of 256 features and 100,000 classes, trained with momentum on logical CPU
devices: `classifier` is a dense layer alone, spread by classes; `tied` is a table that
is both the embedding and the classifier, as in a language model, spread by rows.

    MB held         variables and slots on the device that has most
    MB at peak      those plus the peak that a step allocates there
    peak ratio      MB at peak / that of the first K, which is 1 by default
    CPU time ratio  CPU time of the fastest of a few steps / that of the first K
    nodes           number of the graph's operations
"""

import collections
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

if __name__ == "__main__":
    from towers import start

    start.import_tensorflow()

import tensorflow as tf

from benchmarks.lib import machine, table
from benchmarks.lib.options import parser_for, positive, writable
from models import language
from models.inputs import Tokens
from models.model import Images, Model, Recipe, Schedule
from models.sequences import SequenceLayers
from towers import graph
from towers.data.source import Request
from towers.data.synthetic import SyntheticSource
from towers.layout import placement
from towers.layout.shards import Shards
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.optimizer import Update
from towers.pipelines import spans
from towers.session import loop, pipeline_report

v1 = tf.compat.v1

_SIDE = 16  # pixels; the 16 x 16 pixels of an image are the features


class ShardingResult(NamedTuple):
    """Measurements of one number of shards.

    Attributes:
      shards: how many.
      held: bytes of variables and slots on the device that has most.
      peak: bytes of those plus the peak of a step, on the device that has most.
      seconds: CPU time of a step.
      nodes: of the graph.
    """

    shards: int
    held: int
    peak: int
    seconds: float
    nodes: int


def head(classes: int) -> Model:
    """A dense classifier and nothing else."""

    def logits(x, nn):
        return nn.dense(nn.flatten(x), nn.num_classes)

    return Model(
        name="head",
        blocks=(("logits", logits),),
        inputs=Images(shape=(_SIDE, _SIDE, 1), num_classes=classes),
        recipe=Recipe(batch_size=1, schedule=Schedule(rates=(0.01,))),
    )


def tied(classes: int) -> Model:
    """A table that is both the embedding and the classifier."""
    shape = [classes, _SIDE * _SIDE]

    def embedding(x, nn):
        return nn.embedding(x, nn.shared("embedding/tokens", shape))

    def logits(x, nn):
        return nn.unembed(x, nn.shared("embedding/tokens", shape))

    return Model(
        name="tied",
        blocks=(("embedding", embedding), ("logits", logits)),
        inputs=Tokens(length=1, num_classes=classes),
        recipe=Recipe(batch_size=1, schedule=Schedule(rates=(0.01,))),
        loss=language.mean_cross_entropy,
        metrics=language.bits_per_token,
        layers=SequenceLayers,
    )


class Kind(NamedTuple):
    """A row of `KINDS`.

    Attributes:
      model: number of classes -> model.
      shape: of one example's features.
      kind: of the data, as `Request` has it.
      shards: number of devices -> what is spread over them.
    """

    model: Callable[[int], Model]
    shape: tuple[int, ...]
    kind: str
    shards: Callable[[int], Shards]


KINDS = {
    "classifier": Kind(
        head, (_SIDE, _SIDE, 1), "images", lambda count: Shards(classifier=count)
    ),
    "tied": Kind(tied, (1,), "tokens", lambda count: Shards(embeddings=count)),
}


class ShardedTraining:
    """A train graph of one tower and its session.

    Args:
      shards: devices of the tower.
      kind: a row of `KINDS`.
      classes: of the classifier.
      batch_size: examples of a step.
    """

    def __init__(self, shards: int, kind: str, *, classes: int, batch_size: int):
        self.shards = shards
        self.seconds = float("inf")
        where = placement.local(shards, kind="cpu", num_shards=shards)
        row = KINDS[kind]
        request = Request(shape=row.shape, num_classes=classes, kind=row.kind)
        self.train = graph.build(
            row.model(classes),
            SyntheticSource(request),
            Update("momentum", Piecewise((0.01,))),
            placement=where,
            options=graph.Options(
                batch_size=batch_size, shards=row.shards(shards) if shards > 1 else None
            ),
        )
        config = placement.session_config(where)
        self.session = v1.Session(graph=self.train.graph, config=config)
        loop.start(self.train, self.session, lambda session: None)
        self._step = self.session.make_callable(self.train.train_op)

    def step(self) -> None:
        """Takes a step; keeps the least CPU time of all steps in `seconds`."""
        begun = time.process_time()
        self._step()
        self.seconds = min(self.seconds, time.process_time() - begun)

    def found(self) -> ShardingResult:
        """The measurements, with one more step traced; closes the session."""
        held: dict[str, int] = collections.Counter()
        for variable in self.train.graph.get_collection("variables"):
            size = variable.shape.num_elements() * variable.dtype.size
            held[variable.device] += size
        metadata = v1.RunMetadata()
        self.session.run(
            self.train.train_op, options=spans.traced(), run_metadata=metadata
        )
        peaks = pipeline_report.peak_bytes(metadata)
        totals = [
            size + sum(n for name, n in peaks.items() if name.endswith(device))
            for device, size in held.items()
        ]
        nodes = len(self.train.graph.get_operations())
        self.session.close()
        return ShardingResult(
            self.shards, max(held.values()), max(totals), self.seconds, nodes
        )


def measure(
    shards: Sequence[int], kind: str, *, classes: int, batch_size: int, steps: int
) -> list[ShardingResult]:
    """Measures a row of `KINDS` with each number of shards, their steps in turn."""
    sizes = dict(classes=classes, batch_size=batch_size)
    subjects = [ShardedTraining(k, kind, **sizes) for k in shards]
    for _ in range(steps):
        for subject in subjects:
            subject.step()
    return [subject.found() for subject in subjects]


def report(results: Sequence[ShardingResult]) -> list[str]:
    """A table; ratios to the first."""
    rows = [
        [
            str(result.shards),
            f"{result.held / 1e6:.1f}",
            f"{result.peak / 1e6:.1f}",
            f"{result.peak / results[0].peak:.3f}",
            f"{result.seconds / results[0].seconds:.2f}",
            str(result.nodes),
        ]
        for result in results
    ]
    heads = ["K", "MB held", "MB at peak", "peak ratio", "CPU time ratio", "nodes"]
    return table.table_lines(heads, rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints a table."""
    parser = parser_for("mechanisms.sharding", __doc__)
    parser.add_argument("--shards", type=positive, nargs="+", default=[1, 2, 4])
    parser.add_argument("--classes", type=positive, default=100_000)
    parser.add_argument("--batch_size", type=positive, default=64)
    parser.add_argument("--steps", type=positive, default=5)
    parser.add_argument(
        "--json", type=writable, metavar="FILE", help="JSON file of all numbers"
    )
    options = parser.parse_args(argv)
    print(json.dumps(machine.facts()))
    numbers = {}
    for kind in KINDS:
        results = measure(
            options.shards,
            kind,
            classes=options.classes,
            batch_size=options.batch_size,
            steps=options.steps,
        )
        numbers[kind] = [result._asdict() for result in results]
        print("\n".join([kind, *report(results)]))
    if options.json:
        machine.write_json(options.json, numbers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
