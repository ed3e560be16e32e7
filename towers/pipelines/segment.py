"""Segments: consecutive blocks of a model, traced to a forward and a backward piece.

Tracing runs the Python of a segment's blocks once, on placeholders, in a separate
graph.  That graph is cut into two pieces, the forward and the backward operations.  The
backward piece reads the activations that the gradients need (`saved`), or, with
recomputation, only the segment's inputs; it then has the forward operations, too.

Pieces are connected by the named values of a micro-batch:

| name                     | is                                                      |
|--------------------------|---------------------------------------------------------|
| `features`, `labels`     | the batch, as `tower.trace` has it; and `weights`,      |
|                          | `total_weight`, `first`, `loss_scale`, `progress`       |
| `read/<variable>`        | a variable's value                                      |
| `x<n>/<i>`, `dx<n>/<i>`  | the i-th tensor that enters segment n; its gradient     |
| `saved<n>/<tensor>`      | an activation of segment n                              |
| `sent<n>/<name>`,        | what a batch sends and receives in segment n, if batch  |
| `joined<n>/<name>`       | norm is synchronized                                    |
| `carried<n>/<tensor>`    | a value between two legs of segment n's gradients       |
| `share/<metric>`         | the batch's share of the loss or a metric               |
| `statistic<n>/<i>`       | a batch statistic of segment n                          |
| `grad<n>/<variable>/<i>` | the gradient of a variable: one tensor, or the two      |
|                          | (values, indices) of an `IndexedSlices`                 |
"""

import dataclasses
import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from towers.compute import (
    classifier,
    deterministic_sum,
    flops,
    measures,
    model_checks,
    summaries,
)
from towers.compute import tower as tower_lib
from towers.compute.summaries import Made
from towers.compute.sync_batch_norm import StatisticsExchanges
from towers.compute.tower import StatisticRule
from towers.compute.tower_spec import TowerSpec, new_layers, running
from towers.compute.traced import TracedGraph
from towers.compute.variable_getter import KnownVariable, VariablePlaceholders
from towers.data import nests
from towers.pipelines import chain, segment_gradients
from towers.pipelines.chain import Blocks
from towers.pipelines.piece import (
    Barrier,
    BatchNormExchange,
    Subgraph,
    SubgraphCutter,
)

v1 = tf.compat.v1


class MicroBatchSpec(NamedTuple):
    """Nests of `tf.TensorSpec`s [micro-batch, ...]."""

    features: Any
    labels: Any

    @classmethod
    def of(cls, features: Any, labels: Any, count: int) -> "MicroBatchSpec":
        """The specs of `count` micro-batches of a batch, from those of the batch."""
        return cls(nests.piece(features, count), nests.piece(labels, count))


@dataclasses.dataclass(frozen=True)
class Segment:
    """A traced segment.

    Attributes:
      number: index in the model.
      blocks: names of its blocks.
      recomputed: whether its backward piece recomputes its activations.
      forward: its forward operations.
      backward: its backward operations; None if there is nothing to differentiate.
      reads: name of each variable that it reads -> the dtype in which it is read.
      trainable: names of its trainable variables.
      shapes: of the trainable variables.
      statistics: rules of the `statistic<n>/<i>`, in order.
      flops: floating point operations of one run, without recomputation.
      summaries: of the blocks.
      predictions: of the last segment, as `tower.Template` has it.
      owners: parts, of all segments, that are used on their own devices, by the numbers
        of `placeholders.owner`.
    """

    number: int
    blocks: tuple[str, ...]
    recomputed: bool
    forward: Subgraph
    backward: Subgraph | None
    reads: dict[str, tf.DType]
    trainable: tuple[str, ...]
    shapes: dict[str, tf.TensorShape]
    statistics: tuple[StatisticRule, ...]
    flops: int
    owners: tuple[str, ...]
    summaries: tuple[Made, ...]
    predictions: Any


