"""Steps of this project from the variables of a checkpoint of tf_cnn_benchmarks."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import models
from flags import parse
from models.layers import Layers
from models.model import Model
from towers import graph, planning
from towers.checkpoints import tf_cnn_names
from towers.cluster.sessions import session_config, settle_process
from towers.command_line import CHOICES
from towers.data import inputs
from towers.layout import parts
from towers.session import loop

v1 = tf.compat.v1


class Steps(NamedTuple):
    """What some steps have computed.

    Attributes:
      losses: with weight decay's term, of each step.
      rates: the learning rate of each step.
      names: our name of each variable of the model -> that of tf_cnn_benchmarks.
      first: our name of each variable -> its value after the first step.
      values: the same after the last.
      trained: our names of the variables that are trained.
    """

    losses: list[float]
    rates: list[float]
    names: dict[str, str]
    first: dict[str, np.ndarray]
    values: dict[str, np.ndarray]
    trained: Sequence[str]


class _WithoutDropout(Layers):
    """Layers that drop nothing."""

    def dropout(self, x: tf.Tensor, rate: float) -> tf.Tensor:
        """The activation as it is."""
        del rate
        return x


def take(
    arguments: Sequence[str],
    batches: Mapping[str, np.ndarray],
    checkpoint: str,
    *,
    dropout: bool,
) -> Steps:
    """Takes a step for each batch.

    Args:
      arguments: of `towers.train`.
      batches: `images` float32 [steps, towers, batch, height, width, 3], which are
        not prepared any more, and `labels` int32 [steps, towers, batch].
      checkpoint: of tf_cnn_benchmarks; the variables start at its values.
      dropout: whether there is any.

    Raises:
      ValueError: the arguments are wrong, or the checkpoint is of another network.
    """
    plan = _plan(arguments, batches, dropout)
    settle_process(plan.placement, plan.config.devices)
    train = graph.build(**plan.parts)
    reader = tf.train.load_checkpoint(checkpoint)
    stored = reader.get_variable_to_shape_map()
    names = tf_cnn_names.pairs(train.saved, stored)

    def restore(session: v1.Session) -> None:
        for name, theirs in names.items():
            held, value = train.saved[name], reader.get_tensor(theirs)
            for piece, part in zip(parts.each(held), parts.cut(value, held)):
                session.run(piece.initializer, {piece.initializer.inputs[1]: part})

    config = session_config(plan.placement, plan.config.devices)
    fetches = [train.total_loss, train.learning_rate, train.step]
    with v1.Session(graph=train.graph, config=config) as session:
        loop.start(train, session, restore)
        told = [session.run(fetches)[:2]]
        variables = {name: parts.read(train.saved[name]) for name in names}
        first = session.run(variables)
        told += [session.run(fetches)[:2] for _ in batches["labels"][1:]]
        values = session.run(variables)
    losses, rates = zip(*told)
    return Steps(
        [*map(float, losses)],
        [*map(float, rates)],
        names,
        first,
        values,
        train.template.trainable,
    )


def _plan(
    arguments: Sequence[str], batches: Mapping[str, np.ndarray], dropout: bool
) -> planning.Plan:
    """The run, on the batches in their order."""

    def get_model(name: str) -> Model:
        model = models.get(name)
        return model if dropout else dataclasses.replace(model, layers=_WithoutDropout)

    def find_sources(config: Any, model: Model) -> tuple[inputs.NamedSource, None]:
        images, labels = batches["images"], batches["labels"]
        source = inputs.from_arrays(
            images.reshape(-1, *images.shape[3:]),
            labels.reshape(-1),
            num_classes=config.model.num_classes or model.inputs.num_classes,
            training=False,
        )
        # The epochs of the learning rate are those of the data set of the model.
        source.num_examples = model.inputs.num_examples
        return source, None

    config = parse.parse(["towers.train", *arguments], CHOICES)
    return planning.make(config, get_model, find_sources=find_sources)
