"""Sparse gradients: the rows of an embedding table that a batch has looked up.

The gradient of a gather is an `IndexedSlices`: a value and a row index for each
look-up, so a row may occur many times.  In the mean over the towers every row occurs
once, with the sum of its gradients.  So an optimizer updates a slot once per row and
step, clipping gives the same as for the dense gradient, and the mean is that of one
tower on the joined batch.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from flags.problem import wrong_setting
from towers.compute.tower import Gradient
from towers.layout.placement import task_of


def mean(
    shares: Sequence[tf.IndexedSlices],
    destination: str,
    *,
    hosts: Sequence[str] = (),
    dtype: tf.DType | None = None,
) -> tf.IndexedSlices:
    """The mean of a sparse gradient over the towers, with unique rows.

    Args:
      shares: of each tower, each on its device; rows in any float dtype.
      destination: the device on which rows of one index are summed.
      hosts: the CPU device of each tower's host.  If there are several, or the
        destination is on another task, rows of one index are summed on each host first,
        so that each row crosses the network once.
      dtype: rows are cast to it before they leave a tower or host; None: they are not.

    Returns:
      float32 rows in increasing order of their indices.
    """
    if dtype is not None:
        shares = [_cast(share, dtype) for share in shares]
    groups: dict[str, list[tf.IndexedSlices]] = {}
    for share, host in zip(shares, hosts or [destination] * len(shares)):
        groups.setdefault(host, []).append(share)
    here = all(task_of(host) == task_of(destination) for host in groups)
    if len(groups) == 1 and here:
        return _sum_rows(shares, destination)
    host_sums = [_sum_rows(group, host) for host, group in groups.items()]
    if dtype is not None:
        host_sums = [_cast(host_sum, dtype) for host_sum in host_sums]
    if len(host_sums) == 1:
        return _bring(host_sums[0], destination)
    return _sum_rows(host_sums, destination)


def densify_all(by_tower: Sequence[Sequence[Gradient]]) -> list[list[Gradient]]:
    """The gradients of each tower, sparse ones made dense.

    Args:
      by_tower: [towers][variables].

    Raises:
      ValueError: none is sparse, so that the setting which asks for it has no effect.
    """
    if not any(isinstance(gradient, tf.IndexedSlices) for gradient in by_tower[0]):
        raise wrong_setting(
            "sparse_to_dense_grads",
            None,
            "no gradient of this model is sparse",
            "leave it out",
        )
    return [densify(gradients) for gradients in by_tower]


def densify(gradients: Sequence[Gradient]) -> list[Gradient]:
    """The gradients, sparse ones made dense on their own devices, in their dtypes."""
    dense = []
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
        dense.append(gradient)
    return dense


def _cast(slices: tf.IndexedSlices, dtype: tf.DType) -> tf.IndexedSlices:
    if slices.values.dtype == dtype:
        return slices
    with tf.device(slices.values.device):
        values = tf.cast(slices.values, dtype)
    return tf.IndexedSlices(values, slices.indices, slices.dense_shape)


def _bring(slices: tf.IndexedSlices, device: str) -> tf.IndexedSlices:
    """Unique rows on a device, where they become float32."""
    parts = (slices.values, slices.indices, slices.dense_shape)
    with tf.device(device):
        values, indices, shape = map(tf.identity, parts)
        return tf.IndexedSlices(tf.cast(values, tf.float32), indices, shape)


def _sum_rows(slices: Sequence[tf.IndexedSlices], device: str) -> tf.IndexedSlices:
    """The sum of sparse gradients, in float32, with unique rows."""
    with tf.device(device):
        # Cast after the transfer, so that 16-bit rows travel in 16 bits.
        values = tf.concat([tf.cast(share.values, tf.float32) for share in slices], 0)
        indices = tf.concat([share.indices for share in slices], 0)
        shape = tf.identity(slices[0].dense_shape)
        # A stable sort: rows of one index are summed in tower order in every run.
        order = tf.argsort(indices, stable=True)
        sorted_indices = tf.gather(indices, order)
        rows, place = tf.unique(sorted_indices)
        sums = tf.math.segment_sum(tf.gather(values, order), place)
        return tf.IndexedSlices(sums, rows, shape)


def map_values(
    gradient: Gradient, change: Callable[[tf.Tensor], tf.Tensor]
) -> Gradient:
    """The gradient with changed values; those of its rows if it is sparse."""
    if gradient is None:
        return None
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(
            change(gradient.values), gradient.indices, gradient.dense_shape
        )
    return change(gradient)
