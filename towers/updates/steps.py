"""The step of towers that step together: from their shares to what counts it.

Their gradients, batch statistics, losses and metrics are reduced; the mode updates the
variables, then the averages follow, and last the global step counts what was done.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from towers.compute.stamping import join_shares
from towers.compute.tower import Template, Tower
from towers.data.feed import Feed
from towers.gradients import reduction
from towers.layout import parts
from towers.updates.clients import Step, Sums
from towers.updates.loss_scale import LossScale
from towers.updates.optimizer import Update

v1 = tf.compat.v1


class Counters(NamedTuple):
    """Of steps and examples."""

    global_step: tf.Variable  # int64 scalar
    position: tf.Variable  # int64 scalar, examples consumed
    position_before: tf.Tensor  # int64 scalar, its value before the step


def count(device: str) -> Counters:
    """Makes the counters."""
    with tf.device(device):
        position = v1.get_variable(
            "position",
            [],
            tf.int64,
            v1.zeros_initializer(),
            trainable=False,
            use_resource=True,
        )
        global_step = v1.train.create_global_step()
        return Counters(global_step, position, position.read_value())


@dataclasses.dataclass(kw_only=True)
class Steps:
    """Makes the steps of towers that step together.

    Attributes:
      mode: holds the variables; a row of `variable_update.VARIABLE_UPDATES`.
      template: what the towers are copies of.
      update: optimizer, weight decay, moving averages.
      rate: learning rate, float32 scalar.
      feed: where the towers' batches come from.
      counters: of steps and examples.
      tower_batch: examples per tower and step.
      limit: how many examples of the stream count; None for all.
      scale: what the loss was multiplied by; None for nothing.
      peers: those who train together, of `clients`.

    Raises:
      ValueError: a step may have to be left out, and the mode cannot.
    """

    mode: Any
    template: Template
    update: Update
    rate: tf.Tensor
    feed: Feed
    counters: Counters
    tower_batch: int
    limit: int | None
    scale: LossScale | None
    peers: Any

    def __post_init__(self):
        names = self.template.trainable
        self._trained = {name: self.mode.held(name) for name in names}
        self._variables = [v for own in self._trained.values() for v in parts.each(own)]
        if self.scale and self.scale.skipped is not None and self.mode.deferred:
            raise ValueError(
                f"loss_scaling: {type(self.mode).__name__} applies a gradient of an "
                "earlier step, which cannot be left out; write grow_every=0"
            )
        self._average = None
        if self.update.ema_decay:
            self._average = tf.train.ExponentialMovingAverage(
                self.update.ema_decay, self.counters.global_step
            )

    def steps(self, towers: Sequence[Tower]) -> list[Step]:
        """One step of all towers, or one of each."""
        groups = [towers] if self.mode.together else [[tower] for tower in towers]
        return [self.step(group) for group in groups]

    def penalty(self, loss: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """What the weight decay adds to a step's loss, and their sum."""
        # The values that the step reads: its update comes after these reads.
        values = {name: self.mode.latest(name, 0) for name in self._trained}
        with tf.device(self.mode.placement.master), tf.name_scope("penalty"):
            penalty = self.update.penalty(values)
            return penalty, loss + penalty

    def step(self, group: Sequence[Tower]) -> Step:
        """The towers' update, and what counts it."""
        gradients = self.mode.reduce(group, self.template.trainable)
        statistics = self._mean_statistics(group)
        with tf.device(self.mode.placement.master):
            loss, metrics = join_shares(group, joined=self.mode.joined)
        sums = Sums(gradients, statistics, loss, metrics)
        refills = [self.feed.refills[tower.index] for tower in group]

        def finish(sums: Sums) -> Step:
            changes = self._changes(sums.gradients, sums.statistics)
            with tf.device(self.mode.placement.counters):
                # A follower that begins reads the position until it has sent its part.
                with tf.control_dependencies([sums.loss]):
                    consumed = self._advance(self.examples(len(group)))
                # A group waits on each device for what is there, so that one message
                # comes from each task of a cluster, not one from each variable.
                with tf.control_dependencies([tf.group(*changes), consumed, *refills]):
                    train_op = self.counters.global_step.assign_add(1, read_value=False)
                with tf.control_dependencies([train_op]):
                    step = self.counters.global_step.read_value()
            return Step(train_op, step, sums.loss, sums.metrics)

        return self.peers.step(sums, finish=finish, refills=refills)

    def _changes(self, gradients, statistics) -> list[tf.Operation]:
        if self.scale is None:
            return self._apply(gradients, statistics)
        gradients = self.scale.unscale(gradients)
        gate = self.scale.gate(gradients)
        if gate is None:
            return self._apply(gradients, statistics)
        passed = [gate.through(value) for value in statistics]
        changes = self._apply(gate.gradients(gradients), passed)
        return [gate.end(changes), *self.scale.follow(gate.open)]

    def _apply(self, gradients, statistics) -> list[tf.Operation]:
        """The changes of variables, batch norm's averages and moving averages."""
        names = self.template.trainable
        changes = self.mode.update(gradients, names, self.update, self.rate)
        with tf.name_scope("statistics_update"):
            for (rule, _), value in zip(self.template.statistics, statistics):
                variable = self.mode.variables[rule.variable]
                with tf.device(variable.device):
                    change = (variable.read_value() - value) * (1.0 - rule.momentum)
                    changes.append(variable.assign_sub(change, read_value=False))
        if self._average is None:
            return changes
        with tf.control_dependencies(changes):
            return [*changes, *self._move_averages()]

    def _move_averages(self) -> list[tf.Operation]:
        """Each where its variable lies: they are as large.

        Made in the order of the variables, and so of the parts of one.
        """
        moved = []
        together = itertools.groupby(self._variables, lambda variable: variable.device)
        for device, variables in together:
            with tf.device(device):
                moved.append(self._average.apply(list(variables)))
        return moved

    def _mean_statistics(self, group: Sequence[Tower]) -> list[tf.Tensor]:
        """The mean of the towers' batch statistics, beside what follows them."""
        hosts = [self.mode.placement.hosts[tower.index] for tower in group]
        rules = [rule for rule, _ in self.template.statistics]
        devices = [self.mode.variables[rule.variable].device for rule in rules]
        values = list(zip(*(tower.statistics for tower in group)))
        with tf.name_scope("statistics"):
            reduce = reduction.reduce_to_first(hosts)
            totals = reduce(values, [[device] for device in devices])
            count, found = len(group) * self.peers.count, []
            for (total,), device in zip(totals, devices):
                with tf.device(device):
                    found.append(total / count if count > 1 else total)
        return found

    def examples(self, num_towers: int) -> int:
        """In a step with so many towers of this client."""
        return self.tower_batch * num_towers * self.peers.count

    def _advance(self, examples: int) -> tf.Operation:
        """Moves the position: never beyond the last example that counts, but where
        towers step apart and come there together."""
        more = tf.constant(examples, tf.int64)
        if self.limit is not None:
            left = self.limit - self.counters.position_before
            more = tf.minimum(more, tf.maximum(left, 0))
        # The learning rate is that of the position before the step.
        with tf.control_dependencies([self.counters.position_before]):
            return self.counters.position.assign_add(more, read_value=False)

    @property
    def averages(self) -> dict[str, tf.Variable]:
        """Variable -> its moving average, moved after the changes of a step."""
        if self._average is None:
            return {}
        return {
            name: parts.apply(self._average.average, trained)
            for name, trained in self._trained.items()
        }
