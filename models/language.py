"""Losses and metrics of language models, which predict each next token.

Outputs are logits, [batch, length, classes], in one tensor or sharded (see
`models.logits`), and labels are the tokens that follow, int32 [batch, length].  There
is a value for each example, which is a window; all windows have the same length, so a
mean over examples is also a mean over tokens.

In an evaluation of a stateful model the last window of a row may be shorter.  Its last
labels are `NO_TOKEN`, and its weight is the share of those that are there.  Its value
is as if all tokens were like these.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from models.logits import cross_entropy

# The label after the end of a row.
NO_TOKEN = -1


def mean_cross_entropy(outputs: Any, labels: tf.Tensor) -> tf.Tensor:
    """The mean over a window's tokens, float32 [batch]."""
    losses, share = _of_tokens(outputs, labels)
    return tf.reduce_mean(losses, axis=1) / share


def summed_cross_entropy(outputs: Any, labels: tf.Tensor) -> tf.Tensor:
    """The sum over a window's tokens, float32 [batch]."""
    losses, share = _of_tokens(outputs, labels)
    return tf.reduce_sum(losses, axis=1) / share


def _of_tokens(outputs: Any, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Each token's loss, 0 where there is none, and the share of those that are there.

    Returns:
      float32 [batch, length], and [batch]: 1 where all or none are there.
    """
    there = tf.cast(tf.not_equal(labels, NO_TOKEN), tf.float32)
    losses = cross_entropy(outputs, tf.maximum(labels, 0)) * there
    share = tf.reduce_mean(there, axis=1)
    return losses, tf.where(share > 0, share, tf.ones_like(share))


def bits_per_character(outputs: Any, labels: tf.Tensor) -> dict[str, tf.Tensor]:
    """For text whose tokens are bytes: `bits_per_character`, float32 [batch]."""
    return {"bits_per_character": mean_cross_entropy(outputs, labels) / math.log(2)}


def bits_per_token(outputs: Any, labels: tf.Tensor) -> dict[str, tf.Tensor]:
    """For text in words, or parts of them: `bits_per_token`, float32 [batch]."""
    return {"bits_per_token": mean_cross_entropy(outputs, labels) / math.log(2)}


def perplexity(means: Mapping[str, float]) -> dict[str, float]:
    """`perplexity`, 2 to the power of the mean `bits_per_token`."""
    with np.errstate(over="ignore"):  # infinite, of a model that diverged
        return {"perplexity": float(np.exp2(means["bits_per_token"]))}
