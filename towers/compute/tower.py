"""Towers: the model's operations, traced once, to be copied to every tower's device.

Tracing runs the model's Python code once, on placeholders in a separate graph.  It
makes a template, whose nodes `copy_tower` copies into the train graph.

A tower differentiates its share of the mean loss,

    share_k = sum_b weight_kb x loss_kb / total weight of all towers,

so the shares and their gradients add up exactly to those of the joined batch, also if
towers have fewer examples or none.  No gradient is divided.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from flags.problem import wrong_setting
from models.layers import Layers, Statistic
from models.model import Model
from towers.compute import (
    classifier,
    deterministic_sum,
    flops,
    graph_rewrite,
    measures,
    model_checks,
    split_by_device,
    summaries,
    xla,
)
from towers.compute.nodes import ancestors
from towers.compute.sufficient_factors import Gradient
from towers.compute.summaries import Made
from towers.compute.sync_batch_norm import BATCH_NORM, StatisticsExchanges
from towers.compute.tower_spec import TowerSpec, new_layers, running
from towers.compute.traced import TracedGraph
from towers.compute.variable_getter import VariableLookup, VariablePlaceholders
from towers.data import nests
from towers.data.inputs import NamedSource
from towers.data.source import classes
from towers.layout import shards
from towers.layout.parts import Split

v1 = tf.compat.v1


class Tower(NamedTuple):
    """The results of one tower, pipelined or not, that are to be reduced."""

    index: int  # type: ignore[assignment]
    device: str
    loss: tf.Tensor  # float32 scalar, this tower's share of the mean loss
    gradients: list[Gradient]  # of the share, one per trainable variable
    statistics: list[tf.Tensor]  # batch statistics, one per `Template.statistics`
    metrics: dict[str, tf.Tensor]  # float32 scalars, shares of the means
    summaries: Sequence[Made] = ()  # with tensors; none with stages or in a loop


class Site(NamedTuple):
    """The devices and inputs of a tower."""

    scope: str  # prefix of its operations' names, such as `tower_0`
    devices: Sequence[str]  # of its stages; one, if it is not cut into stages
    inputs: dict[str, tf.Tensor]  # `features`, `labels`, `weights`, ...
    reads: dict[str, tf.Tensor]  # variable name -> its value as this tower reads it
    template: Any  # of its batch's size: a `Template`, or a `PipelineTemplate`

    @property
    def device(self) -> str:
        """The device of the first stage."""
        return self.devices[0]

    @property
    def batch_size(self) -> int:
        """Number of examples."""
        return self.inputs["weights"].shape[0]


class StatisticRule(NamedTuple):
    """Which variable follows a batch statistic, and how fast."""

    variable: str
    momentum: float | None

    @property
    def is_state(self) -> bool:
        """Whether the variable is set to the sum: `Layers.final_state`."""
        return self.momentum is None

    @classmethod
    def of(cls, statistic: Statistic) -> "StatisticRule":
        """The rule of a statistic of a traced model."""
        name = statistic.variable.op.name.removeprefix("read/")
        return cls(name, statistic.momentum)


@dataclasses.dataclass(frozen=True)
class Template:
    """A traced tower, ready to be copied.

    Attributes:
      graph_def: its nodes, without the unused ones.
      trainable: names of the trainable variables, in order of creation.
      reads: name of each variable that is read -> the dtype in which it is read.
      loss: name of the loss tensor.
      gradients: per trainable variable the name of its gradient, the three names of an
        `IndexedSlices`, or none.
      statistics: (rule, name of the tensor) of the batch statistics.
      metrics: metric -> name of the tensor.
      parameters: number of trainable parameters.
      compiled: whether XLA compiles it as a whole.
      exchanges: (placeholder, tensor that a tower sends, row of
        `sync_batch_norm.JOINS`); the join of all towers' tensors replaces the
        placeholder.
      specs: shape and dtype of each of `outputs`, and of what is exchanged.
      owners: parts that are used on their own devices, `placement.owner` by number.
      look_ups: gathers whose rows are inputs of the tower, see `embedding_lookup`.
      summaries: of the model, in training.
      predictions: the nest that the last block returns, with the names of metrics as
        its leaves; () unless the towers predict.
    """

    graph_def: v1.GraphDef
    trainable: tuple[str, ...]
    reads: dict[str, tf.DType]
    loss: str
    gradients: tuple[tuple[str, ...], ...]
    statistics: tuple[tuple[StatisticRule, str], ...]
    metrics: dict[str, str]
    parameters: int
    compiled: bool = False
    exchanges: tuple[tuple[str, str, str], ...] = ()
    specs: dict[str, tf.TensorSpec] = dataclasses.field(default_factory=dict)
    owners: tuple[str, ...] = ()
    look_ups: tuple[VariableLookup, ...] = ()
    summaries: tuple[Made, ...] = ()
    predictions: Any = ()

    @property
    def flops(self) -> int:
        """Floating point operations of one run."""
        return flops.of_nodes(self.graph_def)

    @property
    def outputs(self) -> list[str]:
        """Names of the tensors that make up a `Tower`."""
        outputs = [self.loss, *self.metrics.values()]
        outputs += [name for names in self.gradients for name in names]
        return outputs + [name for _, name in self.statistics]

    @functools.cached_property
    def functions(self) -> list[tuple[split_by_device.DeviceSubgraph, xla.Call]]:
        """The compiled functions that all towers call, one or more per device."""
        parts = split_by_device.split_by_device(self.graph_def, self.outputs)
        with tf.Graph().as_default() as graph:
            tf.import_graph_def(self.graph_def, name="")
        named = graph.get_tensor_by_name
        specs = [
            {n: tf.TensorSpec.from_tensor(named(n)) for n in p.inputs} for p in parts
        ]
        return [
            (part, xla.compiled(part.graph_def, inputs, part.outputs))
            for part, inputs in zip(parts, specs)
        ]


def trace(
    task: TowerSpec,
    features: Any,
    labels: Any,
    *,
    create: Callable[..., Any],
) -> Template:
    """Traces the model to a template.

    Args:
      task: what to compute.
      features: nest of `tf.TensorSpec`s [batch, ...], of a tower's batch.
      labels: nest of `tf.TensorSpec`s [batch, ...].
      create: (name, shape, initializer, trainable=[, split=]) creates a variable; it is
        called at the model's first `get_variable` of each name.

    Raises:
      ValueError: copies of the model would not be equal, see `model_checks`, or it
        makes variables in a way that towers cannot share, see `variable_getter`.
    """
    exchanges = StatisticsExchanges()
    first, split = task.training, splits(task, features)
    variables = VariablePlaceholders(
        create, split, first=first, trainable=task.trainable
    )
    with TracedGraph(variables).as_default() as graph:
        batch = nests.batch_placeholders(features, labels)
        scale = v1.placeholder(tf.float32, [], "loss_scale")
        nn, outputs = _run(task, batch, variables, exchanges)
        variables.check_trained()
        outputs = classifier.shard_logits(outputs, nn, variables.parts, task.shards)
        shares, predictions = measures.measured(task, outputs, batch)
        loss = shares.pop("loss")
        trainable = variables.trainable
        gradients: list[Gradient] = []
        model_checks.check_devices(graph)
        if task.training:
            start = scale if task.loss_scaled else None
            gradients = deterministic_sum.differentiate(
                loss, [*trainable.values()], start
            )
        shown = summaries.collect(graph) if task.training else ()
        model_checks.check(graph)
        model_checks.check_losses(graph)
    ends = _Ends(loss, gradients, nn.statistics, shares, shown)
    template = _template(graph, variables, exchanges, ends)
    return dataclasses.replace(
        template, compiled=task.compiled, predictions=predictions
    )


def _run(
    task: TowerSpec,
    batch: Mapping[str, Any],
    variables: VariablePlaceholders,
    exchanges: StatisticsExchanges,
) -> tuple[Layers, Any]:
    """The model's layers, and the outputs of its last block."""
    nn = new_layers(task, batch, variables, exchanges)
    x = task.model.inputs.prepare(batch["features"], nn)
    with running(task, variables):
        return nn, task.model.run(x, nn)


