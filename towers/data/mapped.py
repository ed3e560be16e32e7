"""Files of numbers that are mapped into memory: only what is used of them is read."""

import os

import numpy as np
import tensorflow as tf


def numbers(path: str, dtype: tf.DType) -> tf.Tensor:
    """The numbers of a file on the device's host, [numbers].

    Args:
      path: of a file that does not change during the run.
      dtype: of its numbers, in the byte order of the host.
    """
    count = os.path.getsize(path) // dtype.size
    with tf.init_scope():  # outside of tf.data's functions, which are copied
        return tf.raw_ops.ImmutableConst(
            dtype=dtype, shape=[count], memory_region_name=os.path.abspath(path)
        )


def pieces(values: tf.Tensor, begins: tf.Tensor, length: int) -> tf.Tensor:
    """`length` consecutive values from each place on, [places, length].

    Args:
      values: [numbers].
      begins: the places, int64 [places].
      length: of a piece.
    """
    return tf.gather(values, begins[:, None] + np.arange(length, dtype=np.int64))
