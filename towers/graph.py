"""Builds the train graph, one `tf.Graph`, from the parts of a run.

    train = build(model, source, update, placement=placement, options=options)

The arguments are a model, a source of batches, an optimizer, the devices and options.
`planning` makes them from flags.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from flags.problem import wrong_setting
from models.model import Model
from models.validation import check, one_of
from towers.checkpoints import constants
from towers.compute import sync_batch_norm, tower
from towers.compute.copy_tower import nothing_is_garbage
from towers.compute.tower import Tower, TowerSpec
from towers.data import row_order
from towers.data.input_wait import WaitReads
from towers.data.source import ClientShare, Feed, Source, classes
from towers.layout import graph_names, parts
from towers.layout.placement import Placement
from towers.optimizers.loss_scale import LossScale
from towers.optimizers.optimizer import Update
from towers.options import Options
from towers.pipelines.tower_copies import AnyTemplate, copy_towers
from towers.variable_update import asynchronous, backup_workers, train_steps
from towers.variable_update.asynchronous import StepLoop
from towers.variable_update.base import VariableUpdate
from towers.variable_update.dropped_examples import DroppedExamples
from towers.variable_update.modes import VARIABLE_UPDATES
from towers.variable_update.step_marks import StepMarks
from towers.variable_update.train_steps import Counters, SingleClient, TrainStep

v1 = tf.compat.v1


class TrainGraph(NamedTuple):
    """A built graph and the handles that a session loop needs."""

    graph: tf.Graph
    placement: Placement
    mode: VariableUpdate  # holds the variables
    towers: list[Tower]
    template: AnyTemplate
    steps: list[TrainStep]  # one of all towers, or one for each tower
    # Of the first of these steps:
    train_op: tf.Operation  # one step and its update
    loop: StepLoop | None  # runs many steps in one call
    step: tf.Tensor  # int64 scalar, the global step after `train_op`
    loss: tf.Tensor  # float32 scalar, mean over the step's examples
    penalty: tf.Tensor  # float32 scalar, what the weight decay adds to the loss
    total_loss: tf.Tensor  # the loss and the penalty
    metrics: dict[str, tf.Tensor]  # float32 scalars, means over the step's examples
    gradients: Sequence[tower.Gradient]  # the means, one for each part of a variable
    learning_rate: tf.Tensor  # float32 scalar
    global_step: tf.Variable  # int64 scalar
    position: tf.Variable  # int64 scalar, examples consumed
    averages: dict[str, tf.Variable | parts.Parts]  # variable -> its moving average
    saved: dict[str, tf.Variable | parts.Parts]  # by name in a checkpoint
    constants: dict[str, tf.Variable]  # of `checkpoints.constants`, as `saved`
    initializer: tf.Operation  # of every variable that `sync` does not fill
    loss_scale: LossScale | None
    skips: tuple[tf.Tensor, tf.Tensor] | None  # `LossScale.after` of `train_op`
    feed: Feed  # its initializer runs once variables have their values
    input_wait: WaitReads | None  # how long steps have waited; None if not known
    sync: tf.Operation  # runs after the initializer and a restore
    marks: StepMarks | None  # of an elastic run whose towers step together
    tower_seconds: tf.Variable | None  # float64 [towers], of all steps together
    clients: SingleClient  # this client, from `backup_workers.of`
    options: Options
    examples_per_step: int  # of the towers that step together, of all clients

    @property
    def skipped(self) -> tf.Variable | None:
        """Number of skipped steps, int64 scalar; None if steps are never skipped."""
        return self.loss_scale and self.loss_scale.skipped


def build(
    model: Model,
    source: Source,
    update: Update,
    *,
    placement: Placement,
    options: Options,
    modes: Mapping[str, Callable[..., VariableUpdate]] = VARIABLE_UPDATES,
) -> TrainGraph:
    """Builds the train graph.

    Args:
      model: what a tower computes.
      source: gives the batches; one of `towers.data.inputs`, or your own.
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
    with nothing_is_garbage(), tf.Graph().as_default(), scope:
        make = modes[options.variable_update]
        mode = make(placement, seed=options.seed, exchange=options.exchange)
        if model.stateful:
            row_order.check_joined(model, options.variable_update, joined=mode.joined)
            if options.backup:
                raise wrong_setting(
                    "backup_workers",
                    options.backup.count,
                    f"{model.name} passes a state on from each step to the next, which "
                    "would miss the rows of dropped gradients",
                    "leave it out",
                )
        count = sum(options.tower_batches(placement.num_towers))
        source = row_order.in_rows(source, model, count)
        return _build(model, source, update, mode=mode, options=options)