def splits(task: TowerSpec, features: Any) -> dict[str, Split]:
    """Sharded variable -> its split, found by a trial run of the model."""
    if not task.shards:
        return {}
    return shards.splits(task.shards, *_try(task, features), task.model.name)


def check_batch_norm(batch_norm: str, model: Model, source: NamedSource) -> None:
    """Refuses synchronized batch norm for a model without any, by a trial run of it.

    Args:
      batch_norm: a row of `sync_batch_norm.BATCH_NORM`.
      model: that is trained.
      source: the data set.

    Raises:
      ValueError: the model has no batch norm.
    """
    if not any(BATCH_NORM[batch_norm]):
        return
    features = nests.batch_of(source.features, model.recipe.batch_size)
    nn, _ = _try(TowerSpec(model, classes(source, model)), features)
    if not any(statistic.momentum is not None for statistic in nn.statistics):
        words = f"{model.name} has no batch norm"
        raise wrong_setting("batch_norm", batch_norm, words, "leave it out")


def _try(task: TowerSpec, features: Any) -> tuple[Layers, Any]:
    """Runs the model in a temporary graph; returns the same as `_run`."""
    variables = VariablePlaceholders(
        lambda *_, **options: None, {}, first=task.training
    )
    with TracedGraph(variables).as_default():
        batch = nests.batch_placeholders(features, ())
        return _run(task, batch, variables, StatisticsExchanges())


