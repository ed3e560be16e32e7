"""The rows of the stream that a host reads, and the epochs that they are of."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

# Without AutoGraph, which takes 0.2 s at the start; there is no Python control flow.
_plain = tf.autograph.experimental.do_not_convert


class HostShare(NamedTuple):
    """The rows of each step that one host reads: `count` of `step`, from `first` on.

    `order` is the version of their order, as in `ClientShare`.
    """

    step: int
    first: int
    count: int  # type: ignore[assignment]
    order: tf.Tensor | None = None


def indices_of_step(
    step: tf.Tensor, share: HostShare, position: tf.Tensor
) -> tf.Tensor:
    """The indices in the stream of a host's rows, int64 [count].

    Args:
      step: int64 scalar, counted from the position on.
      share: the host's.
      position: int64 scalar.
    """
    first = position + step * share.step + share.first
    return first + tf.range(share.count, dtype=tf.int64)


def epochs(
    num_examples: int,
    seed: int,
    position: tf.Tensor,
    epoch_of: Callable[[tf.Tensor], tf.data.Dataset],
) -> tf.data.Dataset:
    """All epochs one after another, from the position on.

    Args:
      num_examples: in each.
      seed: of the run.
      position: int64 scalar.
      epoch_of: seed, int64 [2], -> dataset of an epoch.
    """
    begun = position // num_examples

    @_plain
    def rest_of_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
        done = tf.where(tf.equal(epoch, begun), position % num_examples, 0)
        return epoch_of(tf.stack([seed, epoch])).skip(done)

    return tf.data.Dataset.range(begun, tf.int64.max).flat_map(rest_of_epoch)


def rows_of_host(
    rows: tf.data.Dataset, share: HostShare, position: tf.Tensor
) -> tf.data.Dataset:
    """The rows that a host reads, each after its index in the stream.

    Args:
      rows: all, from the position on.
      share: the host's.
      position: int64 scalar.
    """
    indexed = rows.enumerate(start=position)
    if share.count == share.step:
        return indexed
    end = share.first + share.count

    @_plain
    def is_read(index: tf.Tensor, *_: Any) -> tf.Tensor:
        row = (index - position) % share.step
        return (row >= share.first) & (row < end)

    return indexed.filter(is_read)
