"""Copies batches to the towers' devices one step ahead, while the device computes.

Without this a GPU would wait in every step for the copy of its batch.  A staging area
on each device holds one batch.  A step takes the batch that the step before has put
there, and puts the next one there while it computes.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

v1 = tf.compat.v1

# (features, labels, indices) of one tower, and weights if examples have weights.
# Features and labels are nests of tensors.
Piece = tuple[Any, ...]


def staged(
    devices: Sequence[str], primers: Sequence[Piece], pieces: Sequence[Piece]
) -> tuple[list[Piece], tf.Operation, list[tf.Operation]]:
    """Passes the towers' batches through a staging area on each device.

    Indices and weights stay on the host, where weights are summed.

    Args:
      devices: of the towers.
      primers: for each tower the piece of the first step.
      pieces: for each tower the piece of the next step.

    Returns:
      The pieces for the current step; the operation to run before the first step; and
      for each tower the operation to run in every step.
    """
    handed, primes, refills = [], [], []
    for device, primer, piece in zip(devices, primers, pieces):
        with tf.device(device):
            on_device, prime, refill = _staging_area(primer[:2], piece[:2])
        on_host, host_prime, host_refill = _staging_area(primer[2:], piece[2:])
        handed.append((*on_device, *on_host))
        primes += [prime, host_prime]
        refills.append(tf.group(refill, host_refill))
    return handed, tf.group(primes), refills


def _staging_area(
    primer: tuple[Any, ...], coming: tuple[Any, ...]
) -> tuple[tuple[Any, ...], tf.Operation, tf.Operation]:
    """A queue on the current device that holds the tensors of one step.

    Returns:
      A nest like `coming`; the operation that empties the queue and puts the primer
      into it; and the one that puts `coming` into it.
    """
    area = {"shared_name": v1.get_default_graph().unique_name("staging_area")}
    values = tf.nest.flatten(coming)
    dtypes = [tensor.dtype for tensor in values]
    with tf.control_dependencies([tf.raw_ops.StageClear(dtypes=dtypes, **area)]):
        prime = tf.raw_ops.Stage(values=tf.nest.flatten(primer), **area)
    refill = tf.raw_ops.Stage(values=values, **area)
    handed = tf.raw_ops.Unstage(dtypes=dtypes, **area)
    for tensor, like in zip(handed, values):
        tensor.set_shape(like.shape)
    return tf.nest.pack_sequence_as(coming, handed), prime, refill
