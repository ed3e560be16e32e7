"""Steps of this project from the variables of a checkpoint of tf_cnn_benchmarks."""

import contextlib
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import tensorflow as tf

import models
from flags import parse
from models.layers import Layers
from models.model import Model
from towers import graph, planning
from towers.checkpoints import contents, loading, tf_cnn_names
from towers.cluster.sessions import session_config, settle_process
from towers.command_line import CHOICES
from towers.compute import kernels
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


def _no_change(**options: Any) -> contextlib.AbstractContextManager:
    """In place of `kernels.gradients`."""
    del options
    return contextlib.nullcontext()


class OurRun:
    """Training from a checkpoint of tf_cnn_benchmarks; a context manager.

    Attributes:
      names: our name of each variable of the model -> that of tf_cnn_benchmarks.
      trained: our names of the variables that are trained.

    Args:
      arguments: of `towers.train`.
      batches: `images` float32 [steps, towers, batch, height, width, 3], which are
        not prepared any more, and `labels` int32 [steps, towers, batch].
      checkpoint: the variables and the optimizer's slots start at its values.
      dropout: whether there is any.
      plain_gradients: whether all gradients are TensorFlow's own, and none those of
        `towers.compute.kernels`.

    Raises:
      ValueError: the arguments are wrong, or the checkpoint is of another network.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        batches: Mapping[str, np.ndarray],
        checkpoint: str,
        *,
        dropout: bool,
        plain_gradients: bool = False,
    ):
        plan = _plan(arguments, batches, dropout)
        settle_process(plan.placement, plan.config.devices)
        gradients = _no_change if plain_gradients else kernels.gradients
        with mock.patch.object(kernels, "gradients", gradients):
            self._train = train = graph.build(**plan.parts)
        stored = contents.of(checkpoint)
        self.names = tf_cnn_names.pairs(train.saved, stored)
        self.trained: Sequence[str] = train.template.trainable
        self._slots = {
            name: f"{self.names[variable]}/{kind}"
            for name in train.saved
            for variable, _, kind in [name.rpartition("/")]
            if variable in self.names
        }
        if missing := set(self._slots.values()) - stored.keys():
            raise ValueError(f"{checkpoint} has no {min(missing)}")
        with train.graph.as_default():
            self._reads = {name: parts.read(train.saved[name]) for name in self.names}
        config = session_config(plan.placement, plan.config.devices)
        self._session = v1.Session(graph=train.graph, config=config)
        load = functools.partial(self._load, checkpoint)
        loop.start(train, self._session, load)

    def __enter__(self) -> "OurRun":
        return self

    def __exit__(self, *error: object) -> None:
        self._session.close()

    def restore(self, checkpoint: str) -> None:
        """Gives the variables and slots the values of another checkpoint."""
        self._load(checkpoint, self._session)
        self._session.run(self._train.sync)

    def _load(self, checkpoint: str, session: v1.Session) -> None:
        reader = tf.train.load_checkpoint(checkpoint)
        for name, theirs in (self.names | self._slots).items():
            loading.put(session, self._train.saved[name], reader.get_tensor(theirs))

    def step(self) -> tuple[float, float]:
        """Takes a step on the next batch; returns its loss and learning rate."""
        train = self._train
        fetches = [train.total_loss, train.learning_rate, train.step]
        loss, rate, _ = self._session.run(fetches)
        return float(loss), float(rate)

    def values(self) -> dict[str, np.ndarray]:
        """Our name -> value of each variable of the model."""
        return self._session.run(self._reads)


def take(
    arguments: Sequence[str],
    batches: Mapping[str, np.ndarray],
    checkpoint: str,
    **options: bool,
) -> Steps:
    """Takes a step for each batch; the arguments are those of `OurRun`."""
    with OurRun(arguments, batches, checkpoint, **options) as run:
        told = [run.step()]
        first = run.values()
        told += [run.step() for _ in batches["labels"][1:]]
        losses, rates = map(list, zip(*told))
        return Steps(losses, rates, run.names, first, run.values(), run.trained)


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
