"""Puts the parts into one `tf.Graph`.

    train = build(model, source, update, placement=placement, options=options)

is the Python API: a model, a batch source, an optimizer and a placement in, the train
graph out.  `planning` makes the same arguments from flags.
"""

import contextlib
import dataclasses
import gc
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from models.validation import COUNT, check, one_of
from towers.assembly import copy_towers
from towers.checkpoints import constants
from towers.compute import sync_batch_norm
from towers.compute.tower import Template, Tower, TowerSpec
from towers.data.source import ClientShare, Feed, Source
from towers.gradients.exchange import GradientExchange
from towers.layout import graph_names, parts
from towers.layout.placement import Placement
from towers.layout.shards import Shards
from towers.layout.stages import Pipeline
from towers.optimizers.loss_scale import LossScale, LossScaling
from towers.optimizers.optimizer import Update
from towers.variable_update import between_graph, train_steps
from towers.variable_update.base import VariableUpdate
from towers.variable_update.between_graph import TrainStep
from towers.variable_update.modes import DEFAULT, VARIABLE_UPDATES

v1 = tf.compat.v1


@dataclasses.dataclass(frozen=True)
class Options:
    """What a train graph needs beside its model, data, optimizer and placement.

    Attributes:
      batch_size: examples per tower and step.
      data_format: `NHWC` or `NCHW`.
      dtype: of activations and of the weights as layers read them.
      seed: of initial values and dropout.
      variable_update: a row of `variable_update.VARIABLE_UPDATES`.
      exchange: how gradients are exchanged, where the mode offers a choice.
      limit: how many examples of the stream count; None for all.
      xla_compile: whether XLA compiles each tower as a whole.
      pipeline: how towers are cut into stages and micro-batches; None: they are not.
      accumulate_steps: batches of `batch_size` that a tower takes one after the other
        in each step.
      batch_norm: which batches batch norm takes as one, a row of `joining.BATCH_NORM`.
      loss_scaling: what the loss is multiplied by before it is differentiated; None
        for nothing.
      shards: what of the model is spread over each tower's devices; None: nothing is.
      purpose: what the graph is for, of `clients`.
    """

    batch_size: int
    data_format: str = "NHWC"
    dtype: tf.DType = tf.float32
    seed: int = 1234
    variable_update: str = DEFAULT
    exchange: GradientExchange = GradientExchange()  # noqa: RUF009 - frozen
    limit: int | None = None
    xla_compile: bool = False
    pipeline: Pipeline | None = None
    accumulate_steps: int = 1
    batch_norm: str = "micro_batch"
    loss_scaling: LossScaling | None = None
    shards: Shards | None = None
    purpose: int = between_graph.TRAIN

    def __post_init__(self):
        check(
            self,
            batch_size=COUNT,
            accumulate_steps=COUNT,
            data_format=one_of(("NHWC", "NCHW")),
            batch_norm=one_of(sync_batch_norm.BATCH_NORM),
        )
        if self.pipeline and self.accumulate_steps > 1:
            pieces = self.pipeline.micro_batches * self.accumulate_steps
            raise ValueError(
                f"Options.accumulate_steps is {self.accumulate_steps}, and does not go "
                "with a pipeline; micro-batches add up the same way, so write "
                f"batch_size={self.tower_batch} and "
                f"Pipeline(micro_batches={pieces})"
            )
        if self.pipeline and self.xla_compile:
            raise ValueError(
                "Options.xla_compile is True, and does not go with a pipeline, whose "
                "passes are functions of their own; leave one of them out"
            )

    @property
    def tower_batch(self) -> int:
        """Examples per tower and step."""
        return self.batch_size * self.accumulate_steps


