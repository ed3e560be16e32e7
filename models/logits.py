"""Functions of logits that may be sharded over several devices.

If a classifier of many classes is sharded, no device has all logits of an example.
Losses and metrics that use these functions work with one tensor and with sharded
logits.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import tensorflow as tf


class Product(NamedTuple):
    """A layer without activation, y = x kernel + bias: a classifier, if it is the last.

    Attributes:
      y: [batch, ..., units].
      x: [rows, features], of the rows of y in order.
      kernel: [features, units]; [units, features] if `transposed`.
      bias: [units], or None.
      transposed: whether y = x kernel^T + bias.
    """

    y: tf.Tensor
    x: tf.Tensor
    kernel: tf.Tensor
    bias: tf.Tensor | None = None
    transposed: bool = False


@runtime_checkable
class Logits(Protocol):
    """Logits in pieces, [batch, ..., classes]; labels are int [batch, ...].

    Attributes:
      shape: of the whole.
    """

    shape: tf.TensorShape

    def cross_entropy(self, labels: tf.Tensor, smoothing: float = 0.0) -> tf.Tensor:
        """As the function of this name, in float32."""

    def in_top_k(self, labels: tf.Tensor, k: int) -> tf.Tensor:
        """As the function of this name."""

    def argmax(self) -> tf.Tensor:
        """As the function of this name."""

    def gathered(self) -> tf.Tensor:
        """The whole as one tensor, for predictions."""


def cross_entropy(logits: Any, labels: tf.Tensor, smoothing: float = 0.0) -> tf.Tensor:
    """Softmax cross entropy, in float32 whatever the compute dtype.

    Args:
      logits: float [batch, ..., classes], or `Logits`.
      labels: int [batch, ...], each in [0, classes).
      smoothing: share of the label's probability that is divided among all classes
        (Szegedy et al. 2016, arXiv:1512.00567).

    Returns:
      float32 [batch, ...].
    """
    if isinstance(logits, Logits):
        return logits.cross_entropy(labels, smoothing)
    logits = tf.cast(logits, tf.float32)
    entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=labels, logits=logits, name="cross_entropy"
    )
    if not smoothing:
        return entropy
    labels = tf.convert_to_tensor(labels)
    of_label = tf.gather(logits, labels, batch_dims=labels.shape.rank)
    return entropy + smoothing * (of_label - tf.reduce_mean(logits, -1))


def in_top_k(logits: Any, labels: tf.Tensor, k: int) -> tf.Tensor:
    """Whether fewer than k classes have a larger logit than the label's.

    Args:
      logits: float [batch, classes], or `Logits`.
      labels: int [batch].
      k: at least 1; more than the number of classes means all of them.

    Returns:
      bool [batch]; false if the label's logit is not finite.
    """
    k = min(k, logits.shape[-1])
    if isinstance(logits, Logits):
        return logits.in_top_k(labels, k)
    return tf.math.in_top_k(
        predictions=tf.cast(logits, tf.float32), targets=labels, k=k
    )


def argmax(logits: Any) -> tf.Tensor:
    """The class of the largest logit, of several the first: int64 [batch, ...].

    Args:
      logits: float [batch, ..., classes], or `Logits`.
    """
    return logits.argmax() if isinstance(logits, Logits) else tf.argmax(logits, -1)