def _build(
    model, source: Source, update: Update, *, mode: VariableUpdate, options: Options
) -> TrainGraph:
    placement, scaling = mode.placement, options.loss_scaling
    counters = train_steps.create_counters(mode, options)
    rate, progress = _rate_and_progress(counters, source, update, mode, options=options)
    scale = LossScale(scaling, placement.master) if scaling else None
    peers = _peers(counters, mode, options)
    feed = _feed(source, mode, options, counters=counters, peers=peers)
    spec = _train_spec(model, source, mode, options)
    scalars = _scalars(feed, mode, scale, options, progress=progress)
    template, towers = copy_towers(
        spec, feed.batches, mode, scalars=scalars, rounds=options.accumulate_steps
    )
    builder = train_steps.StepBuilder(
        mode=mode,
        trainable=template.trainable,
        rules=[rule for rule, _ in template.statistics],
        update=update,
        rate=rate,
        feed=feed,
        counters=counters,
        sizes=options.tower_batches(placement.num_towers),
        limit=options.limit,
        scale=scale,
        peers=peers,
        first_averages=options.batch_norm_averages == "first_tower",
    )
    all_steps = builder.steps(towers)
    penalty, total_loss = builder.penalty(all_steps[0].loss)
    held = _constants(source, spec, options, placement)
    return TrainGraph(
        graph=v1.get_default_graph(),
        placement=placement,
        mode=mode,
        towers=towers,
        template=template,
        steps=all_steps,
        **all_steps[0]._asdict(),
        loop=None if mode.together else asynchronous.loop(mode, all_steps),
        penalty=penalty,
        total_loss=total_loss,
        learning_rate=rate,
        global_step=counters.global_step,
        position=counters.position,
        averages=builder.averages,
        loss_scale=scale,
        skips=scale.after(all_steps[0].train_op) if scale else None,
        saved=mode.saved(v1.global_variables()),
        constants=held,
        initializer=_initializer(builder, held.values()),
        feed=feed,
        input_wait=builder.wait.reads(all_steps) if builder.wait else None,
        sync=_sync(mode),
        marks=counters.marks,
        tower_seconds=counters.times and counters.times.seconds,
        clients=peers,
        options=options,
        examples_per_step=builder.examples(towers[: len(towers) // len(all_steps)]),
    )


def _rate_and_progress(
    counters: Counters,
    source: Source,
    update: Update,
    mode: VariableUpdate,
    *,
    options: Options,
) -> tuple[tf.Tensor, tf.Tensor]:
    """The learning rate of a step and its `nn.progress`, float32 scalars."""
    with tf.device(mode.placement.master), tf.name_scope("learning_rate"):
        epochs = tf.cast(counters.position_before / source.num_examples, tf.float32)
        return update.learning_rate(epochs), tf.minimum(epochs / options.epochs, 1.0)


def _constants(
    source: Source, spec: TowerSpec, options: Options, where: Placement
) -> dict[str, tf.Variable]:
    """What checkpoints keep beside the variables; see `checkpoints.constants`."""
    kept = options.kept_batch_sizes(where.num_towers)
    workers = options.nominal_workers
    return constants.of(source, where.master, spec.rows, kept, workers=workers)


def _initializer(
    builder: train_steps.StepBuilder, others: Iterable[tf.Variable]
) -> tf.Operation:
    """The operation that gives the builder's and other variables their initial values.

    TensorFlow's initializer of a moving average reads the variable if it has a value,
    which may be that of a lost session.
    """
    mode, averages = builder.mode, builder.averages_of
    left_out = {variable.ref() for variable in mode.synced}
    left_out |= {average.ref() for average, _ in averages}
    own_variables = [v for v in v1.global_variables() if v.ref() not in left_out]
    with v1.name_scope(graph_names.VARIABLES):
        starts = [v1.variables_initializer([*own_variables, *builder.unsaved, *others])]
        for average, variable in averages:
            with tf.device(average.device):
                value = variable.initial_value
                starts.append(average.assign(value, read_value=False))
        return tf.group(*starts)


def _sync(mode: VariableUpdate) -> tf.Operation:
    with v1.name_scope(graph_names.SYNC):
        return tf.group(*([] if mode.constants else mode.sync()), *mode.fixed.fill())


def _peers(counters: Counters, mode: VariableUpdate, options: Options) -> SingleClient:
    """This client, which counts dropped examples if there can be any."""
    where, dropped = mode.placement, None
    if options.backup:
        dropped = DroppedExamples(
            counters,
            where,
            options.tower_batches(where.num_towers),
            limit=options.limit,
            replay=options.backup.replay,
        )
    return backup_workers.of(mode, options.purpose, options.backup, dropped)


def _feed(
    source: Source,
    mode: VariableUpdate,
    options: Options,
    *,
    counters: Counters,
    peers: SingleClient,
) -> Feed:
    where = mode.placement
    part = ClientShare(where.client, where.clients, apart=not mode.together)
    batch_size: int | Sequence[int] = options.tower_batch
    if options.tower_batch_sizes:
        sizes, count = options.tower_batches(where.num_towers), len(where.towers)
        clients = [sizes[i : i + count] for i in range(0, len(sizes), count)]
        batch_size = clients[where.client]
        part = part._replace(rows=tuple(map(sum, clients)))
    with v1.name_scope(None):
        feed = source.feed(
            where.groups,
            batch_size=batch_size,
            position=peers.position(counters.position_before),
            limit=options.limit,
            part=part._replace(order=counters.order),
        )
        if options.backup:  # the weight is that of the clients that are used
            feed = feed._replace(weight=None)
        feed = feed.class_weighted(options.class_weight)
    return counters.times.after_begin(feed) if counters.times else feed


def _scalars(
    feed: Feed,
    mode: VariableUpdate,
    scale: LossScale | None,
    options: Options,
    *,
    progress: tf.Tensor,
) -> list[dict[str, tf.Tensor]]:
    """Each tower's scalar inputs, besides its batch."""
    several = mode.together and mode.placement.clients > 1
    sizes = options.tower_batches(mode.placement.num_towers)
    rows = sum(sizes) if several else None
    with tf.device(mode.placement.master), v1.name_scope(graph_names.INPUT):
        weights = feed.total_weights(joined=mode.joined, rows=rows)
    scaled = {"loss_scale": scale.value} if scale else {}
    shared = {"progress": progress, **scaled}
    return [{"total_weight": weight, **shared} for weight in weights]


def tower_spec(
    model: Model, source: Source, options: Options, placement: Placement
) -> TowerSpec:
    """What a tower computes, without what it shares with others.

    Args:
      model: the model.
      source: gives the batches.
      options: of the train graph.
      placement: of the towers.
    """
    # On a cluster, tables are on ps tasks rather than on the towers' devices.
    elsewhere, shards = placement.is_cluster, options.shards
    return TowerSpec(
        model=model,
        num_classes=classes(source, model),
        training=not options.forward_only,
        data_format=options.data_format,
        dtype=options.dtype,
        seed=options.seed,
        kind=placement.kind,
        compiled=options.xla_compile,
        pipeline=options.pipeline,
        loss_scaled=options.loss_scaling is not None,
        shards=shards and shards._replace(elsewhere=elsewhere),
        trainable=options.trainable,
        initial_values=options.initial_values,
    )


def _train_spec(
    model: Model, source: Source, mode: VariableUpdate, options: Options
) -> TowerSpec:
    """What a tower computes, and which towers share batch norm's statistics."""
    # Towers can share them if they take steps together and are not compiled by XLA.
    meet = mode.joined and not options.xla_compile
    joined = sync_batch_norm.shared_statistics(
        options.batch_norm,
        towers=len(mode.placement.towers) if meet else 0,
        micro_batches=options.pipeline.micro_batches if options.pipeline else 1,
        rounds=options.accumulate_steps,
    )
    spec = tower_spec(model, source, options, mode.placement)
    count = sum(options.tower_batches(mode.placement.num_towers))
    rows = row_order.of(source, model, count)
    return dataclasses.replace(spec, joined=joined, rows=rows)
