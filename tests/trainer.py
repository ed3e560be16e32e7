"""Trains small models in-process, for tests that compare."""

import dataclasses

import numpy as np
import tensorflow as tf

from models.model import Images, Model, Recipe, Schedule
from tests import arrays
from towers import graph
from towers.callbacks.base import NEVER, Callback
from towers.checkpoints import checkpoint
from towers.data import inputs
from towers.gradients.exchange import GradientExchange
from towers.layout import placement
from towers.layout.graph_names import checkpoint_name
from towers.layout.parts import Parts
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.optimizer import Update
from towers.session import device_loop, loop
from towers.verification import reference

v1 = tf.compat.v1

MOMENTUM = Update("momentum", Piecewise((0.05,)), weight_decay=1e-3)


def model_of(
    *blocks, name: str = "chain", shape=(4, 4, 1), num_classes: int = 5, **parts
) -> Model:
    """A chain of blocks for images, by default those of `random_source`.

    Args:
      *blocks: functions, whose names are the blocks', or (name, function).
      name: of the model.
      shape: of an image.
      num_classes: of the labels.
      **parts: of `Model`.
    """
    pairs = ((b.__name__, b) if callable(b) else b for b in blocks)
    return Model(
        name=name,
        blocks=tuple(pairs),
        inputs=Images(shape=shape, num_classes=num_classes),
        recipe=Recipe(batch_size=4, schedule=Schedule(rates=(0.1,))),
        **parts,
    )


def dense_model(name: str = "dense") -> Model:
    """Two dense layers with dropout between them."""

    def hidden(x, nn):
        return nn.dropout(nn.dense(nn.flatten(x), 16, activation=tf.nn.relu), 0.5)

    def logits(x, nn):
        return nn.dense(x, nn.num_classes)

    return model_of(hidden, logits, name=name)


def normed_model() -> Model:
    """A convolution, batch norm and a dense layer."""

    def block(x, nn):
        x = nn.batch_norm(nn.conv(x, 4, 3, use_bias=False), activation=tf.nn.relu)
        return nn.dense(nn.flatten(x), nn.num_classes)

    return model_of(block, name="normed")


def random_source(
    shape=(4, 4, 1), num_classes=5, num_examples=70, preprocessing="scale", out=None
) -> inputs.DatasetSource:
    """Random uint8 images, shuffled, and distorted if the preprocessing does so.

    Args:
      shape: of an image.
      num_classes: of the labels.
      num_examples: in an epoch.
      preprocessing: a row of `PREPROCESSING`.
      out: shape of the features; that of the images when None.
    """
    rng = np.random.default_rng(3)
    images = rng.integers(0, 256, (num_examples, *shape), dtype=np.uint8)
    labels = rng.integers(0, num_classes, num_examples)
    request = inputs.Request(shape=out or shape, preprocessing=preprocessing, seed=5)
    return inputs.from_arrays(images, labels, num_classes=num_classes, request=request)


def embedding_model() -> Model:
    """A model with sparse gradients, in which several examples share rows."""

    def embedding(x, nn):
        table = nn.variable("table", [8, 5])
        index = tf.cast(nn.flatten(x)[:, :6] * 3.9, tf.int32)
        return tf.reduce_sum(tf.gather(table, tf.math.floormod(index, 8)), 1)

    return model_of(embedding)


def subject(**changes) -> reference.TrainingSubject:
    """A small `Subject` of `towers.verify`; `changes` replace parts of it."""
    parts = dict(
        model=dense_model(),
        source=random_source(),
        update=MOMENTUM,
        global_batch=8,
        num_steps=3,
    )
    return reference.TrainingSubject(**(parts | changes))


