"""Puts the parts into one `tf.Graph`.

    train = build(model, source, update, placement=placement, options=options)

is the Python API: a model, a batch source, an optimizer and a placement in, the train
graph out.  `plan` makes the same arguments from flags.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from towers import precision
from towers import tower as tower_lib
from towers.feed import Batch, Feed
from towers.optimizer import Update
from towers.placement import Placement
from towers.tower import Task, Template, Tower
from towers.variable_update import VARIABLE_UPDATES, Exchange

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
      exchange: how replicas' gradients are reduced.
      limit: how many examples of the stream count; None for all.
      xla_compile: whether XLA compiles each tower as a whole.
    """

    batch_size: int
    data_format: str = "NHWC"
    dtype: tf.DType = tf.float32
    seed: int = 1234
    variable_update: str = "parameter_server"
    exchange: Exchange = Exchange()  # noqa: RUF009 - frozen
    limit: int | None = None
    xla_compile: bool = False


class TrainGraph(NamedTuple):
    """A built graph and the handles that a session loop needs."""

    graph: tf.Graph
    placement: Placement
    mode: Any  # the VARIABLE_UPDATES object that holds the variables
    towers: list[Tower]
    template: Template
    train_op: tf.Operation  # one step: every tower, one update
    loop: Any  # `device_loop.Loop` of many steps inside the graph, or None
    step: tf.Tensor  # int64 scalar, the global step after `train_op`
    loss: tf.Tensor  # float32 scalar, mean over the global batch
    total_loss: tf.Tensor  # the loss and the weight decay's penalty
    metrics: dict[str, tf.Tensor]  # float32 scalars, means over the global batch
    learning_rate: tf.Tensor  # float32 scalar
    global_step: tf.Variable  # int64 scalar
    position: tf.Variable  # int64 scalar, examples consumed
    averages: dict[str, tf.Variable]  # variable -> its moving average, or {}
    saved: dict[str, tf.Variable]  # checkpoint name -> variable
    initializer: tf.Operation  # of every variable
    feed: Feed  # its initializer runs once variables have their values
    sync: tf.Operation  # runs after that
    options: Options
    num_examples: int  # of one epoch

    @property
    def examples_per_step(self) -> int:
        """The global batch size."""
        return self.options.batch_size * len(self.towers)


def build(
    model: Any,
    source: Any,
    update: Update,
    *,
    placement: Placement,
    options: Options,
    modes: Mapping[str, Callable[..., Any]] = VARIABLE_UPDATES,
) -> TrainGraph:
    """Builds the train graph.

    Args:
      model: a `models.Model`.
      source: where batches come from, of `towers.inputs`.
      update: optimizer, learning rate, weight decay.
      placement: devices of the towers and variables.
      options: batch size and the rest.
      modes: the table that `options.variable_update` is a row of.

    Raises:
      ValueError: the model does something that towers cannot repeat, or its blocks do
        not fit the data; the sentence names the block or the variable.
    """
    graph = tf.Graph()
    with graph.as_default():
        mode = _mode(modes, placement, options)
        with tf.device(placement.master):
            global_step = v1.train.create_global_step()
            position = _counter("position")
            now = position.read_value()
            rate = update.learning_rate(tf.cast(now / source.num_examples, tf.float32))
        feed = source.feed(
            placement.groups,
            batch_size=options.batch_size,
            position=now,
            limit=options.limit,
        )
        seen = _examples_seen(feed.batches, placement.master, joined=mode.exchanges)
        template, towers = stamp_towers(
            _task(model, source, options), feed.batches, mode, total_weights=seen
        )
        variables = [mode.variables[name] for name in template.trainable]
        changes = mode.apply(towers, template.trainable, update, rate)
        changes += _follow_statistics(towers, template, mode)
        averages, follow = _moving_averages(variables, update, global_step, changes)
        with tf.device(placement.master):
            consumed = _advance(position, now, options, len(towers))
            ends = [*changes, *follow, consumed, feed.step_op]
            train_op, step = _count_step(global_step, ends)
            loss, metrics = join_shares(towers, joined=mode.exchanges)
            total_loss = loss + update.penalty(variables)
        return TrainGraph(
            graph=graph,
            placement=placement,
            mode=mode,
            towers=towers,
            template=template,
            train_op=train_op,
            loop=None,
            step=step,
            loss=loss,
            total_loss=total_loss,
            metrics=metrics,
            learning_rate=rate,
            global_step=global_step,
            position=position,
            averages=averages,
            saved=mode.saved(v1.global_variables()),
            initializer=v1.global_variables_initializer(),
            feed=feed,
            sync=mode.sync(),
            options=options,
            num_examples=source.num_examples,
        )