def trace(
    task: TowerSpec,
    groups: Sequence[Blocks],
    batch: MicroBatchSpec,
    *,
    create: Callable[..., Any],
    recomputed: Collection[int] = (),
) -> list[Segment]:
    """Traces a model's blocks in segments.

    Args:
      task: what to compute.
      groups: [segments][blocks], the model's blocks in order.
      batch: of one micro-batch.
      create: creates a variable, as in `tower.trace`; also gets `segment`, the index of
        the first segment that reads it.
      recomputed: indices of the segments whose activations are recomputed.

    Raises:
      ValueError: as in `tower.trace`.
    """
    opened: list[_Open] = []
    splits = tower_lib.splits(task, batch.features)
    owners: list[str] = []
    variables: dict[str, KnownVariable] = {}
    for number, blocks in enumerate(groups):
        opened.append(
            _Open(
                task,
                number,
                blocks,
                batch=batch,
                before=opened[-1] if opened else None,
                variables=VariablePlaceholders(
                    _for_segment(create, number),
                    splits,
                    owners,
                    variables,
                    first=task.training,
                    trainable=task.trainable,
                ),
            )
        )
    opened[-1].variables.check_trained()
    opened[-1].end(task)
    for open_segment in opened:
        model_checks.check_losses(open_segment.graph, open_segment.ys)
    segments = []
    wanted: list[bool] = []
    for number in reversed(range(len(opened))):
        segment = opened[number]
        derivatives = segment.differentiate(wanted) if task.training else {}
        segments.append(segment.close(derivatives, recomputed=number in recomputed))
        wanted = [f"dx{number}/{i}" in derivatives for i in range(len(segment.xs))]
    return segments[::-1]


def _for_segment(create: Callable[..., Any], number: int) -> Callable[..., Any]:
    return functools.partial(create, segment=number)


