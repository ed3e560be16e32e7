"""Evaluation towers, which have no gradients and count every example exactly once."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from models.layers import STATES
from towers.compute.measures import NUM_PICTURES, PICTURES
from towers.compute.tower import StatisticRule, Tower, TowerSpec
from towers.data import row_order
from towers.data.damaged_count import too_many
from towers.data.source import ClientShare, Feed, Source, refilled
from towers.data.stream import unsaved
from towers.layout import parts
from towers.layout.graph_names import EVALUATION
from towers.layout.placement import Placement
from towers.pipelines.tower_copies import AnyTemplate, copy_towers
from towers.variable_update.base import VariableUpdate

v1 = tf.compat.v1


class EvalGraph(NamedTuple):
    """Evaluation towers in a graph with the variables."""

    feed: Feed
    sums: dict[str, tf.Tensor]  # of the losses and metrics over a step's examples
    pictures: dict[str, tf.Tensor]  # of the first examples, as `measures` has them
    weight: tf.Tensor  # float32 scalar, of those examples
    count: tf.Tensor  # int64 scalar, how many they are
    num_steps: int
    examples_per_step: int
    pixels: tf.Tensor  # placeholder, uint8 [height, width, 1 or 3]
    png: tf.Tensor  # string scalar, these as a PNG


class EvalResult(NamedTuple):
    """The results of one evaluation."""

    step: int
    num_examples: int
    means: dict[str, float]  # `loss`, `top_1_accuracy`, ...
    examples_per_second: float
    sums: dict[str, np.ndarray]  # of metrics that are wider, float64
    pictures: dict[str, np.ndarray]  # float32 [examples, height, width, 1 or 3]

    @property
    def values(self) -> dict[str, Any]:
        """The means and the sums, from which the model derives further values."""
        return {**self.means, **self.sums}


class States:
    """A mode for the evaluation of a stateful model: its states are its own.

    The first window of each row begins with zeros, so an evaluation does not depend on
    the one before.

    Args:
      variables: has the other variables.
    """

    def __init__(self, variables: "VariableUpdate | AveragedVariables"):
        self.placement = variables.placement
        self._variables = variables
        self._graph = v1.get_default_graph()
        self._states: dict[str, tf.Variable] = {}

    def create(
        self, name: str, shape: tf.TensorShape, *initializer: Any, **options: Any
    ) -> None:
        """Creates a state, which is not saved, or a variable."""
        if not name.startswith(STATES):
            self._variables.create(name, shape, *initializer, **options)
        elif name not in self._states:
            with self._graph.as_default(), tf.device(self.placement.master):
                self._states[name] = unsaved(tf.zeros(shape))

    def read(self, name: str, tower: int) -> Any:
        """The value of a state or a variable."""
        if name not in self._states:
            return self._variables.read(name, tower)
        with tf.device(self.placement.master):
            return self._states[name].read_value()

    def followed(
        self, feed: Feed, rules: Sequence[StatisticRule], towers: Sequence[Tower]
    ) -> Feed:
        """The feed, whose refills also keep the states for the next step."""
        changes = []
        with tf.device(self.placement.master):
            for index, rule in enumerate(rules):
                if not rule.is_state:
                    continue
                rows = tf.add_n([tower.statistics[index] for tower in towers])
                changes.append(self._states[rule.variable].assign(rows))
            starts = [state.initializer for state in self._states.values()]
            return feed._replace(
                initializer=tf.group(feed.initializer, *starts),
                refills=[*feed.refills, tf.group(*changes)],
            )


class AveragedVariables:
    """A mode for evaluation, which reads moving averages instead of their variables.

    Args:
      mode: holds the variables.
      averages: variable -> its moving average.
    """

    def __init__(
        self, mode: VariableUpdate, averages: Mapping[str, tf.Variable | parts.Parts]
    ):
        self.placement = mode.placement
        self._mode = mode
        self._averages = averages

    def create(self, name: str, *_: Any, **options: Any) -> None:
        """Creates nothing: evaluation reads the variables of the training.

        Raises:
          ValueError: training has no such variable.
        """
        del options
        if name not in self._mode.variables and name not in self._mode.wholes:
            raise ValueError(
                f"variable {name!r} is asked for in evaluation and not in training; "
                "the model is to ask for the same variables in both"
            )

    def read(self, name: str, tower: int) -> Any:
        """The average's value, or the variable's if it has none."""
        average = self._averages.get(name)
        if average is None:
            return self._mode.latest(name, tower)
        return parts.read(average)


def attach(
    task: TowerSpec,
    source: Source,
    *,
    placement: Placement,
    mode: VariableUpdate | AveragedVariables,
    batch_size: int,
    num_examples: int | None = None,
) -> EvalGraph:
    """Adds evaluation towers to the current graph.

    Args:
      task: with `training=False`.
      source: of the split to evaluate.
      placement: of the towers.
      mode: has the variables, or is an `AveragedVariables` of such a mode; it creates
        missing ones.
      batch_size: per tower.
      num_examples: number of the split's first examples; None for all.
    """
    per_step = batch_size * len(placement.towers)
    source = row_order.in_rows(source, task.model, per_step)
    limit = num_examples or source.num_examples
    steps = -(-limit // per_step)
    with v1.name_scope(EVALUATION):
        feed, _, towers = in_order(
            task, source, mode, batch_size=batch_size, limit=limit
        )
        with tf.device(placement.master):
            weight = tf.add_n([tf.reduce_sum(batch.weights) for batch in feed.batches])
            left = limit - tf.stack([batch.first for batch in feed.batches])
            count = tf.reduce_sum(tf.clip_by_value(left, 0, batch_size))
            names = ["loss", *towers[0].metrics]
            shares = [{"loss": tower.loss, **tower.metrics} for tower in towers]
            sums = {name: tf.add_n([share[name] for share in shares]) for name in names}
            sums = refilled(sums, feed.refills)
            pixels = v1.placeholder(tf.uint8, [None, None, None], "pixels")
            png = tf.io.encode_png(pixels, name="png")
    pictures = {
        name.removeprefix(PICTURES): sums.pop(name)
        for name in names
        if name.startswith(PICTURES)
    }
    return EvalGraph(feed, sums, pictures, weight, count, steps, per_step, pixels, png)


def in_order(
    task: TowerSpec,
    source: Source,
    variables: VariableUpdate | AveragedVariables,
    *,
    batch_size: int,
    limit: int,
) -> tuple[Feed, AnyTemplate, list[Tower]]:
    """Towers that read the first `limit` examples of a source in order, each once.

    Args:
      task: with `training=False`.
      source: of the split.
      variables: creates the variables and reads them for a tower.
      batch_size: per tower.
      limit: examples from this index on have weight 0.
    """
    placement, count = variables.placement, batch_size * len(variables.placement.towers)
    states = States(variables) if task.model.stateful else None
    source = row_order.in_rows(source, task.model, count)
    task = dataclasses.replace(task, rows=row_order.of(source, task.model, count))
    feed = source.feed(
        placement.groups,
        batch_size=batch_size,
        position=tf.constant(0, tf.int64),
        limit=limit,
        part=ClientShare(steps=-(-limit // count)),
    )
    template, towers = copy_towers(
        task,
        feed.batches,
        states or variables,
        scalars=[{"total_weight": tf.constant(1.0)}] * len(feed.batches),
        scope=f"{EVALUATION}tower",
    )
    if states:
        feed = states.followed(feed, [rule for rule, _ in template.statistics], towers)
    return feed, template, towers


def run(
    graph: EvalGraph,
    session: v1.Session,
    step: int,
    *,
    follows: bool = False,
    progress: Callable[[int, float], None] | None = None,
    stopped: Callable[[], object] = bool,
) -> EvalResult | None:
    """Evaluates once, from the first example on.

    Args:
      graph: from `attach`.
      session: with the variables' values.
      step: the global step of these values.
      follows: whether the last call with this session ended with the last batch.  Then
        an input that starts again by itself is not initialized, which would read the
        data that is kept in memory again, and leak some memory.
      progress: called with (batches done, examples per second) after each batch.
      stopped: called after each batch; whether to stop.

    Returns:
      the results; None if it was stopped before the last batch.
    """
    if not (follows and graph.feed.begins_anew):
        session.run(graph.feed.initializer)
    fetches = [graph.count, graph.weight, graph.sums]
    next_sums = session.make_callable(fetches)
    # The first steps have the examples of the pictures.
    show_until, first_sums = 0, next_sums
    if graph.pictures:
        show_until = -(-NUM_PICTURES // graph.examples_per_step)
        first_sums = session.make_callable([*fetches, graph.pictures])
    totals: dict[str, Any] = dict.fromkeys(graph.sums, 0.0)
    pictures: dict[str, Any] = dict.fromkeys(graph.pictures, 0.0)
    counted, total_weight = 0, 0.0
    begun = time.perf_counter()
    for index in range(graph.num_steps):
        if index < show_until:
            count, weight, sums, shown = first_sums()
            for name, images in shown.items():
                pictures[name] += images
        else:
            count, weight, sums = next_sums()
        counted += int(count)
        total_weight += float(weight)
        for name, value in sums.items():
            totals[name] += np.asarray(value, np.float64)
        if progress:
            rate = counted / (time.perf_counter() - begun)
            progress(index + 1, rate)
        if index + 1 < graph.num_steps and stopped():
            return None
    seconds = time.perf_counter() - begun
    _check_weight(graph, counted, total_weight)
    return EvalResult(
        step=step,
        num_examples=counted,
        means={
            name: float(total / total_weight)
            for name, total in totals.items()
            if not graph.sums[name].shape.rank
        },
        examples_per_second=counted / seconds,
        sums={
            name: total for name, total in totals.items() if graph.sums[name].shape.rank
        },
        pictures={name: images[:counted] for name, images in pictures.items()},
    )


def _check_weight(graph: EvalGraph, counted: int, weight: float) -> None:
    """Refuses the examples of an evaluation if they weigh too little.

    Args:
      graph: of the evaluation.
      counted: its examples, of all hosts.
      weight: of these.

    Raises:
      ValueError: they weigh nothing, or too many are damaged.
    """
    left_out = graph.feed.left_out
    if left_out and counted - weight > left_out.most:
        raise ValueError(too_many(left_out.most))
    if not weight:
        raise ValueError(
            f"the {counted} examples of the evaluation weigh nothing; give one of them "
            "a weight above 0"
        )