class Trainer:
    """A train graph on logical CPU devices and its session.

    Args:
      model, source, update: as `graph.build` takes them; `dense_model` and
        `random_source` when None.
      towers: how many.
      batch_size: per tower.
      at_a_time: towers that compute at a time; `placement.local` decides when None.
      **options: of `graph.Options`; `exchange` is a dict of the fields of `Exchange`.

    Attributes:
      placement, train, session: made of these; the variables are not initialized.
    """

    def __init__(
        self,
        model: Model | None = None,
        source=None,
        *,
        towers: int = 1,
        batch_size: int = 8,
        update: Update = MOMENTUM,
        at_a_time: int | None = None,
        **options,
    ):
        exchange = GradientExchange(**options.pop("exchange", {}))
        how, shards = options.get("pipeline"), options.get("shards")
        stages = max(how.stages if how else 1, shards.devices if shards else 1)
        where = placement.local(towers * stages, kind="cpu", num_stages=stages)
        if at_a_time is not None:
            where = dataclasses.replace(where, at_a_time=at_a_time)
        self.placement = where
        self.train = graph.build(
            model or dense_model(),
            random_source() if source is None else source,
            update,
            placement=self.placement,
            options=graph.Options(batch_size=batch_size, exchange=exchange, **options),
        )
        self.session = v1.Session(
            graph=self.train.graph, config=placement.session_config(self.placement)
        )

    def add_loop(self) -> "Trainer":
        """Adds the loop that runs steps inside the graph; to be called first."""
        train = self.train
        with train.graph.as_default():
            inner = device_loop.build(train.train_op, train.step, train.loss)
        self.train = train._replace(loop=inner)
        return self

    def start(self, directory: str | None = None) -> "Trainer":
        """Initializes the variables, from the directory's newest checkpoint if any."""
        with self.train.graph.as_default():
            saver = directory and checkpoint.Checkpoints(directory, self.train.saved)
        loop.start(
            self.train, self.session, lambda s: saver.restore(s) if saver else None
        )
        return self

    def run(self, hooks, last_step: int, steps_per_loop: int = 1) -> int:
        """Runs steps, one per call or inside the graph; returns the global step."""
        return loop.run(
            self.train,
            self.session,
            hooks,
            last_step=last_step,
            steps_per_loop=steps_per_loop,
        )

    def steps(self, last_step: int, hooks=()) -> dict[str, np.ndarray]:
        """Trains to a global step; returns the saved variables by name."""
        loop.run(self.train, self.session, hooks, last_step=last_step)
        return self.values()

    def to_the_end(self) -> dict[str, np.ndarray]:
        """Trains until every example of nonzero weight was seen, as `steps`."""
        step = int(self.session.run(self.train.global_step))
        return self.steps(step + loop.steps_left(self.train, self.session))

    def values(self) -> dict[str, np.ndarray]:
        """The saved variables by name."""
        return whole(self.train.saved, self.session.run(self.train.saved))

    def everything(self) -> dict[str, np.ndarray]:
        """All variables of the session by name, what is not saved too.

        Runs that end equal here are equal in what a checkpoint has lost.
        """
        with self.train.graph.as_default():
            variables = [*v1.global_variables(), *v1.local_variables()]
        return self.session.run({checkpoint_name(v): v for v in variables})

    def save(self, directory: str) -> None:
        """Writes a checkpoint."""
        with self.train.graph.as_default():
            saver = checkpoint.Checkpoints(directory, self.train.saved)
        saver.save(self.session, int(self.session.run(self.train.global_step)))


class Do(Callback):
    """Calls a function after a step, or after every session call of several steps.

    Args:
      act: the function, without arguments.
      at: the step after which it is called, which is then run by itself; None for
        after each call of several steps.
    """

    def __init__(self, act, at=None):
        self._act, self._at, self._seen = act, at, 0

    def next_due(self, step):
        return self._at if self._at and step < self._at else NEVER

    def after_run(self, run_context, run_values):
        self._seen += 1
        if self._seen == self._at:
            self._act()

    def after_steps(self, step, losses, seconds):
        self._seen = step
        if self._at is None:
            self._act()


def trained(mode: str, *, steps: int = 6, towers: int = 4, **options) -> Trainer:
    """A `Trainer` of the dense model, after some steps in a mode."""
    options = {"batch_size": 3, **options}
    training = Trainer(
        dense_model(), random_source(), towers=towers, variable_update=mode, **options
    ).start()
    training.steps(steps)
    return training


def whole(variables: dict, values: dict) -> dict[str, np.ndarray]:
    """Values by name, with the parts of partitioned variables concatenated."""
    return {
        name: np.concatenate(value, variables[name].axis)
        if isinstance(variables[name], Parts)
        else value
        for name, value in values.items()
    }


def difference(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> float:
    """Largest difference over all float variables, relative to each's largest value.

    Others must be equal.  All must be finite, and alike in shape and dtype.
    """
    _assert_same_names(first, second)
    worst = 0.0
    for name, value in first.items():
        arrays.assert_alike(value, second[name], name)
        if value.dtype.kind == "f":
            scale = np.max(np.abs(value)) or 1.0
            worst = max(worst, float(np.max(np.abs(value - second[name])) / scale))
        else:
            np.testing.assert_array_equal(value, second[name], err_msg=name)
    return worst


def assert_same_bits(
    first: dict[str, np.ndarray], second: dict[str, np.ndarray]
) -> None:
    """Every variable finite, and equal in shape, dtype and every bit."""
    _assert_same_names(first, second)
    for name, value in first.items():
        arrays.assert_same_bits(value, second[name], name)


def _assert_same_names(first: dict, second: dict) -> None:
    assert set(first) == set(second), set(first) ^ set(second)
    assert first, "nothing to compare"