class TrainGraph(NamedTuple):
    """A built graph and the handles that a session loop needs."""

    graph: tf.Graph
    placement: Placement
    mode: VariableUpdate  # holds the variables
    towers: list[Tower]
    template: Template
    steps: list[TrainStep]  # one of all towers, or one for each; below is the first
    train_op: tf.Operation  # one step and its update
    loop: Any  # what runs many steps in one call, as `device_loop.DeviceLoop`, or None
    step: tf.Tensor  # int64 scalar, the global step after `train_op`
    loss: tf.Tensor  # float32 scalar, mean over the step's examples
    penalty: tf.Tensor  # float32 scalar, what the weight decay adds to the loss
    total_loss: tf.Tensor  # the loss and the penalty
    metrics: dict[str, tf.Tensor]  # float32 scalars, means over the step's examples
    learning_rate: tf.Tensor  # float32 scalar
    global_step: tf.Variable  # int64 scalar
    position: tf.Variable  # int64 scalar, examples consumed
    averages: dict[str, Any]  # variable -> its moving average or those of parts, or {}
    saved: dict[str, tf.Variable | parts.Parts]  # by name in a checkpoint
    constants: dict[
        str, tf.Variable
    ]  # of `checkpoints.constants`, by name in a checkpoint
    initializer: tf.Operation  # of every variable that `sync` does not fill
    loss_scale: LossScale | None
    skips: tuple[tf.Tensor, tf.Tensor] | None  # `LossScale.after` of `train_op`
    feed: Feed  # its initializer runs once variables have their values
    sync: tf.Operation  # runs after the initializer and a restore
    clients: Any  # this one's part among those that train together, of `clients`
    options: Options
    num_examples: int  # of one epoch
    examples_per_step: int  # of the towers that step together, of all clients

    @property
    def skipped(self) -> tf.Variable | None:
        """Steps that changed nothing, int64 scalar; None where none can be skipped."""
        return self.loss_scale and self.loss_scale.skipped


def build(
    model: Any,
    source: Source,
    update: Update,
    *,
    placement: Placement,
    options: Options,
    modes: Mapping[str, Callable[..., VariableUpdate]] = VARIABLE_UPDATES,
) -> TrainGraph:
    """Builds the train graph.

    Args:
      model: a `models.Model`.
      source: where batches come from, of `towers.data.inputs` or one's own.
      update: optimizer, learning rate, weight decay.
      placement: devices of the towers and variables.
      options: batch size and the rest.
      modes: the table that `options.variable_update` is a row of.

    Raises:
      ValueError: there is no such mode, the towers' devices cannot run the reduction,
        the model does something that towers cannot repeat, or its blocks do not fit
        the data; the sentence names the block or the variable.
    """
    check(options, variable_update=one_of(modes))
    scope = v1.name_scope(graph_names.UPDATE)  # of what has no scope of its own
    with _nothing_is_garbage(), tf.Graph().as_default(), scope:
        make = modes[options.variable_update]
        mode = make(placement, seed=options.seed, exchange=options.exchange)
        return _build(model, source, update, mode=mode, options=options)