def _task(model, source, options: Options) -> Task:
    return Task(
        model=model,
        num_classes=source.num_classes,
        data_format=options.data_format,
        dtype=options.dtype,
        seed=options.seed,
        compiled=options.xla_compile,
    )


def stamp_towers(
    task: Task,
    batches: Sequence[Batch],
    variables: Any,
    *,
    total_weights: Sequence[tf.Tensor],
    scope: str = "tower",
) -> tuple[Template, list[Tower]]:
    """Traces the task once and stamps it on the device of every tower.

    Args:
      task: what a tower computes.
      batches: one per tower.
      variables: makes them and says how each tower reads them: a row of
        `VARIABLE_UPDATES`, or one like it.
      total_weights: what each tower's shares are shares of; 1 makes them sums.
      scope: prefix of the towers' names.
    """
    features, labels = batches[0].features, batches[0].labels
    template = tower_lib.trace(
        task,
        tf.TensorSpec(features.shape, features.dtype),
        tf.TensorSpec(labels.shape, labels.dtype),
        create=variables.create,
    )
    cast = precision.Casts()
    towers = [
        tower_lib.stamp(
            template,
            index,
            scope=f"{scope}_{index}",
            device=device,
            inputs={**batch._asdict(), "total_weight": total_weights[index]},
            reads={
                name: cast(variables.read(name, index), dtype)
                for name, dtype in template.reads.items()
            },
        )
        for index, (device, batch) in enumerate(
            zip(variables.placement.towers, batches)
        )
    ]
    return template, towers


def join_shares(
    towers: Sequence[Tower], *, joined: bool = True
) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """Loss and metrics of a step.

    Args:
      towers: of the step.
      joined: whether the towers' shares add up to a mean; otherwise each tower has a
        mean of its own, and the mean of these is taken.
    """
    part = 1.0 if joined else 1.0 / len(towers)

    def join(shares: list[tf.Tensor], name: str) -> tf.Tensor:
        return tf.multiply(tf.add_n(shares), part, name=name)

    loss = join([tower.loss for tower in towers], "loss")
    metrics = {
        name: join([tower.metrics[name] for tower in towers], name)
        for name in towers[0].metrics
    }
    return loss, metrics


def _mode(modes, placement: Placement, options: Options):
    """Holds the variables of the current graph."""
    make = modes[options.variable_update]
    return make(placement, seed=options.seed, exchange=options.exchange)


def _examples_seen(
    batches: Sequence[Batch], device: str, *, joined: bool
) -> list[tf.Tensor]:
    """What each tower's shares are shares of: all examples of the step, or its own."""
    weights = []
    for batch in batches:
        with tf.device(batch.weights.device):
            weights.append(tf.reduce_sum(batch.weights))
    with tf.device(device):
        if joined:
            weights = [tf.add_n(weights)] * len(weights)
        # A step may lie beyond the last example as a whole: then nothing is learnt.
        return [tf.maximum(weight, 1.0) for weight in weights]


def _counter(name: str) -> tf.Variable:
    return v1.get_variable(
        name, [], tf.int64, v1.zeros_initializer(), trainable=False, use_resource=True
    )


def _count_step(global_step, ends) -> tuple[tf.Operation, tf.Tensor]:
    """The operation that ends a step, and the global step after it."""
    with tf.control_dependencies(ends):
        train_op = global_step.assign_add(1, read_value=False)
    with tf.control_dependencies([train_op]):
        return train_op, global_step.read_value()


def _advance(position, now, options: Options, num_towers: int) -> tf.Operation:
    """The position after this step: never beyond the last example that counts."""
    then = now + options.batch_size * num_towers
    if options.limit is not None:
        then = tf.minimum(then, options.limit)
    return position.assign(then, read_value=False)


def _follow_statistics(towers, template: Template, mode) -> list[tf.Operation]:
    """Moves the moving averages of batch norm towards the mean of the towers'."""
    changes = []
    for index, (rule, _) in enumerate(template.statistics):
        variable = mode.variables[rule.variable]
        with tf.name_scope("statistics"), tf.device(variable.device):
            values = [tower.statistics[index] for tower in towers]
            value = tf.add_n(values) / len(values) if len(values) > 1 else values[0]
            change = (variable.read_value() - value) * (1.0 - rule.momentum)
            changes.append(variable.assign_sub(change, read_value=False))
    return changes


def _moving_averages(variables, update: Update, global_step, changes):
    """Averages of the trainable variables, moved after the changes of a step."""
    if not update.ema_decay:
        return {}, []
    average = tf.train.ExponentialMovingAverage(update.ema_decay, global_step)
    with tf.control_dependencies(changes):
        follow = average.apply(variables)
    return {v.op.name: average.average(v) for v in variables}, [follow]
