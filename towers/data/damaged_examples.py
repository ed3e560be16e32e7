"""Examples that cannot be read: each is named, and some may be gone past.

An example is read within a dataset of its own, which is empty after an error.  Then the
run ends with an error that names the example; or, while there are no more of them than
allowed, its place in the stream is kept, with weight 0.
"""

import re
import sys
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from towers.data.damaged_count import too_many
from towers.data.examples import ENDING, required

_plain = tf.autograph.experimental.do_not_convert

_DAMAGED = "DamagedExample"
_SENTENCE = re.compile(rf"{_DAMAGED} (\d+): (.*)")


class Guard:
    """Reads examples, and names those that cannot be read.

    Args:
      specs: nest of `tf.TensorSpec`s of what is read of an example.
      most: examples in an epoch that may be damaged.  If it is not 0, examples have
        weights.
    """

    def __init__(self, specs: Any, most: int):
        self._specs = specs
        self._most = most

    def read(
        self,
        record: tf.data.Dataset,
        prepare: Callable[[Any], Any],
        number: tf.Tensor,
        place: tf.Tensor,
    ) -> tuple[Any, tuple[tf.Tensor, ...]]:
        """What is read of an example, and its weight if examples have weights.

        Args:
          record: dataset of its record alone.
          prepare: record -> nest of tensors.
          number: of the record, int64 scalar.
          place: where the record is, in words, a scalar string.

        Returns:
          the nest; zeros if the example is damaged and may be.
          (weight float32 scalar,) or ().
        """

        @_plain
        def prepared(*parts: Any) -> Any:
            return prepare(parts if parts[1:] else parts[0]), tf.constant(1.0)

        @_plain
        def blank(number: tf.Tensor) -> Any:
            words = ("damaged and left out: ", place)
            if self._most:
                told = tf.print(*words, output_stream=sys.stderr, sep="")
            else:
                parts = [_DAMAGED, " ", tf.strings.as_string(number), ": ", place, "."]
                text = tf.strings.join(parts)
                told = tf.raw_ops.Assert(condition=False, data=[text])
            with tf.control_dependencies([told]):
                weight = tf.zeros([])
            zeros = tf.nest.map_structure(
                lambda spec: tf.zeros(spec.shape, spec.dtype), self._specs
            )
            return zeros, weight

        read = record.map(prepared).ignore_errors()
        other = tf.data.Dataset.from_tensors(number).map(blank)
        example, weight = read.concatenate(other).take(1).get_single_element()
        return example, (weight,) if self._most else ()

    def counted(self, batches: tf.data.Dataset, num_examples: int) -> tf.data.Dataset:
        """Batches; reading fails where too many examples of an epoch are damaged.

        Those that this host has read since it began; training also counts the others
        (`DamagedCount`).

        Args:
          batches: of (..., indices in the stream int64 [count], weights [count]).
          num_examples: in an epoch.
        """
        if not self._most:
            return batches

        @_plain
        def add(state: tuple[tf.Tensor, tf.Tensor], batch: Any) -> Any:
            epoch, count = state
            indices, weights = batch[-2:]
            epochs, bad = indices // num_examples, tf.equal(weights, 0.0)

            def damaged(in_epoch: tf.Tensor) -> tf.Tensor:
                return tf.math.count_nonzero(bad & tf.equal(epochs, in_epoch))

            count += damaged(epoch)
            last = epochs[-1]
            count = required(count, count <= self._most, too_many(self._most))
            count = tf.where(tf.equal(last, epoch), count, damaged(last))
            return (last, count), batch

        return batches.scan((tf.constant(-1, tf.int64), tf.constant(0, tf.int64)), add)


def named(error: BaseException) -> tuple[int, str] | None:
    """The number and the place of the damaged example that an error is about, or None.

    Args:
      error: of a session call.
    """
    match = _SENTENCE.search(str(error))
    return (int(match[1]), match[2].removesuffix(ENDING)) if match else None