def _build(
    model, source: Source, update: Update, *, mode: VariableUpdate, options: Options
) -> TrainGraph:
    placement, scaling = mode.placement, options.loss_scaling
    counters = train_steps.create_counters(placement.counters)
    position = counters.position_before
    with tf.device(placement.master), tf.name_scope("learning_rate"):
        rate = update.learning_rate(tf.cast(position / source.num_examples, tf.float32))
    scale = LossScale(scaling, placement.master) if scaling else None
    peers = between_graph.of(mode, options.purpose)
    feed = _feed(source, mode, options, position)
    template, towers = copy_towers(
        _task(model, source, mode, options),
        feed.batches,
        mode,
        scalars=_scalars(feed, mode, scale),
        rounds=options.accumulate_steps,
    )
    builder = train_steps.StepBuilder(
        mode=mode,
        template=template,
        update=update,
        rate=rate,
        feed=feed,
        counters=counters,
        tower_batch=options.tower_batch,
        limit=options.limit,
        scale=scale,
        peers=peers,
    )
    all_steps = builder.steps(towers)
    penalty, total_loss = builder.penalty(all_steps[0].loss)
    held = constants.of(source, placement.master)
    return TrainGraph(
        graph=v1.get_default_graph(),
        placement=placement,
        mode=mode,
        towers=towers,
        template=template,
        steps=all_steps,
        **all_steps[0]._asdict(),
        loop=mode.loop([(step.train_op, step.loss) for step in all_steps]),
        penalty=penalty,
        total_loss=total_loss,
        learning_rate=rate,
        global_step=counters.global_step,
        position=counters.position,
        averages=builder.averages,
        loss_scale=scale,
        skips=scale and scale.after(all_steps[0].train_op),
        saved=parts.joined(mode.saved(v1.global_variables()), mode.wholes),
        constants=held,
        initializer=_initializer(mode, held),
        feed=feed,
        sync=_sync(mode),
        clients=peers,
        options=options,
        num_examples=source.num_examples,
        examples_per_step=builder.examples(len(towers) // len(all_steps)),
    )


def _initializer(mode: VariableUpdate, held: Mapping[str, tf.Variable]) -> tf.Operation:
    """What gives the variables and the constants their initial values."""
    own = mode.own(v1.global_variables())
    with v1.name_scope(graph_names.VARIABLES):
        return v1.variables_initializer([*own, *held.values()])


def _sync(mode: VariableUpdate) -> tf.Operation:
    with v1.name_scope(graph_names.SYNC):
        return mode.sync()


@contextlib.contextmanager
def _nothing_is_garbage() -> Iterator[None]:
    """Pauses Python's garbage collector.

    It would look through the growing graph again and again, all of it in use: for 0.5
    of the 4.2 s in which 32 resnet50 towers are built.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _feed(
    source: Source, mode: VariableUpdate, options: Options, position: tf.Tensor
) -> Feed:
    where = mode.placement
    with v1.name_scope(None):
        return source.feed(
            where.groups,
            batch_size=options.tower_batch,
            position=position,
            limit=options.limit,
            part=ClientShare(where.client, where.clients, apart=not mode.together),
        )


def _task(
    model: Any, source: Source, mode: VariableUpdate, options: Options
) -> TowerSpec:
    towers = mode.placement.towers
    return TowerSpec(
        model=model,
        num_classes=source.num_classes,
        data_format=options.data_format,
        dtype=options.dtype,
        seed=options.seed,
        kind=mode.placement.kind,
        compiled=options.xla_compile,
        pipeline=options.pipeline,
        joined=sync_batch_norm.shared_statistics(
            options.batch_norm,
            # Those that step together on one model, and can meet while they do.
            towers=len(towers) if mode.joined and not options.xla_compile else 0,
            micro_batches=options.pipeline.micro_batches if options.pipeline else 1,
            rounds=options.accumulate_steps,
        ),
        loss_scaled=options.loss_scaling is not None,
        shards=options.shards,
    )


def _scalars(
    feed: Feed, mode: VariableUpdate, scale: LossScale | None
) -> list[dict[str, tf.Tensor]]:
    """Each tower's inputs beside its batch: the total weight that its loss is divided
    by, of all examples of the step or its own, and the loss scale if there is one."""
    weights = []
    for batch in feed.batches:
        with tf.device(batch.weights.device), v1.name_scope(graph_names.INPUT):
            weights.append(tf.reduce_sum(batch.weights))
    with tf.device(mode.placement.master), v1.name_scope(graph_names.INPUT):
        if mode.joined:
            whole = tf.add_n(weights) if feed.weight is None else feed.weight
            weights = [whole] * len(weights)
        # A step may lie beyond the last example as a whole: then nothing is learnt.
        inputs = [{"total_weight": tf.maximum(weight, 1.0)} for weight in weights]
    return [{**row, "loss_scale": scale.value} for row in inputs] if scale else inputs