class _Open:
    """A segment that is being traced."""

    def __init__(
        self,
        task: TowerSpec,
        number: int,
        blocks: Blocks,
        *,
        batch: MicroBatchSpec,
        before: "_Open | None",
        variables: VariablePlaceholders,
    ):
        self.number = number
        self.blocks = blocks
        self.variables: VariablePlaceholders = variables
        self.trained_before: bool = before is not None and (
            before.trained_before or bool(before.variables.trainable)
        )
        self.graph = TracedGraph(variables)
        self.shares: dict[str, tf.Tensor] = {}
        self.predictions: Any = ()
        if before:
            chain.hand_on(before.graph, self.graph)
        with self.graph.as_default():
            self._batch = nests.batch_placeholders(*batch)
            self.given = nests.flat(self._batch)
            scale = v1.placeholder(tf.float32, [], "loss_scale")
            self.given["loss_scale"] = scale
            self._sent = StatisticsExchanges()
            self._nn = new_layers(task, self._batch, variables, self._sent)
            x = self._x(task, before)
            with running(task, variables):
                part = dataclasses.replace(task.model, blocks=chain.guarded(blocks))
                self.outputs = part.run(x, self._nn)
            self.ys = tf.nest.flatten(self.outputs)
            model_checks.check(self.graph)
            model_checks.check_devices(self.graph)

    def _x(self, task: TowerSpec, before: "_Open | None") -> Any:
        """The input of the segment's first block."""
        if before is None:
            self.xs = []
            return task.model.inputs.prepare(self._batch["features"], self._nn)
        self.xs = [
            v1.placeholder(y.dtype, y.shape, f"x{i}") for i, y in enumerate(before.ys)
        ]
        self.given |= {f"x{self.number}/{i}": x for i, x in enumerate(self.xs)}
        return tf.nest.pack_sequence_as(before.outputs, self.xs)

    def end(self, task: TowerSpec) -> None:
        """Adds the loss and the metrics after the model's last block."""
        with self.graph.as_default():
            parts = self.variables.parts
            outputs = classifier.shard_logits(
                self.outputs, self._nn, parts, task.shards
            )
            with chain.guard(f"the loss or a metric of model {task.model.name!r}"):
                shares, names = measures.measured(task, outputs, self._batch)
            model_checks.check(self.graph)
            model_checks.check_devices(self.graph)
        self.predictions = names
        self.shares = {f"share/{name}": share for name, share in shares.items()}
        self.start = [self.given["loss_scale"]] if task.loss_scaled else None

    def differentiate(self, wanted: Sequence[bool]) -> dict[str, tf.Tensor]:
        """Adds the gradients.

        Args:
          wanted: for each output, whether the next segment gives its gradient.
        """
        with self.graph.as_default():
            if self.shares:
                targets, upstream = [self.shares["share/loss"]], self.start
            else:
                targets = [y for y, needed in zip(self.ys, wanted) if needed]
                upstream = []
                for i, needed in enumerate(wanted):
                    if needed:
                        name, y = f"dx{self.number + 1}/{i}", self.ys[i]
                        self.given[name] = v1.placeholder(y.dtype, y.shape, f"dy{i}")
                        upstream.append(self.given[name])
            by = {
                f"dx{self.number}/{i}": x
                for i, x in enumerate(self.xs)
                if self.trained_before and (x.dtype.is_floating or x.dtype.is_complex)
            }
            by |= {
                f"grad{self.number}/{name}": read
                for name, read in self.variables.trainable.items()
            }
            derivatives = (
                deterministic_sum.differentiate(targets, list(by.values()), upstream)
                if targets and by
                else []
            )
            return segment_gradients.named(dict(zip(by, derivatives)), by)

    def close(self, gradients: dict[str, tf.Tensor], *, recomputed: bool) -> Segment:
        """Cuts the graph into the segment's pieces."""
        number = self.number
        outputs = self._outputs()
        reads = {f"read/{n}": read for n, read in self.variables.reads.items()}
        fixed = self.given | reads
        cutter = SubgraphCutter(self.graph, self.given.values(), self._exchanges())
        ahead = cutter.needed(outputs.values())
        received = {exchange.value: exchange.received for exchange in ahead.met}
        saved: dict[str, tf.Tensor] = {}
        backward, used, work = None, set(), ahead.operations
        if gradients:
            available = fixed | received
            stop = set() if recomputed else ahead.operations & cutter.varying
            needed = cutter.needed(gradients.values(), available, stop)
            saved = {f"saved{number}/{t.name}": t for t in needed.cut}
            backward = cutter.piece(
                gradients, available | saved, stop=stop, carried=f"carried{number}"
            )
            used, work = set(backward.inputs), work | needed.operations
        forward = cutter.piece(outputs | saved, fixed, carried=f"saved{number}")
        used |= forward.inputs.keys()
        return Segment(
            number=number,
            blocks=tuple(name for name, _ in self.blocks),
            recomputed=recomputed,
            forward=forward,
            backward=backward,
            reads={
                name: read.dtype
                for name, read in self.variables.reads.items()
                if f"read/{name}" in used
            },
            trainable=tuple(self.variables.trainable),
            shapes={n: read.shape for n, read in self.variables.trainable.items()},
            statistics=tuple(
                StatisticRule.of(statistic) for statistic in self._nn.statistics
            ),
            flops=flops.of_operations(work),
            owners=tuple(self.variables.owners),
            summaries=summaries.collect(self.graph),
            predictions=self.predictions,
        )

    def _outputs(self) -> dict[str, tf.Tensor]:
        """The outputs of the forward piece, by the names of their values."""
        outputs = {f"x{self.number + 1}/{i}": y for i, y in enumerate(self.ys)}
        if self.shares:
            outputs = dict(self.shares)
        return outputs | {
            f"statistic{self.number}/{i}": statistic.value
            for i, statistic in enumerate(self._nn.statistics)
        }

    def _exchanges(self) -> list[BatchNormExchange]:
        """The exchanges of synchronized batch norm."""
        return [
            BatchNormExchange(
                f"joined{self.number}/{name}",
                self.graph.get_tensor_by_name(f"{name}:0"),
                sent.tensor,
                Barrier(
                    f"sent{self.number}/{name}",
                    tf.TensorSpec.from_tensor(sent.tensor),
                    sent.join,
                ),
            )
            for name, sent in self._sent.sent.items()
        ]
