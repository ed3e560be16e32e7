"""The layers of blocks, and what a block may know about its tower.

A block gets a `Layers` object, usually called `nn`.  It has the layers as methods, and
`nn.training`, `nn.num_classes`, `nn.dtype`, `nn.data_format`.  Variables are made by
`tf.compat.v1.get_variable` in the block's variable scope; a custom getter around the
block determines their devices and the values that are read.
"""

import dataclasses
import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from models.image_layers import (  # noqa: F401 - model files take Kernel here
    Activation,
    ImageLayers,
    Initializer,
    Kernel,
)
from models.logits import Product
from models.uniform import example_normal, example_uniform

v1 = tf.compat.v1


class Statistic(NamedTuple):
    """A batch statistic, and the moving average of it.

    Or a state: the next value of the variable is the sum of all batches' values.
    """

    variable: tf.Tensor  # the moving average, or the state
    value: tf.Tensor  # this batch's value, float32, of the variable's shape
    # average = momentum x average + (1 - momentum) x value; None for a state
    momentum: float | None


class Rows(NamedTuple):
    """The rows of a stateful model: row r of a step continues row r of the step before.

    Index i of the stream is in row i % count, and in step i // count.
    """

    # Examples of a step, of all towers; 0 for those of the batch.
    count: int  # type: ignore[assignment]
    steps: int  # in an epoch


@dataclasses.dataclass(frozen=True)
class BatchStatistics:
    """Functions from the statistics of a batch to those of several batches."""

    count: float  # examples of all, divided by those of this batch
    mean: Callable[[tf.Tensor], tf.Tensor]  # of a tensor that each has, over them
    # float32 [2, channels]: mean and variance of this batch -> of all as one.
    moments: Callable[[tf.Tensor], tf.Tensor]


# Prefix of the names of states.
STATES = "carried/state/"

# The moving averages of batch norm, and how each begins.
_MOVING = {"moving_mean": v1.zeros_initializer, "moving_variance": v1.ones_initializer}


