"""Accumulators on the ps tasks, through which clients send each other their sums.

They are TensorFlow's conditional accumulators.  Each has a token; gradients with an
older one are dropped.  It gives out the mean of the gradients in it.
"""

from typing import Any

import tensorflow as tf

v1 = tf.compat.v1


class Accumulators:
    """Accumulators of one graph, which can be emptied.

    Args:
      stamp: int64 scalar, fed with a step token.

    Attributes:
      counts: of the gradients in each.
    """

    def __init__(self, stamp: tf.Tensor):
        self._stamp = stamp
        self.counts: list[tf.Tensor] = []
        # Of each: what sets its token, and the tensor that takes its gradients out.
        self._fresh: list[tf.Operation] = []
        self._drains: list[Any] = []

    def add(self, accumulator: Any) -> None:
        """Adds one, on the current device."""
        self._fresh.append(accumulator.set_global_step(self._stamp))
        self.counts.append(accumulator.num_accumulated())
        self._drains.append(take(accumulator))

    def drain(self, session: v1.Session) -> None:
        """Takes out all gradients, which TensorFlow counts as a step."""
        counts = session.run(self.counts)
        session.run([drain for n, drain in zip(counts, self._drains) if n])

    def empty(self, session: v1.Session, stamp: int) -> None:
        """Empties them, and sets their token."""
        # First set the token, so that no older gradients enter.
        session.run(self._fresh, {self._stamp: stamp})
        self.drain(session)
        session.run(self._fresh, {self._stamp: stamp})


def shared(like: Any, name: str) -> Any:
    """The accumulator of this name for such tensors, on the current device."""
    name = f"towers/sums/{name}"
    if isinstance(like, tf.IndexedSlices):
        return v1.SparseConditionalAccumulator(like.dtype, shared_name=name)
    return v1.ConditionalAccumulator(like.dtype, shape=like.shape, shared_name=name)


def send(held: Any, value: Any, stamp: tf.Tensor) -> tf.Operation:
    """Puts gradients of a step into an accumulator."""
    if isinstance(value, tf.IndexedSlices):
        return held.apply_indexed_slices_grad(value, local_step=stamp)
    return held.apply_grad(value, local_step=stamp)


def take(held: Any, count: Any = 1) -> Any:
    """Waits for `count` gradients of a step, and takes their mean out."""
    if isinstance(held, v1.SparseConditionalAccumulator):
        return held.take_indexed_slices_grad(count)
    return held.take_grad(count)
