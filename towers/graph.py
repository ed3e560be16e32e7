"""Puts the parts into one `tf.Graph`.

    train = build(model, source, update, placement=placement, options=options)

is the Python API: a model, a batch source, an optimizer and a placement in, the train
graph out.  `plan` makes the same arguments from flags.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from towers import reduction
from towers.exchange import Exchange
from towers.feed import Batch, Feed
from towers.optimizer import Update
from towers.placement import Placement
from towers.stages import Pipeline
from towers.stamping import join_shares, stamp_towers
from towers.tower import Task, Template, Tower
from towers.variable_update import VARIABLE_UPDATES

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
      exchange: what the mode leaves to choose.
      limit: how many examples of the stream count; None for all.
      xla_compile: whether XLA compiles each tower as a whole.
      pipeline: how towers are cut into stages and micro-batches; None: they are not.
    """

    batch_size: int
    data_format: str = "NHWC"
    dtype: tf.DType = tf.float32
    seed: int = 1234
    variable_update: str = "parameter_server"
    exchange: Exchange = Exchange()  # noqa: RUF009 - frozen
    limit: int | None = None
    xla_compile: bool = False
    pipeline: Pipeline | None = None


class Step(NamedTuple):
    """Towers that step together, and their update."""

    train_op: tf.Operation
    step: tf.Tensor  # int64 scalar, the global step after `train_op`
    loss: tf.Tensor  # float32 scalar, mean over the step's examples
    metrics: dict[str, tf.Tensor]  # float32 scalars, means over the step's examples


class TrainGraph(NamedTuple):
    """A built graph and the handles that a session loop needs."""

    graph: tf.Graph
    placement: Placement
    mode: Any  # the VARIABLE_UPDATES object that holds the variables
    towers: list[Tower]
    template: Template
    steps: list[Step]  # one of all towers, or one for each; below is the first
    train_op: tf.Operation  # one step and its update
    loop: Any  # what runs many steps in one call, as `device_loop.Loop`, or None
    step: tf.Tensor  # int64 scalar, the global step after `train_op`
    loss: tf.Tensor  # float32 scalar, mean over the step's examples
    penalty: tf.Tensor  # float32 scalar, what the weight decay adds to the loss
    total_loss: tf.Tensor  # the loss and the penalty
    metrics: dict[str, tf.Tensor]  # float32 scalars, means over the step's examples
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
    examples_per_step: int  # of the towers that step together


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
        make = modes[options.variable_update]
        with tf.device(placement.master):
            global_step = v1.train.create_global_step()
            position = _counter("position")
            now = position.read_value()
            rate = update.learning_rate(tf.cast(now / source.num_examples, tf.float32))
        mode = make(placement, seed=options.seed, exchange=options.exchange)
        feed = source.feed(
            placement.groups,
            batch_size=options.batch_size,
            position=now,
            limit=options.limit,
            apart=not mode.together,
        )
        seen = _examples_seen(feed.batches, placement.master, joined=mode.joined)
        template, towers = stamp_towers(
            _task(model, source, options), feed.batches, mode, total_weights=seen
        )
        makes = _Steps(mode, template, update, rate, feed, position, now, options)
        groups = [towers] if mode.together else [[tower] for tower in towers]
        steps = [makes.step(group) for group in groups]
        with tf.device(placement.master):
            penalty = update.penalty([mode.variables[n] for n in template.trainable])
            total_loss = steps[0].loss + penalty
        return TrainGraph(
            graph=graph,
            placement=placement,
            mode=mode,
            towers=towers,
            template=template,
            steps=steps,
            **steps[0]._asdict(),
            loop=mode.loop([(step.train_op, step.loss) for step in steps]),
            penalty=penalty,
            total_loss=total_loss,
            learning_rate=rate,
            global_step=global_step,
            position=position,
            averages=makes.averages,
            saved=mode.saved(v1.global_variables()),
            initializer=v1.global_variables_initializer(),
            feed=feed,
            sync=mode.sync(),
            options=options,
            num_examples=source.num_examples,
            examples_per_step=options.batch_size * (len(towers) // len(steps)),
        )


def _task(model, source, options: Options) -> Task:
    return Task(
        model=model,
        num_classes=source.num_classes,
        data_format=options.data_format,
        dtype=options.dtype,
        seed=options.seed,
        compiled=options.xla_compile,
        pipeline=options.pipeline,
    )


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


@dataclasses.dataclass
class _Steps:
    """Makes the steps of towers that step together."""

    mode: Any
    template: Template
    update: Update
    rate: tf.Tensor
    feed: Feed
    position: tf.Variable
    now: tf.Tensor  # int64 scalar, the position before the step
    options: Options

    def __post_init__(self):
        names = self.template.trainable
        self._global_step = v1.train.get_global_step()
        self._variables = [self.mode.variables[name] for name in names]
        self._average = None
        if self.update.ema_decay:
            self._average = tf.train.ExponentialMovingAverage(
                self.update.ema_decay, self._global_step
            )

    def step(self, group: Sequence[Tower]) -> Step:
        """The towers' update, and what counts it."""
        changes = self._changes(group)
        with tf.device(self.mode.placement.master):
            consumed = self._advance(len(group))
            refills = [self.feed.refills[tower.index] for tower in group]
            with tf.control_dependencies([*changes, consumed, *refills]):
                train_op = self._global_step.assign_add(1, read_value=False)
            with tf.control_dependencies([train_op]):
                step = self._global_step.read_value()
            loss, metrics = join_shares(group, joined=self.mode.joined)
        return Step(train_op, step, loss, metrics)

    def _changes(self, group: Sequence[Tower]) -> list[tf.Operation]:
        names = self.template.trainable
        gradients = self.mode.reduce(group, names)
        changes = self.mode.update(gradients, names, self.update, self.rate)
        changes += self._follow_statistics(group)
        if self._average is None:
            return changes
        with tf.control_dependencies(changes):
            return [*changes, self._average.apply(self._variables)]

    def _follow_statistics(self, group: Sequence[Tower]) -> list[tf.Operation]:
        """Moves the moving averages of batch norm towards the mean of the towers'."""
        changes, hosts = [], self.mode.placement.hosts
        add = reduction.host_by_host([hosts[tower.index] for tower in group])
        for index, (rule, _) in enumerate(self.template.statistics):
            variable = self.mode.variables[rule.variable]
            with tf.name_scope("statistics"), tf.device(variable.device):
                values = [tower.statistics[index] for tower in group]
                (total,) = add(values, [variable.device])
                value = total / len(values) if len(values) > 1 else total
                change = (variable.read_value() - value) * (1.0 - rule.momentum)
                changes.append(variable.assign_sub(change, read_value=False))
        return changes

    def _advance(self, num_towers: int) -> tf.Operation:
        """Moves the position: never beyond the last example that counts."""
        more = tf.constant(self.options.batch_size * num_towers, tf.int64)
        if self.options.limit is not None:
            more = tf.minimum(more, tf.maximum(self.options.limit - self.now, 0))
        # The learning rate is that of the position before the step.
        with tf.control_dependencies([self.now]):
            return self.position.assign_add(more, read_value=False)

    @property
    def averages(self) -> dict[str, tf.Variable]:
        """Variable -> its moving average, moved after the changes of a step."""
        if self._average is None:
            return {}
        return {v.op.name: self._average.average(v) for v in self._variables}