class Layers(ImageLayers):
    """Layers on `get_variable` and `tf.nn`, for one tower.

    Attributes:
      training: whether dropout drops and batch norm uses the batch's statistics.
      num_classes: of the data set; of pairs, (users, items).
      statistics: batch statistics for moving averages; `batch_norm` appends them.
      joined: makes `batch_norm` take several batches as one, or None.
      products: every layer that may be the classifier at the end.
      tables: every table from which `embedding` looked up rows.
      lookup: (ids, table) -> rows if the table is in parts, else None.
      trains: a variable's name -> whether it is trained, rather than frozen.
      rows: of a stateful model; None for others.
      open_states: name -> variable of each state that `final_state` does not have yet.
      progress: share of the training that is done, float32 scalar from 0 to 1, by the
        examples before the step: equal on all towers, and in all their stages and
        micro-batches.  1 outside of training.

    Args:
      seed: of dropout.
      first_example: int64 scalar, index in the stream of the batch's first example.
    """

    def __init__(
        self,
        *,
        training: bool,
        num_classes: int | tuple[int, int],
        data_format: str = "NHWC",
        dtype: tf.DType = tf.float32,
        seed: int = 0,
        first_example: tf.Tensor | int = 0,
    ):
        self.training = training
        self.num_classes: Any = num_classes  # an int, or for pairs (users, items)
        super().__init__(data_format=data_format, dtype=dtype)
        self.statistics: list[Statistic] = []
        self._seed = seed
        self._first_example = first_example
        self.joined: BatchStatistics | None = None
        self.products: list[Product] = []
        self.tables: list[tf.Tensor] = []
        self.lookup: Callable[[tf.Tensor, tf.Tensor], tf.Tensor | None] | None = None
        self.trains: Callable[[str], bool] = lambda name: True
        self.progress: tf.Tensor | float = 1.0
        self.rows: Rows | None = None
        self.open_states: dict[str, tf.Tensor] = {}

    def dense(
        self,
        x: tf.Tensor,
        units: int,
        *,
        use_bias: bool = True,
        activation: Activation = None,
        initializer: Initializer = None,
        bias_initializer: Initializer = None,
    ) -> tf.Tensor:
        """Fully connected layer on the last axis.

        Args:
          x: [batch, ..., features].
          units: number of outputs.
          use_bias: whether a bias is added.
          activation: applied last.
          initializer: of the kernel; None for truncated normal of variance 1 /
            features, or with an activation 2 / features (`initial_values`).
          bias_initializer: None for zeros.

        Returns:
          [batch, ..., units].
        """
        *outer, features = x.shape
        if not outer:  # the batch would be taken for the features
            raise ValueError("x has no features; it is [batch, ..., features]")
        normal = self.initial_values.of_dense(features, activation=bool(activation))
        # One product of matrices: a batched one would make a gradient per example.
        rows = x if len(outer) == 1 else tf.reshape(x, [math.prod(outer), features])
        with v1.variable_scope(None, default_name="dense"):
            y, *weights = self._affine(
                lambda kernel: tf.matmul(rows, kernel),
                [features, units],
                initializer=initializer or normal,
                use_bias=use_bias,
                bias_initializer=bias_initializer,
            )
            y = activation(y) if activation else y
        y = y if len(outer) == 1 else tf.reshape(y, [*outer, units])
        if not activation:
            self.products.append(Product(y, rows, *weights))
        return y

    def embedding(self, ids: tf.Tensor, table: tf.Tensor) -> tf.Tensor:
        """Looks up rows of a table; the gradient of the table is sparse.

        Args:
          ids: int32 [...], in [0, rows).
          table: [rows, units].

        Returns:
          [..., units].
        """
        self.tables.append(table)
        rows = self.lookup(ids, table) if self.lookup else None
        return tf.gather(table, ids) if rows is None else rows

    def batch_norm(
        self,
        x: tf.Tensor,
        *,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        scale: bool = True,
        activation: Activation = None,
        gamma_initializer: Initializer = None,
    ) -> tf.Tensor:
        """Batch normalisation over all axes but the channels (Ioffe & Szegedy 2015).

        If x is no image, as after `dense`, its last axis has the channels.  Statistics
        and parameters are float32 for any `dtype`; x keeps its dtype.  Training uses
        the mean and variance of the batch x (with `joined`, of all joined batches),
        differentiates through them and appends them to `statistics`; otherwise the
        moving averages are read.  A frozen layer, none of whose variables is trained,
        reads them in training, too, and does not change them.
        """
        whole, x = x.shape, self._as_image(x)
        shape = [self.channels(x)]
        with v1.variable_scope(None, default_name="batch_norm") as scope:
            training = self.training and any(
                self.trains(f"{scope.name}/{name}")
                for name in ("beta", "gamma", *_MOVING)
            )
            beta = self.variable("beta", shape, v1.zeros_initializer(), tf.float32)
            gamma_initializer = gamma_initializer or v1.ones_initializer()
            gamma = (
                self.variable("gamma", shape, gamma_initializer, tf.float32)
                if scale
                else tf.ones(shape)
            )
            averages = [
                v1.get_variable(name, shape, tf.float32, start(), trainable=False)
                for name, start in _MOVING.items()
            ]
            moving = {} if training else dict(zip(("mean", "variance"), averages))
            if training and self.joined:
                x, mean, variance = self._normalise_joined(x, gamma, beta, epsilon)
            else:
                x, mean, variance = v1.nn.fused_batch_norm(
                    x,
                    gamma,
                    beta,
                    **moving,
                    epsilon=epsilon,
                    data_format=self.data_format,
                    is_training=training,
                )
            if training:
                for average, value in zip(averages, (mean, variance)):
                    self.statistics.append(Statistic(average, value, momentum))
            x = x if x.shape == whole else tf.reshape(x, whole)
            return activation(x) if activation else x

    def _as_image(self, x: tf.Tensor) -> tf.Tensor:
        """[batch, ..., channels] as an image of one pixel for each row of channels."""
        if x.shape.rank < 2:
            raise ValueError("x has no channels; it is [batch, ..., channels]")
        first, last = [-1, x.shape[-1], 1, 1], [-1, 1, 1, x.shape[-1]]
        shape = first if self.data_format == "NCHW" else last
        return x if x.shape.rank == 4 else tf.reshape(x, shape)

    def _normalise_joined(
        self, x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """As `fused_batch_norm`, over all batches."""
        joined = self.joined
        assert joined
        axes = [0, 2, 3] if self.data_format == "NCHW" else [0, 1, 2]
        shape = [1] * 4
        shape[self.channel_axis] = -1
        wide = tf.cast(x, tf.float32)
        moments = tf.stack(tf.nn.moments(wide, axes))
        mean, variance = tf.unstack(joined.moments(moments))
        centred = wide - tf.reshape(mean, shape)
        factor = gamma * tf.math.rsqrt(variance + epsilon)
        y = centred * tf.reshape(factor, shape) + tf.reshape(beta, shape)
        count = round(joined.count * x.shape.num_elements()) // self.channels(x)
        return tf.cast(y, x.dtype), mean, variance * (count / max(count - 1, 1))

    def flatten(self, x: tf.Tensor) -> tf.Tensor:
        """[batch, ...] -> [batch, features], in NHWC order in either format.

        The order makes the weights of a following dense layer, and so the
        checkpoint, independent of the data format.
        """
        if self.data_format == "NCHW" and len(x.shape) == 4:
            x = tf.transpose(x, [0, 2, 3, 1])
        return tf.reshape(x, [x.shape[0], int(np.prod(x.shape[1:]))])

    def dropout(self, x: tf.Tensor, rate: float) -> tf.Tensor:
        """Zeroes a share of x, scales the rest by 1 / (1 - rate); training only.

        Which units become zero depends on the run's seed, the layer and the example's
        index in the stream, so not on the number of towers or micro-batches.
        """
        if not self.training or not rate:
            return x
        keep = tf.cast(self._draw(example_uniform, "dropout", x) >= rate, x.dtype)
        return x * keep * tf.constant(1.0 / (1.0 - rate), x.dtype)

    def uniform(self, x: tf.Tensor) -> tf.Tensor:
        """Random numbers in [0, 1), float32 of the shape of x, [batch, ...].

        As in `dropout`, they depend on the seed, the layer and the example's index.
        """
        return self._draw(example_uniform, "uniform", x)

    def normal(self, x: tf.Tensor) -> tf.Tensor:
        """The same of the standard normal distribution: mean 0, deviation 1."""
        return self._draw(example_normal, "normal", x)

    def initial_state(self, name: str, shape: Sequence[int]) -> tf.Tensor:
        """The value that `final_state` had in the step before, of the same rows.

        At the start of an epoch, and of an evaluation, it is 0.  No gradient flows into
        the step before.

        Args:
          name: of the state, in the current scope.
          shape: [batch, ...].

        Returns:
          float32 [batch, ...].

        Raises:
          ValueError: the model is not stateful.
        """
        name = self._state_name(name)
        if self.rows is None:
            raise ValueError(
                f"state {name!r} is for models whose examples continue one another; "
                "give the Model stateful=True"
            )
        batch, *rest = shape
        count, steps = self.rows.count or batch, self.rows.steps
        root = v1.VariableScope(
            False,
            custom_getter=v1.get_variable_scope().custom_getter,
            use_resource=True,
        )
        with v1.variable_scope(root, auxiliary_name_scope=False):
            variable = v1.get_variable(
                f"{STATES}{name}",
                [count, *rest],
                tf.float32,
                v1.zeros_initializer(),
                trainable=False,
            )
        self.open_states[name] = variable
        indices = self._indices(batch)
        before = tf.gather(variable, indices % count)
        begins = tf.equal(indices // count % steps, 0)
        begins = tf.reshape(begins, [batch, *[1 for _ in rest]])
        return tf.where(begins, tf.zeros_like(before), before)

    def final_state(self, name: str, value: tf.Tensor) -> None:
        """Keeps a value for the next step's `initial_state`.

        Args:
          name: of the state, in the scope of `initial_state`.
          value: of its shape.

        Raises:
          ValueError: there is no `initial_state` of this name, or of another shape.
        """
        name = self._state_name(name)
        state = self.open_states.pop(name, None)
        if state is None or state.shape[1:] != value.shape[1:]:
            there = "there is none" if state is None else f"it is {state.shape[1:]}"
            raise ValueError(
                f"final_state({name!r}) has {value.shape[1:]} for each row; ask for "
                f"initial_state of that name and shape before ({there})"
            )
        # Other rows are 0, so that the sum over towers and micro-batches has all.
        places = self._indices(value.shape[0])[:, None] % state.shape[0]
        shape = tf.constant(state.shape.as_list(), tf.int64)
        rows = tf.scatter_nd(places, tf.cast(value, tf.float32), shape)
        self.statistics.append(Statistic(state, rows, None))

    def _state_name(self, name: str) -> str:
        scope = v1.get_variable_scope().name
        return f"{scope}/{name}" if scope else name

    def _indices(self, batch: int) -> tf.Tensor:
        """The examples' indices in the stream, int64 [batch]."""
        return tf.cast(self._first_example, tf.int64) + tf.range(batch, dtype=tf.int64)

    def _draw(
        self, draw: Callable[..., tf.Tensor], name: str, x: tf.Tensor
    ) -> tf.Tensor:
        with v1.variable_scope(None, default_name=name) as scope:
            salt, first = zlib.crc32(scope.name.encode()), self._first_example
            return draw(tuple(x.shape), seed=self._seed, salt=salt, first=first)
