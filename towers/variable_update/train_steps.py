"""A training step: from the towers' gradients to the incremented global step.

Gradients, batch statistics, losses and metrics of the towers that step together are
reduced; the mode updates the variables, then the moving averages are updated, and last
the global step is incremented.
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from towers.compute.copy_tower import join_shares
from towers.compute.tower import Gradient, StatisticRule, Tower
from towers.data import order
from towers.data.damaged_count import DamagedCount
from towers.data.input_wait import InputWait
from towers.data.source import Feed, refilled
from towers.gradients import transfer
from towers.layout import graph_names, parts
from towers.layout.graph_names import REDUCTION
from towers.optimizers.loss_scale import LossScale
from towers.optimizers.optimizer import Update
from towers.variable_update.base import VariableUpdate
from towers.variable_update.step_marks import StepMarks
from towers.variable_update.tower_sums import TowerSums
from towers.variable_update.tower_times import TowerTimes

v1 = tf.compat.v1


class Counters(NamedTuple):
    """Counters of steps and of examples."""

    global_step: tf.Variable  # int64 scalar
    position: tf.Variable  # int64 scalar, examples consumed
    position_before: tf.Tensor  # int64 scalar, its value before the step
    order: tf.Tensor  # int64 scalar, version of the order of examples
    marks: StepMarks | None = None  # of an elastic run
    times: TowerTimes | None = None  # if towers are timed


def create_counters(mode: VariableUpdate, options: Any) -> Counters:
    """Creates the counters, with marks and times if the graph's `Options` ask so."""
    where, device = mode.placement, mode.placement.counters
    with tf.device(device):
        with graph_names.variable_scope():
            position, version = (
                v1.get_variable(name, initializer=np.int64(value), trainable=False)
                for name, value in (("position", 0), (order.NAME, order.NEWEST))
            )
        global_step = v1.train.create_global_step()
        with v1.name_scope(graph_names.READ):
            before = position.read_value()
            order_version = version.read_value()
    marks = StepMarks(device) if options.elastic and mode.together else None
    times = TowerTimes(where.num_towers, device) if options.times_towers else None
    return Counters(global_step, position, before, order_version, marks, times)


class TrainStep(NamedTuple):
    """Towers that step together, and their update."""

    train_op: tf.Operation
    step: tf.Tensor  # int64 scalar, the global step after `train_op`
    loss: tf.Tensor  # float32 scalar, mean over the step's examples
    metrics: dict[str, tf.Tensor]  # float32 scalars, means over the step's examples
    gradients: Sequence[Gradient] = ()  # the means, in the order of the parts


class SingleClient:
    """One client.

    Attributes:
      count: of the clients whose towers step together.
    """

    count = 1

    def step(
        self,
        sums: TowerSums,
        *,
        finish: Callable[[TowerSums], TrainStep],
        refills: Sequence[tf.Operation],
    ) -> TrainStep:
        """The step of all clients.

        Args:
          sums: of this client's towers.
          finish: makes the update from the sums of all, and lets the refills run.
          refills: of this client's input.
        """
        del refills
        return finish(sums)

    def position(self, before: tf.Tensor) -> tf.Tensor:
        """Where this client's part of the next step is in the stream, int64 scalar.

        Args:
          before: the position of the stream before the step.
        """
        return before

    def consumed(self, examples: tf.Tensor) -> tuple[tf.Tensor, list[tf.Operation]]:
        """By how much a step advances the position, int64 scalar.

        Args:
          examples: int64 scalar, those of all clients in this step.

        Returns:
          it, and operations of the step that count the others.
        """
        return examples, []

    def release(self, session: v1.Session) -> None:
        """Lets the other clients begin; called once every variable has its value."""


