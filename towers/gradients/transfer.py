"""Transfers of gradients between devices: in float32, or in 16 bits on request.

| where                     | dtype                                                   |
|---------------------------|---------------------------------------------------------|
| on a tower's own device   | float32 (widened from 16-bit compute, which is exact)   |
| between two devices       | the wire's; rounded on the device that sends            |
| every addition            | float32, on the device where the numbers arrive         |
| the sum, on every device  | rounded once where it is complete, widened again        |

So a share is rounded once per hop of the reduction, and the sum once; the broadcast
does not round again, and all copies are bit-equal.  What stays on its device is not
rounded.  bfloat16 has float32's range and 8 bits of precision; float16 has 11, but
numbers beyond 65504 become infinite, and those below 6e-8 zero.
"""

import dataclasses
from collections.abc import Sequence

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Wire:
    """Transfers of float32 tensors between devices.

    Attributes:
      dtype: in which they travel: float32, bfloat16 or float16.
    """

    dtype: tf.DType = tf.float32

    @property
    def narrow(self) -> bool:
        """Whether tensors are rounded before they travel."""
        return self.dtype != tf.float32

    def carry(self, tensor: tf.Tensor, source: str, target: str) -> tf.Tensor:
        """A tensor of the source device as the target device receives it, float32."""
        if not self.narrow or source == target:
            return tensor
        return _widen(self._narrow(tensor, source), target)

    def copy(self, tensor: tf.Tensor, source: str, target: str) -> tf.Tensor:
        """As `carry`, and the result is on the target device even without a cast."""
        if self.narrow and source != target:
            return self.carry(tensor, source, target)
        with tf.device(target):
            return tf.identity(tensor)

    def rounded(self, total: tf.Tensor, device: str) -> tf.Tensor:
        """A complete sum, rounded once as what other devices will receive."""
        if not self.narrow:
            return total
        return _widen(self._narrow(total, device), device)

    def spread(
        self, total: tf.Tensor, source: str, targets: Sequence[str]
    ) -> list[tf.Tensor]:
        """Broadcasts a complete sum; in float32 the targets read it from the source."""
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
