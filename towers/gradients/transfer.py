"""Gradients on their way between devices: in 16 bits if told so, in float32 else.

| where                     | dtype                                                   |
|---------------------------|---------------------------------------------------------|
| on a tower's own device   | float32 (widened from 16-bit compute, which is exact)   |
| between two devices       | the wire's; rounded on the device that sends            |
| every addition            | float32, on the device where the numbers arrive         |
| the sum, on every device  | rounded once where it is complete, widened again        |

So a share is rounded once per hop up, and the sum once; on its way down it is not
rounded again, and all copies are bit-equal.  A number that stays on its device is not
rounded.  bfloat16 has float32's range and 8 bits of precision; float16 has 11, but
numbers beyond 65504 become infinite, and those below 6e-8 zero.
"""

import dataclasses
from collections.abc import Sequence

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Wire:
    """How float32 tensors travel: `dtype` is float32, bfloat16 or float16."""

    dtype: tf.DType = tf.float32

    @property
    def narrow(self) -> bool:
        """Whether tensors are rounded before they travel."""
        return self.dtype != tf.float32

    def carry(self, tensor: tf.Tensor, source: str, target: str) -> tf.Tensor:
        """What the target device gets of a tensor on the source device, in float32."""
        if not self.narrow or source == target:
            return tensor
        return _widen(self._narrow(tensor, source), target)

    def copy(self, tensor: tf.Tensor, source: str, target: str) -> tf.Tensor:
        """As `carry`, on the target device in any case."""
        if self.narrow and source != target:
            return self.carry(tensor, source, target)
        with tf.device(target):
            return tf.identity(tensor)

    def rounded(self, total: tf.Tensor, device: str) -> tf.Tensor:
        """A complete sum as all devices are to have it."""
        if not self.narrow:
            return total
        return _widen(self._narrow(total, device), device)

    def spread(
        self, total: tf.Tensor, source: str, targets: Sequence[str]
    ) -> list[tf.Tensor]:
        """A complete sum for every target; in float32 it is left for them to fetch."""
        if not self.narrow:
            return [total] * len(targets)
        once = self._narrow(total, source)
        return [_widen(once, target) for target in targets]

    def _narrow(self, tensor: tf.Tensor, device: str) -> tf.Tensor:
        with tf.device(device):
            return tf.cast(tensor, self.dtype)


WIDE = Wire()


def _widen(tensor: tf.Tensor, device: str) -> tf.Tensor:
    with tf.device(device):
        return tf.cast(tensor, tf.float32)
