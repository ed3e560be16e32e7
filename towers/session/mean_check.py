"""Checks that a mode takes the mean: for `--check_mean`, and in every case of `verify`.

    mean_check.check(options, placement, config, Local())

A small graph, built with the run's placement, mode, reduction, stages and compiler, has
variables whose gradient is 1 in every example, whatever their values.  With the mean,
an update at rate 1 changes every copy by exactly -1; with the sum over N towers, by -N;
any other change means that a tower or micro-batch is missing.

With synchronized batch norm, the loss also has a mean over the towers as a factor.  One
variable is that of a dense layer, whose gradient may be sent as factors.  With a
sharded classifier, the loss is its cross-entropy; all classes are equally likely before
the first step, so its gradients are known exactly.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from flags.problem import Problem, SettingError, mention
from models.inputs import Pairs
from models.layers import Layers
from models.logits import Product
from models.model import Block, Model, Recipe, Schedule
from towers import graph
from towers.cluster.sessions import Sessions
from towers.data.source import Batch, ClientShare, Feed, Groups, sizes_of
from towers.gradients import reduction
from towers.gradients.exchange import GradientExchange
from towers.layout import parts
from towers.layout.parts import Split
from towers.layout.placement import Placement
from towers.layout.shards import Shards
from towers.layout.stages import Pipeline
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.loss_scale import DEFAULT_SCALE
from towers.optimizers.optimizer import Update
from towers.session import loop
from towers.variable_update import between_graph
from towers.variable_update.base import VariableUpdate
from towers.variable_update.modes import VARIABLE_UPDATES

v1 = tf.compat.v1

_LARGEST = 2**22  # most bytes of a variable; larger ones would take too long
_EXAMPLES = 256  # of all towers; their shares are exact in 16 bits
_ELEMENTS = 29  # a prime, so that shards and packs have uneven sizes
_WIDTH = 256  # of a dense layer that is large enough for factors
_ROWS = "probe/rows"  # the variable with sparse gradients
_KERNEL, _BIAS = "probe/kernel", "probe/bias"  # of the sharded classifier
_GRID = 64.0  # means are rounded to multiples of 1 / 64, as sums of thirds are inexact


class NotTheMeanError(SettingError):
    """The mode does not take the mean of gradients."""


def check(
    options: graph.Options,
    placement: Placement,
    config: v1.ConfigProto,
    sessions: Sessions,
    *,
    modes: Mapping[str, type[VariableUpdate]] = VARIABLE_UPDATES,
) -> None:
    """Trains a step or two of the graph of `build`, and compares the variables.

    Args:
      options: of the run.
      placement: of the run.
      config: of the run's sessions.
      sessions: opens sessions.
      modes: the table that `options.variable_update` is a row of.

    Raises:
      NotTheMeanError: a variable did not change by the mean gradient.
    """
    built = build(options, placement, modes=modes)
    with built.graph.as_default(), sessions.open(built.graph, config) as session:
        loop.start(built, session, lambda session: None)
        copies = dict(_copies(built))
        for tower, step in enumerate(built.steps):
            if tower:  # after an update, classes are no longer equally likely
                session.run(built.initializer)
                session.run(built.sync)
            for number in range(1, 2 + built.mode.deferred):
                session.run(step.train_op)
                due = max(0, number - built.mode.deferred)
                for name, values in session.run(copies).items():
                    _compare(built, name, values, due=due, number=number)


def build(
    options: graph.Options,
    placement: Placement,
    *,
    modes: Mapping[str, type[VariableUpdate]] = VARIABLE_UPDATES,
) -> graph.TrainGraph:
    """The graph of the check; the arguments are those of `check`."""
    scaling, pipeline = options.loss_scaling, _small(options.pipeline)
    probe_options = graph.Options(
        batch_size=pipeline.micro_batches if pipeline else 1,
        dtype=options.dtype,
        variable_update=options.variable_update,
        exchange=options.exchange,
        # More would take long, and not be exact.
        accumulate_steps=min(
            options.accumulate_steps, max(1, _EXAMPLES // placement.num_towers)
        ),
        # Gradients of 1 would overflow at the loss scales of usual models.
        loss_scaling=scaling and dataclasses.replace(scaling, initial=DEFAULT_SCALE),
        pipeline=pipeline,
        xla_compile=options.xla_compile,
        batch_norm=options.batch_norm,
        shards=options.shards,
        purpose=between_graph.PROBE,
    )
    pieces = len(pipeline.cut) if pipeline else 1
    return graph.build(
        _ones(
            _sizes(options.exchange),
            max(_WIDTH, 2 * placement.num_towers),  # so that factors are smaller
            pieces,
            options.shards or Shards(),
        ),
        _Source(joined=modes[options.variable_update].joined),
        Update("sgd", Piecewise((1.0,))),
        placement=placement,
        options=probe_options,
        modes=modes,
    )


def _compare(
    built: graph.TrainGraph, name: str, values: np.ndarray, *, due: int, number: int
) -> None:
    wanted = _wanted(name, values, due, built.options.shards or Shards())
    if np.array_equal(values, wanted):
        return
    place = np.argmax(values != wanted)
    start = _wanted(name, values, 0, built.options.shards or Shards())
    moved, right = ((v - start).flat[place] for v in (values, wanted))
    towers = built.placement.num_towers
    verdict = "that is not their mean"
    if right and moved == towers * right:
        verdict = "that is their sum, not their mean"
    spec_of = built.mode.all_reduce_spec
    reduced = f"with {mention('all_reduce_spec', spec_of)}, " if spec_of else ""
    words = (
        f"{reduced}gradients of 1 in all of {towers} towers moved {name} by {moved:g} "
        f"in step {number}, not by {right:g}: {verdict}"
    )
    raise NotTheMeanError(
        Problem("variable_update", built.options.variable_update, words)
    )


def _wanted(name: str, values: np.ndarray, due: int, shards: Shards) -> np.ndarray:
    """The value that a variable must have after `due` updates."""
    start, gradient = np.zeros_like(values), np.ones_like(values)
    if name.endswith(_ROWS):
        gradient[1::2] = 0.0  # nothing reads them
    if name.endswith((_KERNEL, _BIAS)):
        # The gradient at class 0, the label, is 1 / classes - 1, at the others 1 /
        # classes.
        gradient[...] = 1.0 / values.shape[-1]
        gradient[..., 0] -= 1.0
    if name.endswith(_KERNEL):
        start[0] = _weights(shards.classifier)
        gradient[0] = 0.0  # its input is 0
    return start - due * gradient


def _copies(built: graph.TrainGraph) -> Iterator[tuple[str, Any]]:
    """Every copy of the variables."""
    names = dict.fromkeys(map(parts.whole_name, built.template.trainable))
    replicas = parts.by_tower(built.mode.replicas, built.mode.wholes)
    for name in names:
        yield name, parts.join(parts.read(built.mode.held(name)))
        for tower, replica in enumerate(replicas):
            label = f"replica_{tower}/{name}" if tower else name
            yield label, parts.join(parts.read(replica[name]))


def _sizes(exchange: GradientExchange) -> list[int]:
    """Numbers of elements of the variables.

    There is one for each range of the reduction spec, and one that is partitioned if
    variables are.
    """
    limits = [r.limit for r in reduction.parse(exchange.all_reduce_spec)]
    limits.append(exchange.partition_bytes)
    sizes = [_ELEMENTS, *(n // 4 + 1 for n in limits if n and n <= _LARGEST)]
    return list(dict.fromkeys(sizes))


def _small(pipeline: Pipeline | None) -> Pipeline | None:
    """The same stages with one block each and few micro-batches."""
    if pipeline is None:
        return None
    return dataclasses.replace(
        pipeline,
        micro_batches=min(pipeline.micro_batches, max(2, pipeline.stages)),
        cut=tuple(range(1, pipeline.stages * pipeline.chunks + 1)),
    )


def _first(outputs: Any, labels: tf.Tensor) -> tf.Tensor:
    """The loss of a model whose outputs are its losses, or sharded logits."""
    return outputs if tf.is_tensor(outputs) else outputs.cross_entropy(labels)


class _Ones(Model):
    """A model whose gradients are 1 everywhere.

    The loss of an example is the sum of the variables, and of the rows of the embedding
    table that it looks up.  For the classifier, see `_classifies`.

    Its blocks are functions (x, nn) -> x.  The first looks up rows, and each adds
    variables, whose names do not depend on the number of blocks.
    """

    def run(self, x: tf.Tensor, nn: Layers) -> tf.Tensor:
        """Float32 [batch], the loss of each example; or logits, [batch, classes]."""
        for _, block in self.blocks:
            x = block(x, nn)
        return x

    def measure(self, outputs: Any, labels: Any, **batch: Any) -> dict[str, tf.Tensor]:
        """The loss, and no metrics."""
        del batch
        return {"loss": self.loss(outputs, labels)}


def _ones(sizes: Sequence[int], width: int, count: int, shards: Shards) -> _Ones:
    """The model with `count` blocks.

    The first block has variables of these sizes and a dense layer of this width.
    """
    first = _multiplies(_adds("vector", sizes), width)
    blocks = [_looks_up(first, shards.embeddings)]
    blocks += [_adds(f"block_{k}", [_ELEMENTS]) for k in range(1, count)]
    if shards.classifier > 1:
        blocks[-1] = _classifies(blocks[-1], shards.classifier)
    return _Ones(
        name="probe",
        blocks=[(f"block_{k}", block) for k, block in enumerate(blocks)],
        inputs=Pairs((1, 1)),  # its indices are not preprocessed
        recipe=Recipe(batch_size=1, schedule=Schedule((1.0,))),
        loss=_first,
    )


def _looks_up(adds: Block, count: int) -> Block:
    """A block: row indices -> the loss of each example."""

    def block(rows: tf.Tensor, nn: Layers) -> tf.Tensor:
        added = adds(tf.zeros([rows.shape[0]]), nn)
        table = _variable(_ROWS, [2 * count, 3], nn)
        nn.tables.append(table)
        ids = rows[:, None] + 2 * tf.range(count)
        vectors = nn.lookup(ids, table) if nn.lookup else None
        vectors = tf.gather(table, ids) if vectors is None else vectors
        loss = tf.reduce_sum(tf.cast(vectors, tf.float32), [1, 2])
        if nn.joined:
            loss *= tf.round(_GRID * nn.joined.mean(tf.ones([]))) / _GRID
        return loss + added

    return block


def _adds(name: str, sizes: Sequence[int]) -> Block:
    """A block that adds a variable of each size to the loss of each example."""

    def block(loss: tf.Tensor, nn: Layers) -> tf.Tensor:
        held = [_variable(f"probe/{name}_{size}", [size], nn) for size in sizes]
        return loss + tf.add_n([tf.reduce_sum(tf.cast(v, tf.float32)) for v in held])

    return block


def _multiplies(adds: Block, width: int) -> Block:
    """A block that adds the outputs of a dense layer with inputs of 1 to each loss."""

    def block(loss: tf.Tensor, nn: Layers) -> tf.Tensor:
        loss = adds(loss, nn)
        kernel = _variable("probe/dense", [width, width], nn)
        y = tf.matmul(tf.ones([loss.shape[0], width], nn.dtype), kernel)
        return loss + tf.reduce_sum(tf.cast(y, tf.float32), 1)

    return block


def _weights(count: int) -> np.ndarray:
    """The weight of the loss in the logit of each class, float32 [classes].

    Every device has a class with a non-zero weight; that of class 0 is zero.  The
    weights add up to the number of classes, a power of two, so that the cross-entropy
    has the gradient of the loss while all classes are equally likely.
    """
    weights = np.zeros([2 ** (2 * count - 1).bit_length()], np.float32)
    lasts = [begin + size - 1 for begin, size in Split(count).ranges(len(weights))]
    weights[lasts] = 1.0
    weights[-1] = len(weights) - (count - 1)
    return weights


def _classifies(block: Block, count: int) -> Block:
    """A block and a dense layer that turn the loss of each example into logits."""
    weights = _weights(count)

    def classified(x: tf.Tensor, nn: Layers) -> tf.Tensor:
        loss = block(x, nn)
        x = tf.cast(tf.stack([loss, tf.ones_like(loss)], 1), nn.dtype)
        start = np.stack([weights, 0.0 * weights])
        kernel = _variable(_KERNEL, start.shape, nn, v1.constant_initializer(start))
        bias = _variable(_BIAS, weights.shape, nn)
        y = tf.nn.bias_add(tf.matmul(x, kernel), bias)
        nn.products.append(Product(y, x, kernel, bias))
        return y

    return classified


def _variable(
    name: str, shape: Sequence[int], nn: Layers, start: Callable | None = None
) -> tf.Tensor:
    start = start or v1.zeros_initializer()
    return v1.get_variable(name, shape, nn.dtype, initializer=start)


class _Source:
    """Examples that all look up row 0.

    The weights of the examples add up to a power of two.  So the towers' shares and all
    partial sums are exact, in 16 bits, too, up to `_EXAMPLES` examples.
    """

    num_classes: int | tuple[int, int] = 1
    num_examples = 1
    vocabulary = ()

    def __init__(self, *, joined: bool):
        self._joined = joined

    def feed(
        self,
        groups: Groups,
        *,
        batch_size: int | Sequence[int],
        part: ClientShare = ClientShare(),  # noqa: B008 - a tuple
        **others: Any,
    ) -> Feed:
        """Constants on each tower's host."""
        del others
        hosts = [host for host, devices in groups for _ in devices]
        sizes = [size for of_host in sizes_of(groups, batch_size) for size in of_host]
        total = sum(sizes) * part.count if self._joined else sizes[0]
        more = 2 ** (total - 1).bit_length() - total
        batches: list[Batch] = []
        for host, size in zip(hosts, sizes):
            weights = np.ones([size], np.float32)
            later = batches or part.index
            weights[0] += 0 if self._joined and later else more
            with tf.device(host):
                rows, first = tf.zeros([size], tf.int32), tf.zeros([], tf.int64)
                batches.append(Batch(rows, rows, tf.constant(weights), first))
        weight = tf.constant(float(total + more)) if part.count > 1 else None
        return Feed(batches, tf.no_op(), [tf.no_op()] * len(batches), weight)
