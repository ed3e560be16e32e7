"""Sparse gradients: rows of an embedding, side by side, from every tower.

The gradient of a gather is `IndexedSlices`: rows and where they belong, one row for
each lookup.  Their mean over the towers is every row once, with all that was said of
it added up; so an optimizer moves a slot once per row and step, a clip by value or by
norm sees what the dense gradient holds, and the towers' mean is that of one tower on
the joined batch.
"""

from collections.abc import Sequence

import tensorflow as tf

from towers.compute.tower import Gradient


def mean(
    shares: Sequence[tf.IndexedSlices],
    destination: str,
    *,
    hosts: Sequence[str] = (),
    dtype: tf.DType | None = None,
) -> tf.IndexedSlices:
    """The towers' shares of a sparse gradient as one, every row once.

    Args:
      shares: of each tower, each on its device; rows in any float dtype.
      destination: the device on which the rows are added.
      hosts: the CPU device beside each tower.  Where there are several, repeated rows
        are added on each host first, and then go to the destination once.
      dtype: of the rows as they leave their tower; their own when None.

    Returns:
      float32 rows with increasing indices.
    """
    if dtype is not None:
        shares = [_cast(share, dtype) for share in shares]
    groups: dict[str, list[tf.IndexedSlices]] = {}
    for share, host in zip(shares, hosts or [destination] * len(shares)):
        groups.setdefault(host, []).append(share)
    if len(groups) == 1:
        return _once(shares, destination)
    sums = [_once(group, host) for host, group in groups.items()]
    if dtype is not None:
        sums = [_cast(part, dtype) for part in sums]
    return _once(sums, destination)


def densify(gradients: Sequence[Gradient]) -> list[Gradient]:
    """Every sparse gradient as a dense one of its dtype, where its rows lie."""
    found = []
    for gradient in gradients:
        if isinstance(gradient, tf.IndexedSlices):
            with tf.device(gradient.values.device):
                # In float32: in bfloat16, 1000 rows of ones would add up to 256.
                total = tf.math.unsorted_segment_sum(
                    tf.cast(gradient.values, tf.float32),
                    gradient.indices,
                    gradient.dense_shape[0],
                )
                gradient = tf.cast(total, gradient.values.dtype)
        found.append(gradient)
    return found


def _cast(slices: tf.IndexedSlices, dtype: tf.DType) -> tf.IndexedSlices:
    if slices.values.dtype == dtype:
        return slices
    with tf.device(slices.values.device):
        values = tf.cast(slices.values, dtype)
    return tf.IndexedSlices(values, slices.indices, slices.dense_shape)


def _once(parts: Sequence[tf.IndexedSlices], device: str) -> tf.IndexedSlices:
    """All rows of the parts, those of one index added up, in float32."""
    with tf.device(device):
        # The cast stands behind the transfer, so that 16 bits travel if they are 16.
        values = tf.concat([tf.cast(part.values, tf.float32) for part in parts], 0)
        indices = tf.concat([part.indices for part in parts], 0)
        shape = tf.identity(parts[0].dense_shape)
        # In order of index, so that the result does not depend on who came first.
        order = tf.argsort(indices, stable=True)
        sorted_indices = tf.gather(indices, order)
        rows, place = tf.unique(sorted_indices)
        sums = tf.math.segment_sum(tf.gather(values, order), place)
        return tf.IndexedSlices(sums, rows, shape)
