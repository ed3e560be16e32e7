"""Predictions: the outputs of the last block for the examples of a split, in order."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from flags.problem import wrong_setting
from towers.data.source import Feed, refilled
from towers.errors import crash
from towers.errors.interrupts import Interrupted
from towers.evaluation import eval_graph, evaluator
from towers.evaluation.saved_variables import restored
from towers.layout.graph_names import EVALUATION
from towers.planning import Plan
from towers.session.progress import Console
from towers.session.stop import StopOnSignal
from towers.variable_update.base import VariableUpdate

v1 = tf.compat.v1


class PredictionGraph(NamedTuple):
    """Towers that predict, in a graph with the variables."""

    feed: Feed
    predictions: Any  # nest of tensors [examples of a step, ...]
    num_examples: int


def attach(
    plan: Plan, variables: VariableUpdate | eval_graph.AveragedVariables
) -> PredictionGraph:
    """Adds towers that predict the evaluation split to the current graph.

    Args:
      plan: of the run.
      variables: creates the variables and reads them for a tower.

    Raises:
      ValueError: the towers cannot be made, or the last block does not return a row for
        each example.
    """
    source, placement = plan.eval_source, plan.placement
    assert source is not None  # of a plan that predicts
    task = dataclasses.replace(evaluator.task(plan), predicts=True)
    if plan.model.stateful and plan.eval_batch_size * len(placement.towers) > 1:
        raise wrong_setting(
            "eval_batch_size",
            plan.eval_batch_size,
            f"{plan.model.name} predicts the examples one after another, each with "
            "the state after the one before",
            "write 1, on one tower",
        )
    limit, size = source.num_examples, plan.eval_batch_size
    with v1.name_scope(EVALUATION):
        feed, template, towers = eval_graph.in_order(
            task, source, variables, batch_size=size, limit=limit
        )
        with tf.device(placement.master):
            joined = {
                name: tf.concat([tower.metrics[name] for tower in towers], 0)
                for name in template.metrics
            }
            joined = refilled(joined, feed.refills)
    nest = tf.nest.map_structure(joined.__getitem__, template.predictions)
    return PredictionGraph(feed, nest, limit)


def batches(
    graph: PredictionGraph, session: v1.Session, stopped: Callable[[], object] = bool
) -> Iterator[Any]:
    """Nests of arrays [examples, ...], step by step, each example once and in order.

    Args:
      graph: from `attach`.
      session: with the variables' values.
      stopped: called before each step; whether to stop.
    """
    session.run(graph.feed.initializer)
    predict = session.make_callable(graph.predictions)
    left = graph.num_examples
    while left > 0 and not stopped():
        step = predict()
        yield tf.nest.map_structure(lambda rows, n=left: rows[:n], step)
        left -= len(tf.nest.flatten(step)[0])


def predict(plan: Plan, console: Console) -> Any:
    """Predicts the evaluation split with the newest checkpoint of the run.

    Args:
      plan: of a run with a `train_dir`.
      console: takes lines for the user.

    Returns:
      the last block's outputs: a nest of arrays [examples, ...], in the order of the
      examples, floats as float32.

    Raises:
      ValueError: there is no checkpoint, or it is of another model.
      Interrupted: a signal ended it.
    """
    with StopOnSignal() as stop:
        attached = restored(plan, console, lambda v: attach(plan, v.mode))
        with attached as (session, graph):
            steps = crash.during("predicting; if memory ran out, lower the batch size")(
                lambda: list(batches(graph, session, lambda: stop.received)),
            )
        if stop.received is not None:
            raise Interrupted(stop.received)
    return tf.nest.map_structure(lambda *rows: np.concatenate(rows), *steps)