class _Ends(NamedTuple):
    """The tensors of a traced tower that become outputs of the template."""

    loss: tf.Tensor
    gradients: Sequence[Gradient]
    statistics: Sequence[Any]
    metrics: Mapping[str, tf.Tensor]
    summaries: tuple[Made, ...]


def _names(gradient: Gradient) -> tuple[str, ...]:
    if gradient is None:
        return ()
    if isinstance(gradient, tf.IndexedSlices):
        parts = (gradient.values, gradient.indices, gradient.dense_shape)
        return tuple(part.name for part in parts)
    assert isinstance(gradient, tf.Tensor)  # no factors yet
    return (gradient.name,)


def _template(
    graph: TracedGraph,
    variables: VariablePlaceholders,
    exchanges: StatisticsExchanges,
    ends: _Ends,
) -> Template:
    gradient_names = tuple(map(_names, ends.gradients))
    statistic_names = tuple(
        (StatisticRule.of(statistic), statistic.value.name)
        for statistic in ends.statistics
    )
    metric_names = {name: value.name for name, value in ends.metrics.items()}
    outputs = [ends.loss.name, *metric_names.values()]
    outputs += [name for names_ in gradient_names for name in names_]
    outputs += [name for _, name in statistic_names]
    outputs += summaries.names(ends.summaries)
    kept = ancestors([graph.get_tensor_by_name(name).op for name in outputs])
    # Kept operations may read exchanged values, which towers must then compute and
    # send.
    while sent_only := [
        sent.tensor.op
        for name, sent in exchanges.sent.items()
        if name in kept and sent.tensor.op.name not in kept
    ]:
        kept |= ancestors(sent_only)
    met = {name: sent for name, sent in exchanges.sent.items() if name in kept}
    all_sent = [sent.tensor.name for sent in met.values()]
    return Template(
        graph_def=graph_rewrite.place_sums(
            graph_rewrite.simplify(graph, kept, [*outputs, *all_sent]),
            zip(variables.trainable.values(), gradient_names),
        ),
        trainable=tuple(variables.trainable),
        reads={
            name: read.dtype
            for name, read in variables.reads.items()
            if f"read/{name}" in kept
        },
        loss=ends.loss.name,
        gradients=gradient_names,
        statistics=statistic_names,
        metrics=metric_names,
        parameters=sum(v.shape.num_elements() for v in variables.trainable.values()),
        specs={
            name: tf.TensorSpec.from_tensor(graph.get_tensor_by_name(name))
            for name in [*outputs, *all_sent]
        },
        exchanges=tuple((n, sent.tensor.name, sent.join) for n, sent in met.items()),
        owners=tuple(variables.owners),
        summaries=ends.summaries,
    )