@dataclasses.dataclass(kw_only=True)
class StepBuilder:
    """Builds the steps of the train graph.

    Attributes:
      mode: holds the variables; a row of `modes.VARIABLE_UPDATES`.
      trainable: names of the trainable variables, in the order of the gradients.
      rules: of the batch statistics, in the order of the towers'.
      update: optimizer, weight decay, moving averages.
      rate: learning rate, float32 scalar.
      feed: where the towers' batches come from.
      counters: of steps and examples.
      sizes: examples per step of each tower of all clients.
      limit: examples of the stream to train on; None for all.
      scale: of the loss; None if it is not scaled.
      peers: this client, from `between_graph.of`.
      first_averages: whether moving averages of batch norm follow the first tower's
        statistics; if not, their mean over the towers.

    Raises:
      ValueError: dynamic loss scaling skips steps, and the mode defers gradients.
    """

    mode: VariableUpdate
    trainable: Sequence[str]
    rules: Sequence[StatisticRule]
    update: Update
    rate: tf.Tensor
    feed: Feed
    counters: Counters
    sizes: Sequence[int]
    limit: int | None
    scale: LossScale | None
    peers: SingleClient
    first_averages: bool = False

    def __post_init__(self) -> None:
        self.update.factors(self.trainable)
        self._trained = {name: self.mode.held(name) for name in self.trainable}
        self._variables = [
            v for held in self._trained.values() for v in parts.each(held)
        ]
        if self.scale and self.scale.skipped is not None and self.mode.deferred:
            raise ValueError(
                f"loss_scaling: {type(self.mode).__name__} applies a gradient of an "
                "earlier step, which cannot be left out; write grow_every=0"
            )
        self.wait = InputWait.of(self.feed, self.mode.placement)
        self._damage = None
        if self.feed.left_out:
            examples = sum(self.sizes)
            device = self.mode.placement.counters
            before = self.counters.position_before
            self._damage = DamagedCount(self.feed, before, examples, device)
        self._average = None
        if self.update.ema_decay:
            self._average = tf.train.ExponentialMovingAverage(
                self.update.ema_decay, self.counters.global_step
            )

    def steps(self, towers: Sequence[Tower]) -> list[TrainStep]:
        """One step of all towers, or of each if the mode is asynchronous."""
        groups = [towers] if self.mode.together else [[tower] for tower in towers]
        return [self.step(group) for group in groups]

    def penalty(self, loss: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """(weight decay's penalty, loss with it), float32 scalars."""
        # The values that the step reads: the update waits for these reads.
        values = {name: self.mode.latest(name, 0) for name in self._trained}
        with tf.device(self.mode.placement.master), tf.name_scope("penalty"):
            penalty = self.update.penalty(values)
            return penalty, loss + penalty

    def step(self, group: Sequence[Tower]) -> TrainStep:
        """The update by a group of towers, and the counters' increments."""
        gradients: list[list[Gradient]] = [[]]
        if group[0].gradients:  # not the forward pass alone
            gradients = self.mode.reduce(group, self.trainable)
        statistics = self._statistics(group)
        refills = [self.feed.refills[tower.index] for tower in group]
        with tf.device(self.mode.placement.master), v1.name_scope(REDUCTION):
            joint = join_shares(group, joined=self.mode.joined)
            loss, metrics = refilled(joint, refills)
            # Without training there are wider ones and pictures, too.
            metrics = {n: m for n, m in metrics.items() if not m.shape.rank}
            rows = self.examples(group) if self.peers.count > 1 else None
            weight = self.feed.exchanged_weight(rows)
        waits, damaged, indices = [], None, [tower.index for tower in group]
        if self.wait and self.feed.waits:
            waits = self.wait.of_batches(indices)
        if self.counters.times:
            waits.append(self.counters.times.add(group))
        if self._damage:
            damaged = self._damage.of_batches(indices)
        sums = TowerSums(gradients, statistics, loss, metrics, weight, damaged)

        def finish(sums: TowerSums) -> TrainStep:
            sums = sums.means()
            if self.scale:
                sums = sums._replace(gradients=self.scale.unscale(sums.gradients))
            if self.counters.marks:
                sums = self.counters.marks.begin(sums)
            changes = self._changes(sums.gradients, sums.statistics)
            with tf.device(self.mode.placement.counters):
                # A follower that starts may read the position until it sends its sums.
                more, counts = self.peers.consumed(self._consumed(self.examples(group)))
                with tf.control_dependencies([sums.loss]):
                    consumed = self._advance(more)
                # `tf.group` groups by device first, so that each task of a cluster
                # sends one message instead of one per variable.
                changed = tf.group(*changes)
                ends = [changed, consumed, *counts, *refills, *waits]
                if self._damage:
                    ends.append(self._damage.add(sums.damaged, more))
                if self.wait and self.feed.staged:
                    done = [changed, joint[0].op]  # without the refills
                    ends += self.wait.of_refills(done, refills)
                with tf.control_dependencies(ends):
                    train_op = self.counters.global_step.assign_add(1, read_value=False)
                if self.counters.marks:
                    train_op = self.counters.marks.end(train_op)
                with tf.control_dependencies([train_op]):
                    step = self.counters.global_step.read_value()
            means = sums.gradients[0]
            return TrainStep(train_op, step, sums.loss, sums.metrics, means)

        return self.peers.step(sums, finish=finish, refills=[*refills, *waits])

    @property
    def unsaved(self) -> list[tf.Variable]:
        """Variables that are in no checkpoint, to be initialized with the others."""
        marks, times = self.counters.marks, self.counters.times
        seconds = [added.seconds for added in (self.wait, times) if added]
        return seconds + ([marks.begun, marks.done] if marks else [])

    def _changes(
        self, gradients: Sequence[list[Gradient]], statistics: Sequence[tf.Tensor]
    ) -> list[tf.Operation]:
        if not gradients[0]:  # there are no batch statistics then
            return self._follow(statistics)
        if self.scale is None:
            return self._apply(gradients, statistics)
        gate = self.scale.gate(gradients)
        if gate is None:
            return self._apply(gradients, statistics)
        passed = [gate.through(value) for value in statistics]
        changes = self._apply(gate.gradients(gradients), passed)
        return [gate.end(changes), *self.scale.follow(gate.open)]

    def _apply(
        self, gradients: Sequence[list[Gradient]], statistics: Sequence[tf.Tensor]
    ) -> list[tf.Operation]:
        """Updates of variables, batch norm's averages and moving averages."""
        changes = self.mode.update(gradients, self.trainable, self.update, self.rate)
        changes += self._follow(statistics)
        if self._average is None:
            return changes
        with tf.control_dependencies(changes):
            return [*changes, *self._move_averages()]

    def _follow(self, statistics: Sequence[tf.Tensor]) -> list[tf.Operation]:
        """Updates of batch norm's averages and of states."""
        changes = []
        with tf.name_scope("statistics_update"):
            for rule, value in zip(self.rules, statistics):
                variable = self.mode.variables[rule.variable]
                with tf.device(variable.device):
                    if rule.momentum is None:
                        changes.append(variable.assign(value, read_value=False))
                        continue
                    change = (parts.read(variable) - value) * (1.0 - rule.momentum)
                    changes.append(variable.assign_sub(change, read_value=False))
        return changes

    def _move_averages(self) -> list[tf.Operation]:
        """Updates of the moving averages, each on its variable's device.

        They are created in the order of the variables and of their parts.
        """
        assert self._average is not None
        updates = []
        neighbours = itertools.groupby(self._variables, lambda v: v.device)
        for device, variables in neighbours:
            with tf.device(device):
                updates.append(self._average.apply(list(variables)))
        return updates

    def _statistics(self, group: Sequence[Tower]) -> list[tf.Tensor]:
        """The mean of each batch statistic and the sums of states, on the devices of
        their variables."""
        # If not joined, each tower has its own model, and the first is saved.
        first_only = self.first_averages or not self.mode.joined
        averaged = group[:1] if first_only else group
        count, statistics = len(averaged) * self.peers.count, []
        if len(set(self.sizes)) > 1 and not first_only:
            averaged, count = [self._weighted(tower) for tower in group], 1
        totals = self._totals(group, states=True)
        totals |= self._totals(averaged, states=False)
        with v1.name_scope(f"{REDUCTION}statistics/"):
            for index, rule in enumerate(self.rules):
                total = totals[index]
                if count > 1 and not rule.is_state:
                    with tf.device(self.mode.variables[rule.variable].device):
                        total /= count
                statistics.append(total)
        return statistics

    def _totals(self, group: Sequence[Tower], *, states: bool) -> dict[int, tf.Tensor]:
        """Index -> sum over the towers, of each state, or of each other statistic."""
        indices = [i for i, rule in enumerate(self.rules) if rule.is_state == states]
        variables = [self.mode.variables[self.rules[i].variable] for i in indices]
        hosts = [self.mode.placement.hosts[tower.index] for tower in group]
        values = [[tower.statistics[i] for tower in group] for i in indices]
        with v1.name_scope(f"{REDUCTION}statistics/"):
            reduce = transfer.reduce_to_first(hosts)
            totals = reduce(values, [[variable.device] for variable in variables])
        return dict(zip(indices, (total for (total,) in totals)))

    def _weighted(self, tower: Tower) -> Tower:
        """The tower, its statistics multiplied by its share of the step's examples."""
        share, statistics = self._size(tower) / sum(self.sizes), []
        for value in tower.statistics:
            with tf.device(value.device):
                statistics.append(value * share)
        return tower._replace(statistics=statistics)

    def _size(self, tower: Tower) -> int:
        """Examples per step of a tower of this client."""
        where = self.mode.placement
        return self.sizes[where.client * len(where.towers) + tower.index]

    def examples(self, group: Sequence[Tower]) -> int:
        """Examples of a step of a group of towers, and of other clients' towers."""
        return sum(self.sizes) if self.mode.together else self._size(group[0])

    def _consumed(self, examples: int) -> tf.Tensor:
        """By how much a step advances the position, int64 scalar.

        It is up to the last example to train on.  Asynchronous towers that reach the
        limit together may go beyond it.
        """
        more = tf.constant(examples, tf.int64)
        if self.limit is not None:
            left = self.limit - self.counters.position_before
            more = tf.minimum(more, tf.maximum(left, 0))
        return more

    def _advance(self, more: tf.Tensor) -> tf.Operation:
        """Advances the position."""
        # The learning rate is that of the position before the step.
        with tf.control_dependencies([self.counters.position_before]):
            return self.counters.position.assign_add(more, read_value=False)

    @property
    def averages(self) -> dict[str, tf.Variable]:
        """Variable's name -> its moving average, updated after the variable."""
        if self._average is None:
            return {}
        averages = {
            name: parts.apply(self._average.average, trained)
            for name, trained in self._trained.items()
        }
        # Without gradients there is none.
        return {name: a for name, a in averages.items() if a is not None}

    @property
    def averages_of(self) -> list[tuple[tf.Variable, tf.Variable]]:
        """(moving average, its variable or part of it)."""
        if self._average is None:
            return []
        pairs = [(self._average.average(v), v) for v in self._variables]
        return [(average, v) for average, v in pairs if average is not None]
