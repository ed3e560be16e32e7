"""Random numbers that depend on the example, for models and preprocessing."""

import numpy as np
import tensorflow as tf


def example_uniform(
    shape: tuple[int, ...], *, seed: int, salt: int = 0, first: tf.Tensor | int
) -> tf.Tensor:
    """Uniform numbers in [0, 1) that depend on the example, not on the batch.

    Row b depends on (seed, salt, first + b) alone.  The Philox generator is
    counter-based, so a batch that starts at another example starts at another counter,
    and four towers draw the same numbers as one tower on the joined batch.

    Args:
      shape: [batch, ...], static.
      seed: of the run.
      salt: another number for each use in the model or its preprocessing.
      first: int64 scalar, index in the stream of the batch's first example.

    Returns:
      float32 of `shape`.
    """
    units = int(np.prod(shape[1:], dtype=np.int64))
    blocks = -(-units // 4)  # Philox makes four numbers per counter value
    counter = tf.stack([tf.cast(first, tf.int64) * blocks, tf.constant(salt, tf.int64)])
    bits = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[shape[0] * blocks * 4],
        key=tf.constant([seed & (2**64 - 1)], tf.uint64),
        counter=tf.bitcast(counter, tf.uint64),
        dtype=tf.uint32,
        alg=1,  # Philox
    )
    # As the uniform operation has it; XLA's makes other numbers of the same bits.
    mantissa = tf.bitwise.bitwise_and(bits, tf.constant(0x7FFFFF, tf.uint32))
    one_to_two = tf.bitwise.bitwise_or(mantissa, tf.constant(0x3F800000, tf.uint32))
    flat = tf.bitcast(one_to_two, tf.float32) - 1.0
    return tf.reshape(tf.reshape(flat, [shape[0], -1])[:, :units], shape)


def example_normal(
    shape: tuple[int, ...], *, seed: int, salt: int = 0, first: tf.Tensor | int
) -> tf.Tensor:
    """Normal numbers of mean 0 and deviation 1, by examples as `example_uniform`.

    Box and Muller (1958), of two uniform numbers each.  The largest is 5.6.
    """
    uniform = example_uniform((*shape, 2), seed=seed, salt=salt, first=first)
    radius = tf.sqrt(-2.0 * tf.math.log1p(-uniform[..., 0]))
    return radius * tf.cos(2 * np.float32(np.pi) * uniform[..., 1])
