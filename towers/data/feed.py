"""What goes from the input to the towers: requests, batches, feeds."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from towers.data.preprocessing import Shape

# (host, its towers' devices), in tower order.
Groups = Sequence[tuple[str, Sequence[str]]]


class Batch(NamedTuple):
    """One tower's share of a step: neighbours in the stream."""

    features: tf.Tensor  # float32 [batch, height, width, channels], or int32 of others
    labels: tf.Tensor  # int32 [batch], or [batch, length]
    weights: tf.Tensor  # float32 [batch], 1 for examples that count and 0 for others
    first: tf.Tensor  # int64 scalar, index in the stream of the first example


class Part(NamedTuple):
    """What the towers of a graph read of the stream."""

    index: int = 0  # of the equal parts of each step, one for each client
    count: int = 1  # of these parts
    apart: bool = False  # whether each tower has steps of its own


class Feed(NamedTuple):
    """What feeds the towers of one graph."""

    batches: list[Batch]  # one per tower
    initializer: tf.Operation  # goes to the position; may be run again
    refills: list[tf.Operation]  # of each tower, to be run in every step of it
    # float32 scalar, the weight of the step's examples; None: that of the batches.
    weight: tf.Tensor | None = None


@dataclasses.dataclass(frozen=True)
class Request:
    """How a network wants its examples.

    Attributes:
      shape: (height, width, channels) of the features, (length,) of windows of tokens,
        or (2,) of pairs; with `preprocessing="scale"` a data set's own size takes its
        place.
      num_classes: of synthetic data, and the most words that a text may have; of pairs
        (users, items).  Real data brings its own number.
      num_examples: in an epoch of synthetic data.
      kind: of data, a row of `inputs.KINDS`.
      preprocessing: a row of `preprocessing.PREPROCESSING`.
      augment: whether training images are distorted as the preprocessing says, or
        treated like those of evaluation.
      seed: of order, distortions and synthetic data.
      data_dir: where TFDS keeps its data sets; its own default when empty.
      prefetch: batches that are kept ready for each tower.
      threads: the input pipeline's own; 0 or None to share the session's.
    """

    shape: Shape
    num_classes: int | tuple[int, int] = 1000
    num_examples: int = 1_281_167
    kind: str = "images"
    preprocessing: str = "scale"
    augment: bool = True
    seed: int = 1234
    data_dir: str | None = None
    prefetch: int = 1
    threads: int | None = None


def weighted(
    features: tf.Tensor, labels: tf.Tensor, indices: tf.Tensor, limit: int | None
) -> Batch:
    """A batch in which the examples before `limit` count.

    Args:
      features: [batch, ...].
      labels: int32 [batch, ...].
      indices: int64 [batch], of the examples in the stream.
      limit: None where all count.
    """
    if limit is None:
        weights = tf.ones(indices.shape)
    else:
        weights = tf.cast(indices < limit, tf.float32)
    return Batch(features, labels, weights, indices[0])


def weight_of_all(
    first: tf.Tensor, part: Part, rows: int, limit: int | None
) -> tf.Tensor | None:
    """What the examples of a step weigh, those of other clients too.

    Args:
      first: int64 scalar, index in the stream of this client's first example.
      part: of the step that this client reads.
      rows: in it.
      limit: as `weighted` has it.

    Returns:
      float32 scalar, or None where this client reads all.
    """
    if part.count == 1:
        return None
    total = rows * part.count
    if limit is None:
        return tf.constant(float(total))
    left = limit - (first - part.index * rows)
    return tf.cast(tf.clip_by_value(left, 0, total), tf.float32)
