"""Losses and metrics of language models, which predict each next token.

Outputs are logits, [batch, length, classes], in one tensor or sharded (see
`models.logits`), and labels are the tokens that follow, int32 [batch, length].  There
is a value for each example, which is a window; all windows have the same length, so a
mean over examples is also a mean over tokens.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from models.logits import cross_entropy


def mean_cross_entropy(outputs: Any, labels: tf.Tensor) -> tf.Tensor:
    """The mean over a window's tokens, float32 [batch]."""
    return tf.reduce_mean(cross_entropy(outputs, labels), axis=1)


def summed_cross_entropy(outputs: Any, labels: tf.Tensor) -> tf.Tensor:
    """The sum over a window's tokens, float32 [batch]."""
    return tf.reduce_sum(cross_entropy(outputs, labels), axis=1)


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
